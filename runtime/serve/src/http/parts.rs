//! What a chat becomes on its way to the engine: its prompt through the template, its tools, the form of its answer.

use mgraph_runtime::{
    request::{Picture, Request as Prompt},
    template::ChatTemplate,
};

use super::App;
use crate::{
    api::{
        ApiError,
        chat::{Chat, Choice, ResponseFormat},
    },
    engine::Loaded,
    request::Shape,
    templates::Asked,
    tools::{self, Form, Told},
};

/// A conversation as the template reads it.
pub struct Talk {
    asked: Asked,
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
    let template = template(loaded)?;
    let (messages, variables) = (chat.messages.clone(), chat.variables.clone());
    let talk = |messages, tools, form| Talk { asked: Asked { messages, tools, variables }, form };
    let Some(asked) = &chat.tools else { return Ok(talk(messages, None, None)) };
    match Told::of(&template.source(true), template.reads("tools", true)) {
        Told::Template(form) => Ok(talk(messages, Some(asked.listed.clone()), Some(form))),
        Told::System(form) => Ok(talk(tools::written_out(messages, asked, form), None, Some(form))),
        Told::Unread => {
            let message = "the model's chat template has its tools called in a form that this server does not read";
            Err(ApiError::invalid(message).of("tools").coded("unsupported_parameter"))
        }
    }
}

impl Talk {
    /// The text that the template makes.
    pub fn text(&self, app: &App) -> Result<String, ApiError> {
        app.templates.render(&self.asked)
    }

    pub fn prompt(&self, app: &App, loaded: &Loaded, chat: &Chat) -> Result<Prompt, ApiError> {
        if !chat.images.is_empty() {
            loaded.requests.can_see().map_err(|why| {
                ApiError::invalid(format!("{why:#}")).of(&chat.images[0].path).coded("images_not_supported")
            })?;
        }
        let pictures: Vec<Picture> = app.rules.read(&chat.images)?;
        let refused = |error| ApiError::parameter("messages", format!("{error:#}"));
        loaded.requests.templated(&self.text(app)?, &pictures).map_err(refused)
    }
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
