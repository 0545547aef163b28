//! The tokens of an answer, and all that is made of them: text, cut at stop strings, read for calls, streamed as events.
//!
//! An input is settings, stop strings and tokens: `SETTINGS 1F STOP 1F STOP 1E TOKENS`. Settings are letters, see [`Case::read`]; a
//! byte up to F7 is the token of that byte, F8 to FE are those after them, and FF goes on with the next of several answers.

use std::{
    cmp::Reverse,
    fmt,
    sync::{Arc, LazyLock},
};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{
    events,
    model::{BYTES, EOS, KNOWN, MODEL},
};
use crate::{
    api::{
        answer::{FinishReason, Usage},
        chat::{self, Chat},
    },
    engine::fuzzed,
    http::{
        ChatChunks, Chunks, Head,
        chat::Choice,
        completions,
        stream::{Outcome, chunks},
    },
    request::{Done, Event, Failure, Finish, Request, Shape},
    sse,
    tools::{FORMS, Form, Reader, Said},
};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime of one thread"));

/// What is asked for, and what the model says.
struct Case {
    chat: Chat,
    form: Option<Form>,
    /// Answered as `/v1/completions` does.
    plain: bool,
    /// The engine fails before the first answer ends.
    fails: bool,
    /// A comment follows each chunk.
    silent: bool,
    /// The answers end because they are as long as they may be.
    length: bool,
    tokens: Vec<Vec<u32>>,
}

impl Case {
    /// `h`, `m`, `l`: with tools, in the first, second or third form. `s`: one call at most. `p`: with logarithms. `2`, `3`: so many
    /// answers. `c`: a completion. `e`: ends at its length. `x`: fails. `a`: with comments.
    fn read(bytes: &[u8]) -> Case {
        let head = bytes.iter().position(|byte| *byte == 0x1e);
        let (head, rest) = head.map_or((&[][..], bytes), |at| (&bytes[..at], &bytes[at + 1..]));
        let head = String::from_utf8_lossy(head);
        let mut fields = head.split('\u{1f}');
        let settings = fields.next().unwrap_or_default();
        let set = |letter: char| settings.contains(letter);
        let stop: Vec<&str> = fields.filter(|stop| (1..=4096).contains(&stop.len())).take(16).collect();
        let n = if set('3') { 3 } else { 1 + usize::from(set('2')) };
        let form = "hml".chars().position(set).map(|at| FORMS[at]);
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let mut body = json!({
            "messages": [{"role": "user", "content": "?"}], "temperature": 0, "stream": true, "n": n, "stop": stop,
            "stream_options": {"include_usage": true}, "logprobs": set('p'), "parallel_tool_calls": !set('s'),
        });
        if form.is_some() {
            body["tools"] = json!([tool("f"), tool("g")]);
        }
        let chat = chat::parse(body.to_string().as_bytes(), KNOWN).expect("a good request");
        let mut tokens = vec![Vec::new(); n];
        let mut at = 0;
        for byte in rest {
            match byte {
                0xff => at = (at + 1) % n,
                0xf8.. => tokens[at].push(BYTES + u32::from(byte - 0xf8)),
                _ => tokens[at].push(u32::from(*byte)),
            }
        }
        Case { chat, form, plain: set('c'), fails: set('x'), silent: set('a'), length: set('e'), tokens }
    }

    fn answer(&self, tokens: &[u32]) -> Vec<Event> {
        let mut tokens = tokens.to_vec();
        if !self.length || tokens.is_empty() {
            tokens.push(EOS);
        }
        let generation = &self.chat.generation;
        let request = Request {
            prompt: vec![0],
            pictures: Arc::default(),
            max_tokens: tokens.len(),
            sampling: generation.sampling.clone(),
            stop: generation.stop.clone(),
            shape: Shape::Text,
            logprobs: self.chat.logprobs,
            deadline: None,
        };
        fuzzed::answer(request, &MODEL.tokenizer, KNOWN.logits, &tokens)
    }

