//! The engine over a scripted session: whatever runs side by side, is cancelled, fails or is reused, every answer is the one that
//! its request alone would have.

mod support;

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use metrics_exporter_prometheus::PrometheusBuilder;
use mgraph_runtime::{pictures::Pictures, session::Numerics, tensor::Tensor};
use mgraph_serve::{
    api::answer::CompletionLogprobs,
    engine::{Engine, Health, Room, SlotWork},
    request::{Event, Failure, Finish, Refusal, Request, Sampling, Shape, Stop},
};
use proptest::prelude::*;
use serde_json::json;
use support::{
    read, request,
    scripted::{CHUNK, Fate, Script, Scripted, answer},
    soon, token, tokens, until_ready,
};

const CAPACITY: usize = 96;

fn start(script: &Script, room: Room, numerics: Numerics) -> Engine {
    start_with("llama", script, room, numerics)
}

fn start_with(golden: &'static str, script: &Script, room: Room, numerics: Numerics) -> Engine {
    let script = script.clone();
    let engine = Engine::over(room, move |_| {
        let dir = support::tiny_of(golden)?;
        let loaded = support::loaded(dir.path(), CAPACITY, numerics)?;
        Ok((loaded, Box::new(Scripted::new(script, room.parallel, CAPACITY))))
    });
    until_ready(&engine);
    engine
}

fn room(parallel: usize) -> Room {
    Room { parallel, max_queue: 100, ..Room::default() }
}

fn slow() -> Script {
    Script { pause: Duration::from_millis(5), ..Script::default() }
}

fn submit(engine: &Engine, request: Request) -> mgraph_serve::engine::Answer {
    engine.submit(request).expect("the request is taken")
}

fn all_idle(engine: &Engine) -> bool {
    engine.slots().iter().all(|slot| slot.work == SlotWork::Idle)
}

#[test]
fn requests_side_by_side_are_answered_as_if_alone() {
    for numerics in [Numerics::Fused, Numerics::Pinned] {
        let engine = start(&Script::default(), room(3), numerics);
        let prompts: Vec<Vec<u32>> = (1..20)
            .map(|length| (0..length * 3 % 41 + 1).map(|at| token(char::from(b'A' + at as u8 % 50))).collect())
            .collect();
        let answers: Vec<_> = prompts.iter().map(|prompt| submit(&engine, request(prompt, 12))).collect();
        for (prompt, answer_) in prompts.iter().zip(answers) {
            let found = read(answer_);
            assert_eq!(found.tokens, answer(prompt, 12), "{numerics:?} {prompt:?}");
            let text: String = found.tokens.iter().filter_map(|id| char::from_u32(id - 3)).collect();
            assert_eq!(found.text, text);
            let done = found.done();
            assert_eq!((&done.finish, done.prompt_tokens, done.completion_tokens), (&Finish::Length, prompt.len(), 12));
        }
    }
}

#[test]
fn a_conversation_is_not_fed_again() {
    for (numerics, reused) in [(Numerics::Fused, 20 + 5 - 1), (Numerics::Pinned, 2 * CHUNK)] {
        let script = Script::default();
        let engine = start(&script, room(2), numerics);
        let mut conversation = tokens("twenty tokens it has");
        let first = read(submit(&engine, request(&conversation, 5)));
        assert_eq!(first.done().cached_tokens, 0);
        // Another conversation takes the other row.
        read(submit(&engine, request(&tokens("Something else"), 3)));
        conversation.extend(first.tokens);
        conversation.extend(tokens(" and on"));
        let second = read(submit(&engine, request(&conversation, 5)));
        assert_eq!(second.tokens, answer(&conversation, 5), "{numerics:?}");
        assert_eq!(second.done().cached_tokens, reused, "{numerics:?}");
        // The same again: all but the last token, or the chunk it is in.
        let again = read(submit(&engine, request(&conversation, 5)));
        assert_eq!(again.tokens, second.tokens);
        assert!(again.done().cached_tokens >= conversation.len() - CHUNK, "{numerics:?} {:?}", again.done());
    }
}

