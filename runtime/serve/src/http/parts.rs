//! What a chat becomes on its way to the engine: its prompt through the template, its tools, the form of its answer.

use mgraph_runtime::{
    request::Picture,
    template::{ChatTemplate, Conversation, TemplateError},
};
use serde_json::Value;

use crate::{
    api::{
        ApiError,
        chat::{Chat, Choice, ResponseFormat},
    },
    engine::Loaded,
    images::Rules,
    request::Shape,
    tools::{self, Form, Told},
};

/// Messages and tools as the template reads them.
pub struct Talk {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    /// How its model writes calls, where it may.
    pub form: Option<Form>,
}

fn template(loaded: &Loaded) -> Result<&ChatTemplate, ApiError> {
    loaded.requests.template().ok_or_else(|| {
        let message = "the model has no chat template; send text to /v1/completions";
        ApiError::invalid(message).of("messages").coded("no_chat_template")
    })
}

pub fn talk(loaded: &Loaded, chat: &Chat) -> Result<Talk, ApiError> {
    let messages = chat.messages.clone();
    let Some(asked) = &chat.tools else { return Ok(Talk { messages, tools: None, form: None }) };
    let template = template(loaded)?;
    match Told::of(&template.source(true), template.reads("tools", true)) {
        Told::Template(form) => Ok(Talk { messages, tools: Some(asked.listed.clone()), form: Some(form) }),
        Told::System(form) => {
            Ok(Talk { messages: tools::written_out(messages, asked, form), tools: None, form: Some(form) })
        }
        Told::Unread => {
            let message = "the model's chat template has its tools called in a form that this server does not read";
            Err(ApiError::invalid(message).of("tools").coded("unsupported_parameter"))
        }
    }
}

impl Talk {
    fn conversation<'a>(&'a self, chat: &'a Chat) -> Conversation<'a> {
        Conversation {
            messages: &self.messages,
            tools: self.tools.as_deref(),
            documents: None,
            add_generation_prompt: true,
            variables: Some(&chat.variables),
        }
    }

    /// The text that the template makes.
    pub fn text(&self, loaded: &Loaded, chat: &Chat) -> Result<String, ApiError> {
        template(loaded)?.render_conversation(&self.conversation(chat)).map_err(|error| refused(&error))
    }

    pub fn prompt(
        &self,
        loaded: &Loaded,
        chat: &Chat,
        rules: &Rules,
    ) -> Result<mgraph_runtime::request::Request, ApiError> {
        template(loaded)?;
        if !chat.images.is_empty() {
            loaded.requests.can_see().map_err(|why| {
                ApiError::invalid(format!("{why:#}")).of(&chat.images[0].path).coded("images_not_supported")
            })?;
        }
        let pictures: Vec<Picture> = rules.read(&chat.images)?;
        loaded.requests.chat(&self.conversation(chat), &pictures).map_err(|error| match error.downcast_ref() {
            Some(error) => refused(error),
            None => ApiError::parameter("messages", format!("{error:#}")),
        })
    }
}

fn refused(error: &TemplateError) -> ApiError {
    ApiError::parameter("messages", error.to_string()).coded("template_error")
}

/// The form that the answer must have.
pub fn shape(chat: &Chat, form: Option<Form>) -> Result<Shape, ApiError> {
    let forced = match (&chat.tools, form) {
        (Some(tools), Some(form)) => tools::forced(tools, form),
        (Some(_), None) | (None, Some(_)) | (None, None) => None,
    };
    let wanted = match &chat.format {
        None | Some(ResponseFormat::Text) => Shape::Text,
        Some(ResponseFormat::JsonObject) => Shape::JsonObject,
        Some(ResponseFormat::JsonSchema { json_schema }) => Shape::JsonSchema(json_schema.schema.clone()),
    };
    if wanted != Shape::Text && chat.tools.is_some() {
        let message = "an answer is a call or JSON of a format, not both: give tools or response_format";
        return Err(ApiError::parameter("response_format", message));
    }
    Ok(forced.map_or(wanted, Shape::Lark))
}

/// Whether an answer that is a call was asked for.
pub fn must_call(chat: &Chat) -> bool {
    chat.tools.as_ref().is_some_and(|tools| tools.choice != Choice::Auto)
}
