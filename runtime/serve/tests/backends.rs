//! The engine over real sessions: at temperature 0, whatever runs side by side in `pinned` mode is answered as if it were alone.

#[path = "../../../tests/small_vlm/mod.rs"]
mod small_vlm;
mod support;

use std::sync::Arc;

use mgraph_runtime::{
    backend::{self, Backend},
    engine::{Prompt, generate},
    pictures::{Pictures, Seen},
    request::{Limits, Picture},
    sampler::{Sampler, Settings},
    session::{Float, Numerics},
    template::Conversation,
};
use mgraph_serve::{
    engine::{Engine, Loaded, Room},
    request::{Finish, Request},
};
use serde_json::json;
use support::{loaded, read, request, token, until_ready};

const ROWS: usize = 4;
const BACKENDS: [Backend; 2] = [Backend::Mlx, Backend::Iree];

fn start(backend: Backend, loaded: &Arc<Loaded>) -> Engine {
    let loaded = Arc::clone(loaded);
    let engine = Engine::over(Room { parallel: ROWS, max_queue: 100, ..Room::default() }, move |_| {
        let session = backend::open(backend, &loaded.model, loaded.session_options(ROWS, Float::F32))?;
        Ok((loaded, session))
    });
    until_ready(&engine);
    engine
}

/// What each request is answered with by a session of one row, new for it.
fn alone(backend: Backend, loaded: &Loaded, requests: &[(Vec<u32>, Pictures, usize)]) -> Vec<Vec<u32>> {
    let mut session = backend::open(backend, &loaded.model, loaded.session_options(1, Float::F32)).expect("opens");
    let eos = loaded.requests.tokenizer().eos_ids();
    let answer = |(tokens, pictures, count): &(Vec<u32>, Pictures, usize)| {
        session.reset().expect("resets");
        let seen = Seen::look(session.as_mut(), &loaded.model, pictures, 0, None).expect("pictures are seen");
        let mut sampler = Sampler::new(Settings::GREEDY).expect("valid settings");
        let prompt = Prompt { tokens, seen: Some(&seen) };
        let outcome = generate(session.as_mut(), &mut sampler, prompt, *count, eos, &mut |_| Ok(true));
        outcome.expect("answers").tokens
    };
    requests.iter().map(answer).collect()
}

fn of((prompt, pictures, count): &(Vec<u32>, Pictures, usize)) -> Request {
    Request { pictures: Arc::new(pictures.clone()), ..request(prompt, *count) }
}

#[test]
fn pinned_answers_are_those_of_the_request_alone() {
    let dir = support::tiny().expect("the model is made");
    let loaded = loaded(dir.path(), 256, Numerics::Pinned).expect("the model is opened");
    // All begin alike; some are longer than a chunk, and of those three go on alike.
    let prompts = [5, 70, 1, 19, 80, 33, 12, 80, 64];
    let prompt = |(at, length): (usize, &usize)| {
        let character = |place: usize| char::from(b' ' + ((place * 7 + place / 40 * (at % 3) * 3) % 90) as u8);
        ((0..*length).map(|place| token(character(place))).collect::<Vec<u32>>(), Pictures::default(), 20 + at)
    };
    let requests: Vec<_> = prompts.iter().enumerate().map(prompt).collect();
    for backend in BACKENDS {
        let engine = start(backend, &loaded);
        let expected = alone(backend, &loaded, &requests);
        let mut shared = 0;
        for _ in 0..2 {
            let answers: Vec<_> = requests.iter().map(|one| engine.submit(of(one)).expect("is taken")).collect();
            for ((answer, expected), (prompt, ..)) in answers.into_iter().zip(&expected).zip(&requests) {
                let found = read(answer);
                assert_eq!(&found.tokens, expected, "{backend}: {} tokens of prompt", prompt.len());
                shared += found.done().cached_tokens;
            }
        }
        assert!(shared >= 64, "{backend}: chunks that were there already are not fed again ({shared} tokens)");
    }
}