#[test]
fn a_long_prompt_stalls_nobody() {
    let script = Script::default();
    let engine = start(&script, room(9), Numerics::Fused);
    let long: Vec<u32> = (0..80).map(|at| token(char::from(b'0' + at as u8 % 10))).collect();
    // The engine is busy with the first while the others arrive.
    let mut answers = vec![submit(&engine, request(&long, 4))];
    answers.extend((0..8).map(|at| submit(&engine, request(&tokens(&"x".repeat(at + 1)), 30))));
    for (at, answer_) in answers.into_iter().enumerate() {
        let found = read(answer_);
        let (prompt, count) = if at == 0 { (long.clone(), 4) } else { (tokens(&"x".repeat(at)), 30) };
        assert_eq!(found.tokens, answer(&prompt, count));
    }
    // Between two chunks of prompts there is a decode, once anything decodes.
    let steps = script.steps();
    let first_decode =
        steps.iter().position(|step| step.width == 1 && step.positions[0] > 0).expect("something decodes");
    let mut since = 0;
    for step in &steps[first_decode..] {
        since = if step.width > 1 { since + 1 } else { 0 };
        assert!(since <= 1, "two chunks in a row while others decode: {steps:?}");
    }
}

#[test]
fn dropping_an_answer_cancels_within_a_step() {
    let script = slow();
    let engine = start(&script, room(2), Numerics::Fused);
    let mut gone = submit(&engine, request(&tokens("abc"), 80));
    let kept = submit(&engine, request(&tokens("xyz"), 40));
    assert!(gone.wait().is_some());
    drop(gone);
    let before = script.steps().len();
    soon("one row is idle", || engine.slots().iter().filter(|slot| slot.work == SlotWork::Idle).count() == 1);
    // One step may be under way, and one is seen only after it was asked for.
    assert!(script.steps().len() <= before + 3);
    assert_eq!(read(kept).tokens, answer(&tokens("xyz"), 40));
    // A request that waits leaves the line.
    let busy: Vec<_> = (0..2).map(|_| submit(&engine, request(&tokens("q"), 60))).collect();
    drop(submit(&engine, request(&tokens("never"), 60)));
    let last = submit(&engine, request(&tokens("z"), 1));
    drop(busy);
    assert_eq!(read(last).tokens, answer(&tokens("z"), 1));
    soon("all rows are idle", || all_idle(&engine));
}

#[test]
fn deadlines_hold_while_running_and_while_waiting() {
    let engine = start(&slow(), room(1), Numerics::Fused);
    let within = |millis: u64, max_tokens: usize| {
        let deadline = Some(Instant::now() + Duration::from_millis(millis));
        submit(&engine, Request { deadline, ..request(&tokens("abc"), max_tokens) })
    };
    let (runs, waits, patient) = (within(60, 90), within(30, 1), within(5000, 2));
    let runs = read(runs);
    assert_eq!(runs.failure(), &Failure::Deadline);
    assert!(!runs.tokens.is_empty() && runs.tokens == answer(&tokens("abc"), runs.tokens.len()));
    let waits = read(waits);
    assert_eq!((waits.failure(), waits.tokens.len()), (&Failure::Deadline, 0));
    assert_eq!(read(patient).tokens, answer(&tokens("abc"), 2));
}

