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
    engine::{Loaded, Place},
    request::Shape,
    templates::Asked,
    tools::{self, Form, Listed, Told},
};

/// A conversation as the template reads it.
pub struct Talk {
    pub asked: Asked,
    /// For a template that refuses the first, or leaves its tools out.
    pub otherwise: Option<Asked>,
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
    with_template(template(loaded)?, chat)
}

/// As [`talk`], for a template that is at hand.
pub fn with_template(template: &ChatTemplate, chat: &Chat) -> Result<Talk, ApiError> {
    let asked = |messages, tools| Asked { messages, tools, variables: chat.variables.clone() };
    let talk = |asked, otherwise, form| Talk { asked, otherwise, form };
    let Some(tools) = &chat.tools else { return Ok(talk(asked(chat.messages.clone(), None), None, None)) };
    match Told::of(&template.source(true), template.reads("tools", true)) {
        Told::Template(form) => Ok(talk(asked(chat.messages.clone(), Some(tools.listed.clone())), None, Some(form))),
        Told::Written(form) => {
            let with = |listed| asked(tools::written_out(chat.messages.clone(), tools, form, listed), None);
            // A system message of the client's own is refused all the same.
            let own = chat.messages.iter().any(|message| message["role"] == "system");
            Ok(talk(with(Listed::System), (!own).then(|| with(Listed::User)), Some(form)))
        }
        Told::Unread => {
            let message = "the model's chat template has its tools called in a form that this server does not read (it reads \
                           JSON with a name and arguments; `<function=..>` of Qwen 3 Coder is another)";
            Err(ApiError::invalid(message).of("tools").coded("unsupported_parameter"))
        }
    }
}

impl Talk {
    /// The text that the template makes.
    pub fn text(&self, app: &App) -> Result<String, ApiError> {
        let first = app.templates.render(&self.asked);
        let Some(otherwise) = &self.otherwise else { return first };
        match first {
            Ok(text) if text.contains(tools::LIST) => Ok(text),
            Err(error) if error.detail.code != Some("template_error") => Err(error),
            // Where the second is refused too, what the template said of the first is what the client can act on.
            first => app.templates.render(otherwise).or(first),
        }
    }

    pub fn prompt(&self, app: &App, loaded: &Loaded, chat: &Chat, place: &mut Place) -> Result<Prompt, ApiError> {
        if !chat.images.is_empty() {
            loaded.requests.can_see().map_err(|why| {
                ApiError::invalid(format!("{why:#}")).of(&chat.images[0].path).coded("images_not_supported")
            })?;
        }
        let text = self.text(app)?;
        loaded.fits(&text)?;
        let pictures: Vec<Picture> = app.rules.read(&chat.images, loaded, place)?;
        let refused = |error| ApiError::parameter("messages", format!("{error:#}"));
        loaded.requests.templated(&text, &pictures).map_err(refused)
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