    /// The text of an answer and the stop string that ended it, from the whole.
    fn text(&self, tokens: &[u32]) -> (String, Option<&String>) {
        let end = tokens.iter().position(|token| *token == EOS).unwrap_or(tokens.len());
        let mut text = MODEL.tokenizer.decode(&tokens[..end]).expect("tokens");
        let strings = &self.chat.generation.stop.strings;
        let found = strings.iter().filter_map(|stop| Some((text.find(stop)? + stop.len(), Reverse(stop.len()), stop)));
        let first = found.min();
        if let Some((end, Reverse(length), _)) = first {
            text.truncate(end - length);
        }
        (text, first.map(|(_, _, stop)| stop))
    }

    /// The data of each event, as a client reads them.
    fn streamed(&self, answers: &[Vec<Event>], writer: impl Chunks) -> Vec<String> {
        let longest = answers.iter().map(Vec::len).max().unwrap_or(0);
        let side_by_side: Vec<(usize, Event)> = (0..longest)
            .flat_map(|at| {
                answers.iter().enumerate().filter_map(move |(choice, events)| Some((choice, events.get(at)?.clone())))
            })
            .collect();
        let written: Vec<_> =
            RUNTIME.block_on(chunks(stream::iter(side_by_side), writer, Outcome::default()).collect());
        let mut stream = Vec::new();
        for chunk in written {
            stream.extend_from_slice(&chunk);
            if self.silent {
                stream.extend_from_slice(sse::ALIVE);
            }
        }
        events::data(std::str::from_utf8(&stream).expect("UTF-8"))
    }
}

/// Every answer is what its tokens say, streamed and as a whole.
pub fn stream(bytes: &[u8]) {
    let case = Case::read(bytes);
    let mut answers: Vec<Vec<Event>> = case.tokens.iter().map(|tokens| case.answer(tokens)).collect();
    let done: Vec<Done> = answers.iter().map(|events| ended(events)).collect();
    for (tokens, done) in case.tokens.iter().zip(&done) {
        let to_the_end = !case.length || tokens.is_empty() || tokens.contains(&EOS);
        let expected = match case.text(tokens).1 {
            Some(stop) => Finish::Stop(stop.clone()),
            None if to_the_end => Finish::Eos,
            None => Finish::Length,
        };
        assert_eq!(done.finish, expected);
        assert!(done.completion_tokens <= tokens.len(), "{done:?}");
    }
    if case.fails {
        *answers[0].last_mut().expect("an end") = Event::Failed(Failure::Engine("it \"broke\"\n\n".into()));
    }
    let head = Head { id: "i".into(), created: 0, model: "m\ndata: x".into() };
    let events = if case.plain {
        case.streamed(&answers, completions::Writer::new(head, 1, case.chat.logprobs.is_some(), true))
    } else {
        case.streamed(&answers, ChatChunks::new(head, &case.chat, case.form))
    };
    let json =
        |event: &String| serde_json::from_str::<Value>(event).unwrap_or_else(|error| panic!("{event:?}: {error}"));
    let (last, events) = events.split_last().expect("an end");
    let events: Vec<Value> = events.iter().map(json).collect();
    if case.fails {
        assert_eq!(json(last)["error"]["code"], "engine_failed");
        return;
    }
    assert_eq!(last, "[DONE]");
    let usage = &events.last().expect("the numbers")["usage"];
    assert_eq!(usage["completion_tokens"], json!(done.iter().map(|done| done.completion_tokens).sum::<usize>()));
    for (index, (tokens, events_of)) in case.tokens.iter().zip(&answers).enumerate() {
        let choices = events.iter().filter_map(|event| event["choices"].as_array()).flatten();
        let chunks: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
        let text = case.text(tokens).0;
        let finished: Vec<bool> = chunks.iter().map(|chunk| !chunk["finish_reason"].is_null()).collect();
        assert!(
            finished.iter().rev().enumerate().all(|(at, end)| *end == (at == 0)),
            "ends once, at the end: {finished:?}"
        );
        if case.plain {
            let told: String = chunks.iter().filter_map(|chunk| chunk["text"].as_str()).collect();
            assert_eq!(told, text);
        } else {
            chatted(&case, index, events_of, &chunks, &text);
        }
    }
}