#[test]
fn a_request_has_a_place_before_it_is_read() {
    let bytes = 1000;
    let engine = start(&slow(), Room { parallel: 1, max_queue: 1, bytes, ..Room::default() }, Numerics::Fused);
    let (mut first, second) = (engine.reserve().expect("room"), engine.reserve().expect("room"));
    assert!(matches!(engine.reserve(), Err(Refusal::Full { running: 0, waiting: 2, .. })));
    assert!(matches!(engine.submit(request(&tokens("a"), 1)), Err(Refusal::Full { .. })));
    drop(second);
    let mut second = engine.reserve().expect("room again");

    assert_eq!(first.hold(600), Ok(()));
    assert_eq!(second.hold(500), Err(Refusal::Crowded { held: 600, needed: 500, most: bytes }));
    assert_eq!(second.hold(1001), Err(Refusal::TooLarge { needed: 1001, most: bytes }));
    first.release(200);
    assert_eq!(second.hold(500), Ok(()));
    // What is in line holds its pictures, and nothing else of what it was made of.
    let seen = Pictures { vision: vec![("pixels", Tensor::from_f32(&[1, 25], &[0.0; 25]))], ..Pictures::default() };
    let with = Request { pictures: Arc::new(seen), ..request(&tokens("abc"), 50) };
    let before = engine.submit_all(second, vec![request(&tokens("abc"), 90)]).expect("taken");
    let answers = engine.submit_all(first, vec![with]).expect("taken");
    drop(before);
    soon("the line moves", || engine.reserve().is_ok());
    let mut third = engine.reserve().expect("room");
    assert_eq!(third.hold(901), Err(Refusal::Crowded { held: 100, needed: 901, most: bytes }));
    drop(answers);
    soon("the pictures are gone", || third.hold(901).is_ok());
}

#[test]
fn several_answers_are_taken_together_or_not_at_all() {
    let engine = start(&slow(), Room { parallel: 1, max_queue: 3, ..Room::default() }, Numerics::Fused);
    let several = |n: u32| {
        let requests = request(&tokens("abc"), 20).choices(n).collect();
        engine.submit_all(engine.reserve()?, requests)
    };
    assert_eq!(several(5).map(drop), Err(Refusal::TooMany { answers: 5, most: 4 }));
    let runs = submit(&engine, request(&tokens("xyz"), 60));
    assert!(matches!(several(4), Err(Refusal::Full { running, waiting, .. }) if running + waiting == 2));
    for answer_ in several(3).expect("there is room for three, so the four left nothing") {
        assert_eq!(read(answer_).tokens, answer(&tokens("abc"), 20));
    }
    assert_eq!(read(runs).tokens, answer(&tokens("xyz"), 60));
}

#[test]
fn the_form_of_several_answers_is_compiled_once() {
    let engine = start(&Script::default(), room(4), Numerics::Fused);
    let recorder = PrometheusBuilder::new().build_recorder();
    let shape = |text: &str| Shape::Lark(format!("start: {text:?}"));
    let formed = |text: &str| Request { shape: shape(text), ..request(&tokens("abc"), 12) };
    let requests = formed("yes").choices(4).chain(formed("no").choices(2)).collect();
    let answers = metrics::with_local_recorder(&recorder, || {
        engine.submit_all(engine.reserve().expect("room"), requests).expect("taken")
    });
    // Each goes its own way through it.
    let said: Vec<String> = answers.into_iter().map(|answer_| read(answer_).text).collect();
    assert_eq!(said, ["yes", "yes", "yes", "yes", "no", "no"]);
    let counted = recorder.handle().render();
    assert!(counted.contains("\nmlxcel:grammars_compiled 2\n"), "{counted}");
}

#[test]
fn a_step_that_does_not_end_fails_everyone_in_time() {
    let script = Script { fates: vec![(9, Fate::Stall(Duration::from_secs(20)))], ..slow() };
    let limited = Room { parallel: 2, max_queue: 9, step_timeout: Duration::from_millis(300), ..Room::default() };
    let engine = start(&script, limited, Numerics::Fused);
    // Nothing to do is no step.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(engine.health(), Health::Ready);
    let begun = Instant::now();
    let answers: Vec<_> = (0..4).map(|_| submit(&engine, request(&tokens("abc"), 50))).collect();
    for mut answer_ in answers {
        let end = std::iter::from_fn(|| answer_.wait()).find(|event| !matches!(event, Event::Piece(_)));
        let Some(Event::Failed(Failure::Stalled(why))) = end else { panic!("{end:?}") };
        assert!(why.contains("--step-timeout"), "{why}");
        assert!(matches!(engine.health(), Health::Failed(said) if said == why), "red before anybody hears of it");
    }
    assert!(matches!(engine.submit(request(&[token('a')], 1)), Err(Refusal::Failed(_))));
    assert!(!engine.wait(), "the thread is given up");
    drop(engine);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Is woken by whoever sends an event, and looks at the health at that moment.
struct Look {
    engine: Engine,
    seen: Mutex<Vec<Health>>,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        let health = self.engine.health();
        self.seen.lock().expect("no panic").push(health);
    }
}