#[test]
fn fused_rows_are_decoded_together() {
    let dir = support::tiny().expect("the model is made");
    let loaded = loaded(dir.path(), 256, Numerics::Fused).expect("the model is opened");
    for backend in BACKENDS {
        let engine = start(backend, &loaded);
        let conversation = support::tokens("A short conversation, said before");
        let first = read(engine.submit(request(&conversation, 8)).expect("is taken"));
        // Rows that nobody used come first, so its row is left alone.
        let answers: Vec<_> = (1..ROWS)
            .map(|at| engine.submit(request(&support::tokens(&"abcdefgh"[at..]), 24)).expect("is taken"))
            .collect();
        for answer in answers {
            let found = read(answer);
            assert!(matches!(found.done().finish, Finish::Length | Finish::Eos), "{backend}: {found:?}");
        }
        let mut longer = conversation;
        longer.extend(&first.tokens);
        longer.extend(support::tokens("?"));
        let second = read(engine.submit(request(&longer, 4)).expect("is taken"));
        // The last token of the first answer was never fed.
        assert_eq!(second.done().cached_tokens, longer.len() - 2, "{backend}");
    }
}

#[test]
fn pictures_live_in_any_row() {
    let dir = tempfile::tempdir().expect("a folder");
    small_vlm::small_vlm(dir.path());
    let loaded = loaded(dir.path(), 128, Numerics::Pinned).expect("the model is opened");
    let picture = |name: &str| {
        let file = small_vlm::root().join("runtime/pictures/tests/pooled_crops").join(name);
        Picture::read(&std::fs::read(file).expect("a picture"), Limits::default()).expect("a picture")
    };
    let asked = |said: serde_json::Value, pictures: &[Picture]| {
        let messages = [json!({ "role": "user", "content": said })];
        let conversation = Conversation { messages: &messages, add_generation_prompt: true, ..Conversation::default() };
        let made = loaded.requests.chat(&conversation, pictures).expect("a request");
        (made.tokens, made.pictures, 10)
    };
    let with = |text: &str| json!([{ "type": "image" }, { "type": "text", "text": text }]);
    let requests = [
        asked(with("What is this?"), &[picture("photo.jpg")]),
        asked(json!("Is there a picture?"), &[]),
        asked(with("And this?"), &[picture("grey.png")]),
        asked(with("What is this?"), &[picture("grey.png")]),
        asked(with("What is this? Say more"), &[picture("photo.jpg")]),
    ];
    // IREE compiles graphs for every size of picture.
    for (backend, requests) in [(Backend::Mlx, &requests[..]), (Backend::Iree, &requests[..3])] {
        let engine = start(backend, &loaded);
        let expected = alone(backend, &loaded, requests);
        for round in 0..2 {
            let answers: Vec<_> = requests.iter().map(|one| engine.submit(of(one)).expect("is taken")).collect();
            for (at, (answer, expected)) in answers.into_iter().zip(&expected).enumerate() {
                assert_eq!(&read(answer).tokens, expected, "{backend}: request {at} of round {round}");
            }
        }
    }
    // Words are shared, and pictures where they are the same.
    let fused = Loaded::new(Arc::clone(&loaded.model), Some(128), Numerics::Fused).expect("opened");
    let engine = start(Backend::Mlx, &Arc::new(fused));
    let cached = |one| read(engine.submit(of(one)).expect("is taken")).done().cached_tokens;
    assert_eq!(cached(&requests[0]), 0);
    let common = requests[0].0.iter().zip(&requests[4].0).take_while(|(a, b)| a == b).count();
    assert_eq!(cached(&requests[4]), common);
    assert_eq!(cached(&requests[3]), 0, "another picture");
}

/// Bytes of this process in memory.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "half a minute; `make test-long`"]
fn memory_stays_flat_over_two_thousand_requests() {
    let dir = support::tiny().expect("the model is made");
    let loaded = loaded(dir.path(), 256, Numerics::Fused).expect("the model is opened");
    for backend in BACKENDS {
        let engine = start(backend, &loaded);
        let mut after = Vec::new();
        for at in 0..2500 {
            let prompt: Vec<u32> =
                (0..at * 13 % 90 + 1).map(|place| token(char::from(b' ' + ((place * at) % 90) as u8))).collect();
            let one = engine.submit(request(&prompt, at % 7 + 1)).expect("is taken");
            match at % 5 {
                0 => drop(one),
                _ => drop(read(one)),
            }
            if at % 500 == 499 {
                after.push(resident() >> 10);
            }
        }
        println!("{backend}: {after:?} KiB after every 500 requests");
        let (warm, end) = (after[0], after[4]);
        assert!(end < warm + (8 << 10), "{backend}: {after:?} KiB after every 500 requests");
    }
}
