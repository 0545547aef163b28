//! Bodies that are nearly right, and bodies that are noise: each is read, or refused with a sentence; nothing panics. Answers cut
//! anyhow are streamed as they are. `MGRAPH_SERVE_CASES` says how many of each, 2,000 unless told otherwise (2 s).

use std::time::Duration;

use mgraph_serve::{
    api::{ApiError, chat, completion, generation::Known},
    http::{ChatChunks, Chunks, Head},
    request::{Done, Event, Finish, Piece},
};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};
use serde_json::Value;

const KNOWN: Known = Known { logits: 1000, ids: 1010 };

/// Bodies that use every parameter.
const BODIES: [&str; 5] = [
    r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"é"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"auto"}}]}],"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":2,"logit_bias":{"5":-100},"seed":-3,"n":2,"stop":["a","b"],"stop_token_ids":[1],"ignore_eos":false,"user":"u","max_completion_tokens":5,"logprobs":true,"top_logprobs":20}"#,
    r#"{"messages":[{"role":"user","content":"?"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":[1,{\"y\":null}]}"}}]},{"role":"tool","tool_call_id":"1","content":"2"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],"tool_choice":"required","parallel_tool_calls":false}"#,
    r#"{"messages":[{"role":"user","content":"?"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"},"strict":true}},"tools":[],"tool_choice":{"type":"function","function":{"name":"f"}},"chat_template_kwargs":{"enable_thinking":false},"store":false}"#,
    r#"{"prompt":["a","b"],"max_tokens":3,"logprobs":2,"n":3,"stop":"x","seed":1,"echo":false}"#,
    r#"{"prompt":[[1,2],[3]],"stream":false}"#,
];

/// What takes the place of a piece of a body.
const PIECES: [&str; 24] = [
    "",
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "18446744073709551616",
    "0.1",
    "\"\"",
    "\"\\ud800\"",
    "\"\u{0}\"",
    "[]",
    "[[]]",
    "{}",
    ",",
    ":",
    "{\"type\":\"text\"}",
    "\"n\":",
    "\"tools\":",
    "\"messages\":",
    "\"prompt\":",
    "\"stop\":",
    "[[[[[[[[[[[[[[[[[[[[",
    "\u{feff}",
];

fn cases() -> u32 {
    std::env::var("MGRAPH_SERVE_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), 0usize..12, any::<Index>());
    let changed = (any::<Index>(), proptest::collection::vec(change, 0..5)).prop_map(|(body, changes)| {
        let mut bytes = body.get(&BODIES).as_bytes().to_vec();
        for (at, length, piece) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, piece.get(&PIECES).bytes());
        }
        bytes
    });
    prop_oneof![9 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..64)]
}

fn well_told(error: &ApiError) -> bool {
    error.status == 400 && !error.detail.message.is_empty() && error.detail.code.is_some()
}

#[test]
fn a_body_is_read_or_refused_with_a_sentence() {
    for (at, body) in BODIES.iter().enumerate() {
        let refused = if at < 3 {
            chat::parse(body.as_bytes(), KNOWN).err()
        } else {
            completion::parse(body.as_bytes(), KNOWN).err()
        };
        // The third asks for a tool that is not there.
        assert_eq!(
            refused.map(|error| error.detail.param),
            if at == 2 { Some(Some("tool_choice".into())) } else { None }
        );
    }
    let read = runner().run(&body(), |body| {
        for refused in [chat::parse(&body, KNOWN).err(), completion::parse(&body, KNOWN).err()].into_iter().flatten() {
            prop_assert!(well_told(&refused), "{refused:?}");
        }
        Ok(())
    });
    read.unwrap_or_else(|error| panic!("{error}"));
}

/// The JSON of each event of a stream.
fn events(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).expect("UTF-8");
    let lines = text.strip_suffix("data: [DONE]\n\n").expect("the end");
    let event = |event: &str| serde_json::from_str(event.strip_prefix("data: ").expect("one field")).expect("JSON");
    lines.split_terminator("\n\n").map(event).collect()
}

#[test]
fn an_answer_is_streamed_as_it_is() {
    let plain = chat::parse(BODIES[0].as_bytes(), KNOWN).expect("good");
    let head = Head { id: "i".into(), created: 0, model: "m".into() };
    let piece = prop_oneof![
        "\\PC{0,6}",
        "[<>{}\\[\\]\"\n\r\\\\a-z_]{0,8}",
        Just("<tool_call>".to_owned()),
        Just("data: [DONE]\n\n".to_owned())
    ];
    let written = runner().run(&proptest::collection::vec((0usize..2, piece), 0..12), |pieces| {
        let mut writer = ChatChunks::new(head.clone(), &plain, None);
        let mut stream: Vec<u8> = writer.begin().concat();
        let mut told = [String::new(), String::new()];
        for (choice, text) in pieces {
            told[choice].push_str(&text);
            let event = Event::Piece(Piece { text, logprobs: Vec::new() });
            stream.extend(writer.event(choice, event).expect("no failure").concat());
        }
        for choice in 0..2 {
            let nothing = Duration::ZERO;
            let done = Done {
                finish: Finish::Eos,
                prompt_tokens: 3,
                cached_tokens: 1,
                completion_tokens: 2,
                queued: nothing,
                prefill: nothing,
                decode: nothing,
            };
            stream.extend(writer.event(choice, Event::Done(done)).expect("no failure").concat());
        }
        stream.extend(writer.end().concat());
        let events = events(&stream);
        for (choice, told) in told.iter().enumerate() {
            let of = |event: &&Value| event["choices"][0]["index"] == choice;
            let content: String =
                events.iter().filter(of).filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
            prop_assert_eq!(&content, told);
        }
        let usage = &events.last().expect("usage")["usage"];
        prop_assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&Value::from(3), &Value::from(4)));
        Ok(())
    });
    written.unwrap_or_else(|error| panic!("{error}"));
}