#[test]
fn the_health_is_red_before_anybody_hears_of_a_failure() {
    let script = Script { fates: vec![(1, Fate::Error)], pause: Duration::from_millis(500), ..Script::default() };
    let engine = start(&script, room(1), Numerics::Fused);
    let mut answer_ = submit(&engine, request(&tokens("abc"), 90));
    let look = Arc::new(Look { engine: engine.clone(), seen: Mutex::default() });
    let waker = Waker::from(Arc::clone(&look));
    assert!(answer_.poll(&mut Context::from_waker(&waker)).is_pending(), "nobody is told yet");
    // Nothing else may be woken in its place.
    soon("it is woken", || !look.seen.lock().expect("no panic").is_empty());
    assert!(matches!(answer_.wait(), Some(Event::Failed(_))));
    let seen = look.seen.lock().expect("no panic").clone();
    assert!(matches!(&seen[..], [Health::Failed(_)]), "{seen:?}");
}

#[test]
fn a_device_that_fails_at_a_picture_fails_the_engine() {
    let engine = start(&Script::default(), room(2), Numerics::Fused);
    let seen = Pictures { vision: vec![("pixels", Tensor::from_f32(&[1], &[0.0]))], ..Pictures::default() };
    let found = read(submit(&engine, Request { pictures: Arc::new(seen), ..request(&tokens("abc"), 5) }));
    assert!(matches!(found.failure(), Failure::Engine(why) if why.contains("no graph vision")), "{found:?}");
    assert!(matches!(engine.health(), Health::Failed(_)));
}

#[test]
fn a_request_with_more_pictures_than_there_is_room_for_fails_alone() {
    let script = Script { pictures: Some(5), ..Script::default() };
    let engine = start_with("mllama", &script, room(2), Numerics::Fused);
    let seen = Pictures { vision: vec![("pixels", Tensor::from_f32(&[1], &[0.0]))], ..Pictures::default() };
    let found = read(submit(&engine, Request { pictures: Arc::new(seen), ..request(&tokens("abc"), 5) }));
    assert!(matches!(found.failure(), Failure::Unanswerable(why) if why.contains("--limit pictures=5")), "{found:?}");
    assert_eq!(read(submit(&engine, request(&tokens("abc"), 5))).tokens, answer(&tokens("abc"), 5));
}

#[test]
fn tokens_that_are_parts_of_a_character_stand_where_it_stands() {
    let engine = start(&Script::default(), room(1), Numerics::Fused);
    let shape = Shape::Lark("start: \"é€x\"".into());
    let mut found = submit(&engine, Request { shape, ..request(&tokens("abc"), 12) });
    let mut told = CompletionLogprobs::default();
    let mut text = String::new();
    while let Some(event) = found.wait() {
        if let Event::Piece(piece) = event {
            text += &piece.text;
            told.extend(&piece.logprobs);
        }
    }
    assert_eq!(text, "é€x");
    assert_eq!(told.tokens, [r"bytes:\xc3", r"bytes:\xa9", r"bytes:\xe2", r"bytes:\x82", r"bytes:\xac", "x"]);
    assert_eq!(told.text_offset, [0, 0, 1, 1, 1, 2]);
}

#[test]
fn an_error_or_a_panic_fails_everyone_and_the_engine() {
    for (fate, says) in [(Fate::Error, "the device is gone"), (Fate::Panic, "the script says so")] {
        let script = Script { fates: vec![(9, fate)], ..slow() };
        let engine = start(&script, room(2), Numerics::Fused);
        let answers: Vec<_> = (0..4).map(|_| submit(&engine, request(&tokens("abc"), 50))).collect();
        for answer_ in answers {
            let found = read(answer_);
            let Failure::Engine(why) = found.failure() else { panic!("{fate:?}: {found:?}") };
            assert!(why.contains(says), "{why}");
        }
        let Health::Failed(why) = engine.health() else { panic!("{:?}", engine.health()) };
        assert!(why.contains(says), "{why}");
        assert!(matches!(engine.submit(request(&[token('a')], 1)), Err(Refusal::Failed(_))));
        engine.wait();
    }
}