fn ended(events: &[Event]) -> Done {
    let (last, before) = events.split_last().expect("an end");
    assert!(before.iter().all(|event| matches!(event, Event::Piece(_))), "{events:?}");
    let Event::Done(done) = last else { panic!("it ended with {last:?}") };
    done.clone()
}

/// What an answer says, in order, neighbouring texts as one.
#[derive(Default, PartialEq)]
struct Spoken {
    said: Vec<Said>,
}

impl Spoken {
    fn add(&mut self, more: Said) {
        match (self.said.last_mut(), more) {
            (_, Said::Text(text)) if text.is_empty() => {}
            (Some(Said::Text(before)), Said::Text(text)) => before.push_str(&text),
            (_, more) => self.said.push(more),
        }
    }

    fn text(&self) -> String {
        let text = |said: &Said| match said {
            Said::Text(text) => text.clone(),
            Said::Call(_) => String::new(),
        };
        self.said.iter().map(text).collect()
    }

    /// Name and arguments of each call.
    fn calls(&self) -> Vec<(&str, &str)> {
        fn call(said: &Said) -> Option<(&str, &str)> {
            match said {
                Said::Text(_) => None,
                Said::Call(call) => Some((&call.name, &call.arguments)),
            }
        }
        self.said.iter().filter_map(call).collect()
    }
}

impl fmt::Debug for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.fmt(f)
    }
}

fn chatted(case: &Case, index: usize, events: &[Event], chunks: &[&Value], text: &str) {
    let mut streamed = Spoken::default();
    let mut logprobs: Vec<Value> = Vec::new();
    let mut numbered = 0;
    assert_eq!(chunks[0]["delta"], json!({"role": "assistant", "content": ""}));
    for chunk in chunks {
        let told = |value: &Value| value.as_str().expect("a string").to_owned();
        for call in chunk["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], numbered);
            numbered += 1;
            let (name, arguments) = (told(&call["function"]["name"]), told(&call["function"]["arguments"]));
            assert!(serde_json::from_str::<Value>(&arguments).is_ok_and(|arguments| arguments.is_object()));
            streamed.add(Said::Call(crate::tools::Call { name, arguments }));
        }
        if let Some(text) = chunk["delta"]["content"].as_str() {
            streamed.add(Said::Text(text.to_owned()));
        }
        logprobs.extend(chunk["logprobs"]["content"].as_array().into_iter().flatten().cloned());
    }
    let mut reader = Reader::new(case.chat.tools.as_ref().zip(case.form));
    let mut at_once = Spoken::default();
    let said = [reader.push(text), reader.finish()];
    said.into_iter().flatten().for_each(|said| at_once.add(said));
    assert_eq!(streamed, at_once, "in pieces, and at once");
    let calls = streamed.calls();
    assert!(calls.iter().all(|(name, _)| ["f", "g"].contains(name)));
    assert!(calls.len() <= 1 || case.chat.tools.as_ref().is_some_and(|tools| tools.several));
    if calls.is_empty() {
        assert_eq!(streamed.text(), text, "without a call all is text");
    }

    let mut whole = Choice::new(&case.chat, case.form);
    let mut usage = Usage::default();
    events.iter().for_each(|event| whole.take(event.clone(), &mut usage, true).expect("no failure"));
    let whole = whole.whole(index).expect("it ended");
    let called: Vec<(&str, &str)> = whole
        .message
        .tool_calls
        .iter()
        .map(|call| (call.function.name.as_str(), call.function.arguments.as_str()))
        .collect();
    assert_eq!(called, calls);
    match &whole.message.content {
        Some(content) => assert_eq!(*content, streamed.text()),
        None => assert!(!calls.is_empty() && streamed.text().trim().is_empty()),
    }
    assert!(calls.is_empty() || whole.finish_reason != FinishReason::Stop);
    let reason = serde_json::to_value(whole.finish_reason).expect("JSON");
    assert_eq!(chunks.last().map(|chunk| &chunk["finish_reason"]), Some(&reason));
    let written = whole.logprobs.map(|told| serde_json::to_string(&told.content).expect("JSON"));
    let told = written.map(|written| serde_json::from_str::<Value>(&written).expect("JSON"));
    assert_eq!(told, case.chat.logprobs.map(|_| Value::Array(logprobs)));
}
