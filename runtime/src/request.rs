//! From what people say to what the engine runs: a conversation with its pictures becomes tokens and the inputs of `vision`.
//! No device is needed and no weight is read, so whatever is wrong with a request is found here.

use std::path::Path;

pub use mgraph_pictures::{Limits, Picture, PictureError};

use crate::{
    error::{Context, Result, ensure},
    model::{MaxPositions, Model, in_vocabulary},
    pictures::Pictures,
    processor::Processor,
    template::{ChatTemplate, Conversation, Message, Part},
    tokenizer::Tokenizer,
};

/// Positions for words, question and answer together, where nobody says how many.
pub const WORDS: usize = 4096;

/// How requests of one checkpoint are made. May be used from many threads.
#[derive(Debug)]
pub struct Requests {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    processor: Processor,
    max_positions: Option<MaxPositions>,
    token_ids: usize,
}

/// What [`engine`](crate::engine) begins with.
#[derive(Debug, Clone)]
pub struct Request {
    pub tokens: Vec<u32>,
    /// For [`Seen::look`](crate::pictures::Seen::look); all empty where there are words alone.
    pub pictures: Pictures,
}

impl Requests {
    /// Errors: files of the checkpoint that are missing or wrong. Where only pictures cannot be read, words still can
    /// ([`Requests::can_see`]).
    pub fn open(model: &Model) -> Result<Requests> {
        let dir: &Path = model.checkpoint.dir();
        let tokenizer = Tokenizer::open(dir)?;
        let processor = Processor::open(model, &tokenizer)?;
        let template = ChatTemplate::open(dir)?;
        let (max_positions, token_ids) = (model.max_positions()?, model.token_ids()?);
        Ok(Requests { tokenizer, template, processor, max_positions, token_ids })
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The checkpoint's chat template, where it has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Whether requests may have pictures.
    ///
    /// Errors: why not.
    pub fn can_see(&self) -> Result<()> {
        self.processor.can_see()
    }

    /// Whether a prompt may hold these and more pictures. For asking while they are decoded: each keeps its memory until the
    /// request is made.
    ///
    /// Errors: their tokens alone are more than the model was made for.
    pub fn have_room(&self, pictures: &[Picture]) -> Result<()> {
        let Some(MaxPositions { count, from }) = self.max_positions else { return Ok(()) };
        let tokens: usize = pictures.iter().map(|picture| self.tokens_of(picture)).sum();
        ensure!(
            tokens <= count,
            "{} pictures take {tokens} tokens, but the model was made for {count} ({from}): \
             send fewer, or smaller ones",
            pictures.len()
        );
        Ok(())
    }

    /// Tokens that this picture takes in a prompt; 0 where there can be none.
    pub fn tokens_of(&self, picture: &Picture) -> usize {
        self.processor.tokens_of(picture)
    }

    /// A user's message about `pictures` pictures: each where the text has its mark (`<|image|>`), before the text where it has
    /// none.
    pub fn user(&self, text: &str, pictures: usize) -> Message {
        let marked = self.processor.mark().is_some_and(|mark| text.contains(mark));
        let first = if marked { 0 } else { pictures };
        let content = std::iter::repeat_n(Part::Image, first).chain([Part::Text(text.to_owned())]);
        Message { role: "user".into(), content: content.collect() }
    }

    /// A conversation through the checkpoint's chat template; `pictures` in the order of its parts of type `image`
    /// ([`Message::to_json`]).
    ///
    /// Errors, all of them the request's: no template, one that refuses the conversation, other pictures than there are places
    /// for.
    pub fn chat(&self, conversation: &Conversation<'_>, pictures: &[Picture]) -> Result<Request> {
        if !pictures.is_empty() {
            self.can_see()?;
        }
        let template = self.template.as_ref().context("the checkpoint has no chat template")?;
        self.templated(&template.render_conversation(conversation)?, pictures)
    }

    /// What a chat template has made of a conversation; as [`Requests::chat`].
    pub fn templated(&self, text: &str, pictures: &[Picture]) -> Result<Request> {
        self.read(text, true, pictures)
    }

    /// A text as it is. Pictures come where it has their marks, before it where it has none.
    pub fn text(&self, text: &str, pictures: &[Picture]) -> Result<Request> {
        self.read(text, false, pictures)
    }

    fn read(&self, text: &str, templated: bool, pictures: &[Picture]) -> Result<Request> {
        let (tokens, pictures) = self.processor.read(&self.tokenizer, text, templated, pictures)?;
        ensure!(!tokens.is_empty(), "the prompt has no tokens: there is nothing to continue");
        in_vocabulary(tokens.iter().map(|token| i64::from(*token)), self.token_ids)?;
        Ok(Request { tokens, pictures })
    }

    /// Positions of a context where nobody says how many: the largest picture that there can be and [`WORDS`] tokens beside it,
    /// at most what the model was made for.
    pub fn default_capacity(&self) -> usize {
        default_capacity(self.processor.most_tokens(), self.max_positions.map(|most| most.count))
    }
}

fn default_capacity(picture: usize, max_positions: Option<usize>) -> usize {
    (picture + WORDS).min(max_positions.unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use mgraph_pictures::pooled_crops::Settings;
    use serde_json::json;

    use super::{Requests, default_capacity};

    #[test]
    fn a_context_holds_the_largest_picture_and_words() {
        let released = Settings::read(&json!({}), None).expect("the reference's defaults").most_tokens();
        assert_eq!(default_capacity(released, Some(36_864)), 5510);
        assert_eq!(default_capacity(released, None), 5510);
        assert_eq!(default_capacity(0, Some(2048)), 2048);
    }

    #[test]
    fn requests_are_made_on_any_thread() {
        fn shared<T: Send + Sync>() {}
        shared::<Requests>();
    }
}