#[test]
fn a_model_that_cannot_be_opened_is_told_in_the_health() {
    let failed = Engine::over(room(1), |_| Err(mgraph_runtime::error::anyhow!("no such model")));
    failed.wait();
    assert_eq!(failed.health(), Health::Failed("no such model".into()));
    let panicked = Engine::over(room(1), |_| panic!("while opening"));
    panicked.wait();
    assert!(matches!(panicked.health(), Health::Failed(why) if why.contains("while opening")));
}

#[test]
fn logits_that_are_no_numbers_fail_one_request() {
    let script = Script { fates: vec![(6, Fate::NotANumber { row: 0 })], ..Script::default() };
    let engine = start(&script, room(2), Numerics::Fused);
    let answers = [submit(&engine, request(&tokens("abc"), 20)), submit(&engine, request(&tokens("xyz"), 20))];
    let [first, second] = answers.map(read);
    assert!(matches!(first.failure(), Failure::Unanswerable(why) if why.contains("NaN")), "{first:?}");
    assert_eq!(second.tokens, answer(&tokens("xyz"), 20));
    assert_eq!(read(submit(&engine, request(&tokens("on"), 5))).tokens, answer(&tokens("on"), 5));
}

#[test]
fn draining_finishes_what_was_taken_and_stopping_does_not() {
    let engine = start(&slow(), room(1), Numerics::Fused);
    let answers: Vec<_> = (0..3).map(|_| submit(&engine, request(&tokens("abc"), 5))).collect();
    engine.drain();
    assert!(matches!(engine.submit(request(&[token('a')], 1)), Err(Refusal::Draining)));
    assert_eq!(engine.health(), Health::Draining);
    engine.wait();
    for answer_ in answers {
        assert_eq!(read(answer_).tokens, answer(&tokens("abc"), 5));
    }

    let engine = start(&slow(), room(1), Numerics::Fused);
    let answers: Vec<_> = (0..3).map(|_| submit(&engine, request(&tokens("abc"), 90))).collect();
    engine.stop();
    engine.wait();
    for answer_ in answers {
        assert_eq!(read(answer_).failure(), &Failure::Draining);
    }
    // The last handle takes the engine with it.
    let engine = start(&slow(), room(1), Numerics::Fused);
    let answer_ = submit(&engine, request(&tokens("abc"), 90));
    drop(engine);
    assert_eq!(read(answer_).failure(), &Failure::Draining);
}

#[test]
fn what_cannot_be_taken_is_refused_before_any_work() {
    let script = slow();
    let engine = start(&script, Room { parallel: 1, max_queue: 1, ..Room::default() }, Numerics::Fused);
    let refused = |request: Request| engine.submit(request).expect_err("is refused");
    let fits = refused(request(&tokens("abcd"), CAPACITY - 2));
    assert_eq!(
        fits,
        Refusal::NeverFits { prompt: 4, max_tokens: CAPACITY - 2, needed: CAPACITY + 1, capacity: CAPACITY }
    );
    assert!(fits.to_string().contains("--ctx-size 97"), "{fits}");
    assert!(matches!(refused(request(&[], 1)), Refusal::Invalid(_)));
    assert!(matches!(refused(request(&[131], 1)), Refusal::Invalid(why) if why.contains("131")));
    let hot = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(matches!(refused(Request { sampling: hot, ..request(&[3], 1) }), Refusal::Invalid(_)));
    let shape = Shape::JsonSchema(json!({ "type": "nothing" }));
    assert!(matches!(refused(Request { shape, ..request(&[3], 1) }), Refusal::Invalid(why) if why.contains("schema")));
    assert_eq!(script.steps(), []);

    let taken = [submit(&engine, request(&tokens("a"), 60)), submit(&engine, request(&tokens("b"), 3))];
    let full = refused(request(&tokens("c"), 1));
    let Refusal::Full { running, waiting, retry_after } = full else { panic!("{full:?}") };
    assert!(running + waiting == 2 && retry_after >= Duration::from_secs(1));
    drop(taken);
    soon("there is room again", || engine.submit(request(&tokens("d"), 1)).is_ok());
}

