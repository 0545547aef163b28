//! The body of a request, and all that is done with it before the engine is asked.

use mgraph_runtime::{
    request::{Limits, Picture},
    sampler::Sampler,
    template::ChatTemplate,
};

use super::model::{KNOWN, MODEL};
use crate::{
    api::{
        ApiError,
        body::parsed_size,
        chat::{self, Chat},
        completion::{self, Prompt},
        generation::{Checked, MOST_CHOICES},
    },
    http::parts,
    images::Rules,
    request::Refusal,
    templates,
};

const RULES: Rules = Rules { limits: Limits { bytes: 1 << 16, pixels: 1 << 16 }, most: 4, folder: None };

/// A body of `/v1/completions`, and the same as one of `/v1/chat/completions`.
pub fn body(bytes: &[u8]) {
    assert!(parsed_size(bytes) >= bytes.len());
    match completion::parse(bytes, KNOWN) {
        Ok(parsed) => {
            checked(&parsed.generation);
            assert!(parsed.max_tokens > 0 && !parsed.prompts.is_empty());
            for prompt in &parsed.prompts {
                match prompt {
                    Prompt::Text(text) => encoded(text),
                    Prompt::Tokens(tokens) => assert!(tokens.iter().all(|token| (*token as usize) < KNOWN.ids)),
                }
            }
        }
        Err(error) => refused(&error),
    }
    match chat::parse(bytes, KNOWN) {
        Ok(chat) => {
            checked(&chat.generation);
            assert!(chat.max_tokens != Some(0) && !chat.messages.is_empty());
            pictures(&chat);
            MODEL.templates.iter().for_each(|template| asked(template, &chat));
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &ApiError) {
    let sentence = !error.detail.message.is_empty() && error.detail.code.is_some();
    assert!(error.status == 400 && sentence, "{error:?}");
    serde_json::to_string(&error.body()).expect("JSON");
}

fn checked(generation: &Checked) {
    assert!((1..=MOST_CHOICES).contains(&generation.n));
    assert!(generation.stop.strings.iter().all(|string| !string.is_empty()));
    assert!(generation.stop.tokens.iter().all(|token| (*token as usize) < KNOWN.logits));
    let mut sampler = Sampler::new(generation.sampling.clone()).expect("settings were checked");
    sampler.see_prompt(&[0, 9, 9]);
    let logits: Vec<f32> = (0..KNOWN.logits).map(|id| (id % 7) as f32 - 3.0).collect();
    let token = sampler.sample(&logits).expect("finite logits have a token to choose");
    assert!((token as usize) < KNOWN.logits);
}

fn pictures(chat: &Chat) {
    let parts = chat.messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    assert_eq!(parts.filter(|part| part["type"] == "image").count(), chat.images.len());
    for image in &chat.images {
        let Ok(file) = RULES.bytes(&image.url) else { continue };
        // What is held for it is what it takes, whichever way it is turned.
        let size = Picture::size(&file, RULES.limits);
        match Picture::read(&file, RULES.limits) {
            Ok(picture) => assert_eq!(
                size.ok().map(|(width, height)| 3 * width as usize * height as usize),
                Some(picture.rgb.len())
            ),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// As `/v1/chat/completions` goes on, with the template in this process.
fn asked(template: &ChatTemplate, chat: &Chat) {
    let talk = match parts::with_template(template, chat) {
        Ok(talk) => talk,
        Err(error) => return refused(&error),
    };
    for asked in [Some(&talk.asked), talk.otherwise.as_ref()].into_iter().flatten() {
        match templates::render(template, asked) {
            Ok(text) => encoded(&text),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let shape = match parts::shape(chat, talk.form) {
        Ok(shape) => shape,
        Err(error) => return refused(&error),
    };
    match MODEL.grammars.compile(&shape) {
        Ok(Some(mut form)) => drop(form.allowed()),
        Ok(None) => {}
        Err(refusal) => assert!(matches!(&refusal, Refusal::Invalid(why) if !why.is_empty()), "{refusal}"),
    }
}

/// Every text has tokens, and they are the text.
fn encoded(text: &str) {
    let tokens = MODEL.tokenizer.encode(text, false).expect("bytes are tokens");
    assert_eq!(MODEL.tokenizer.text(&tokens).expect("tokens"), text);
}