#[test]
fn ends_are_neither_returned_nor_counted() {
    let said: String = answer(&tokens("abc"), 9).iter().filter_map(|id| char::from_u32(id - 3)).collect();
    let run = |script: Script, stop: Stop| {
        let engine = start(&script, room(1), Numerics::Fused);
        read(submit(&engine, Request { stop, ..request(&tokens("abc"), 9) }))
    };
    // The end of the sequence at the fourth token.
    let ends = || Script { fates: vec![(4, Fate::End)], ..Script::default() };
    let found = run(ends(), Stop::default());
    assert_eq!(
        (found.text.as_str(), &found.done().finish, found.done().completion_tokens),
        (&said[..3], &Finish::Eos, 3)
    );
    let ignored = run(ends(), Stop { ignore_eos: true, ..Stop::default() });
    assert_eq!((&ignored.done().finish, ignored.done().completion_tokens), (&Finish::Length, 9));
    assert!(ignored.text.starts_with(&said[..3]) && ignored.text.len() == 8, "{}", ignored.text);
    // A string across tokens.
    let string = said[4..7].to_owned();
    let found = run(Script::default(), Stop { strings: vec![string.clone()], ..Stop::default() });
    let at = said.find(&string).expect("it is there");
    assert_eq!((found.text.as_str(), &found.done().finish), (&said[..at], &Finish::Stop(string)));
    assert_eq!((found.done().completion_tokens, found.tokens.len()), (at, at));
    // A string that never comes holds nothing back in the end.
    let begun = format!("{}!", &said[7..]);
    let found = run(Script::default(), Stop { strings: vec![begun], ..Stop::default() });
    assert_eq!((found.text.as_str(), &found.done().finish), (said.as_str(), &Finish::Length));
    // A token.
    let third = tokens(&said)[2];
    let found = run(Script::default(), Stop { tokens: vec![third], ..Stop::default() });
    let at = tokens(&said).iter().position(|id| *id == third).expect("it is there");
    assert_eq!((found.text.as_str(), found.done().completion_tokens), (&said[..at], at));
    assert!(matches!(&found.done().finish, Finish::Stop(name) if name.len() == 1));
}

#[test]
fn an_answer_has_the_form_that_is_asked_for() {
    let engine = start(&Script::default(), room(2), Numerics::Fused);
    let schema = json!({
        "type": "object",
        "properties": { "name": { "enum": ["ada", "bob"] }, "old": { "type": "boolean" } },
        "required": ["name", "old"],
        "additionalProperties": false,
    });
    let answers: Vec<_> = (0..6)
        .map(|at| {
            let prompt = tokens(&"p".repeat(at + 1));
            // White space is allowed almost everywhere, and would take up most of it.
            let logit_bias = " \n\r\t".chars().map(|space| (token(space), -100.0)).collect();
            let sampling = Sampling { temperature: 1.0, seed: at as u64, logit_bias, ..Sampling::default() };
            submit(&engine, Request { shape: Shape::JsonSchema(schema.clone()), sampling, ..request(&prompt, 80) })
        })
        .collect();
    for answer_ in answers {
        let found = read(answer_);
        assert_eq!(found.done().finish, Finish::Eos, "{found:?}");
        let value: serde_json::Value = serde_json::from_str(&found.text).expect("JSON");
        assert!(["ada", "bob"].contains(&value["name"].as_str().expect("a name")) && value["old"].is_boolean());
    }
    let object = read(submit(&engine, Request { shape: Shape::JsonObject, ..request(&tokens("abc"), 12) }));
    assert!(object.text.starts_with('{'), "{}", object.text);
    let lark = Shape::Lark("start: \"yes\" | \"no\"".into());
    let found = read(submit(&engine, Request { shape: lark, ..request(&tokens("abc"), 12) }));
    assert!(["yes", "no"].contains(&found.text.as_str()) && found.done().finish == Finish::Eos, "{found:?}");
}

#[test]
fn a_slow_reader_holds_up_nobody() {
    let engine = start(&Script::default(), room(1), Numerics::Fused);
    let unread = submit(&engine, request(&tokens("abc"), 80));
    assert_eq!(read(submit(&engine, request(&tokens("xyz"), 5))).tokens, answer(&tokens("xyz"), 5));
    assert_eq!(read(unread).tokens, answer(&tokens("abc"), 80));
}

#[test]
fn ten_thousand_requests_that_nobody_waits_for_leave_nothing_behind() {
    let engine = start(&Script::default(), Room { parallel: 4, max_queue: 8, ..Room::default() }, Numerics::Fused);
    let prompt = tokens("abc");
    let kept = submit(&engine, request(&prompt, 40));
    let (mut taken, mut full) = (0, 0);
    for at in 0..10_000 {
        match engine.submit(request(&prompt[at % 3..], 90)) {
            Ok(answer_) => {
                taken += 1;
                drop(answer_);
            }
            Err(Refusal::Full { .. }) => full += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((taken + full, taken > 1000), (10_000, true), "{taken} taken, {full} refused");
    assert_eq!(read(kept).tokens, answer(&prompt, 40));
    soon("all rows are idle", || all_idle(&engine));
    assert_eq!(read(submit(&engine, request(&prompt, 5))).tokens, answer(&prompt, 5));
}

#[test]
fn an_engine_that_is_dropped_while_it_opens_ends() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let engine = Engine::over(room(1), move |progress| {
        progress.loading("something long");
        wait.recv()?;
        let dir = support::tiny()?;
        let loaded = support::loaded(dir.path(), CAPACITY, Numerics::Fused)?;
        Ok((loaded, Box::new(Scripted::new(Script::default(), 1, CAPACITY))))
    });
    soon("it says what it does", || engine.health() == Health::Loading("something long".into()));
    assert!(matches!(engine.submit(request(&[3], 1)), Err(Refusal::Loading(what)) if what == "something long"));
    engine.stop();
    assert!(matches!(engine.health(), Health::Loading(_)), "it never worked, so it is not healthy");
    go.send(()).expect("it waits");
    engine.wait();
    assert!(matches!(engine.submit(request(&[3], 1)), Err(Refusal::Draining)));
}

/// A request of a random run: its prompt, the tokens it wants, and whether it is dropped after its first piece.
#[derive(Debug, Clone)]
struct Asked {
    prompt: Vec<u32>,
    count: usize,
    dropped: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    // Few beginnings, so that much is shared.
    let prompt = (prop::sample::select(vec!["", "abcabcabcabc", "abcabcabcabcabcabcabcabcab"]), "[a-c]{1,12}");
    (prompt, 1..24usize, prop::bool::weighted(0.2)).prop_map(|((begin, end), count, dropped)| Asked {
        prompt: tokens(&format!("{begin}{end}")),
        count,
        dropped,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_runs_beside_it_an_answer_stays_the_same(
        requests in prop::collection::vec(asked(), 1..24),
        rows in 1..6usize,
        pinned in any::<bool>(),
    ) {
        let numerics = if pinned { Numerics::Pinned } else { Numerics::Fused };
        let engine = start(&Script::default(), room(rows), numerics);
        let answers: Vec<_> = requests.iter().map(|asked| submit(&engine, request(&asked.prompt, asked.count))).collect();
        for (asked, mut answer_) in requests.iter().zip(answers) {
            if asked.dropped {
                prop_assert!(answer_.wait().is_some());
            } else {
                prop_assert_eq!(read(answer_).tokens, answer(&asked.prompt, asked.count));
            }
        }
        soon("all rows are idle", || all_idle(&engine));
    }
}
