//! What only the IREE session has: compiled shapes that calls are filled up to, states of a fixed size, and graphs kept between
//! starts.

use std::path::Path;

use mgraph_runtime::{
    hlo::{HloSession, artifact::Artifacts},
    probes::Probes,
    session::{Batch, Float, Numerics, Session, SessionOptions},
    tensor::Tensor,
};

fn session(capacity: usize, max_chunk: usize, folder: &Path) -> HloSession {
    let (model, _) = mgraph_tests::open_golden("llama").unwrap();
    let options = SessionOptions {
        rows: 1,
        capacity,
        max_chunk,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    HloSession::with_artifacts(&model, options, Artifacts::in_folder(folder)).unwrap()
}

fn tokens(count: usize) -> Vec<i32> {
    (0..count as i32).map(|i| (i * 37 + 11) % 131).collect()
}

/// All tokens in chunks of the session's widths; the logits of the last.
fn feed(session: &mut HloSession, tokens: &[i32], chunk: usize) -> Tensor {
    let mut logits = None;
    for (i, piece) in tokens.chunks(chunk).enumerate() {
        let width = session.width(piece.len());
        logits = Some(session.step(&Batch::row(piece, i * chunk, width), None).unwrap());
    }
    logits.unwrap()
}

#[track_caller]
fn close(x: &Tensor, y: &Tensor) {
    assert_eq!(x.shape, y.shape);
    for (x, y) in x.to_f32().iter().zip(y.to_f32()) {
        assert!((x - y).abs() < 1e-4, "{x} and {y}");
    }
}

/// 250 tokens in chunks of 10, each filled up to 16: the last would end at 266 where states hold 256.
#[test]
fn fill_up_past_the_end_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(256, 16, folder.path());
    assert_eq!(session.width(10), 16);
    let tokens = tokens(253);
    let chunked = feed(&mut session, &tokens, 10);
    session.reset().unwrap();
    let single = feed(&mut session, &tokens, 1);
    close(&chunked, &single);

    let past = session.step(&Batch::row(&tokens[..10], 250, 16), None).unwrap_err().to_string();
    assert!(past.contains("--ctx-size"), "{past}");
}

#[test]
fn a_second_start_compiles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let prepare = || {
        let mut reports = Vec::new();
        let mut session = session(64, 16, folder.path());
        session.prepare(&[(1, 1), (1, 16)], &mut |report| reports.push(report.to_owned())).unwrap();
        (feed(&mut session, &tokens(20), 16), reports)
    };
    let (first, reports) = prepare();
    assert!(reports.iter().filter(|r| r.starts_with("compiling step")).count() == 2, "{reports:?}");
    let (second, reports) = prepare();
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(first, second);
}

#[test]
fn widths_are_few_and_end_at_the_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let wide = session(512, 512, folder.path());
    assert_eq!([1, 2, 16, 17, 64, 65, 128, 500].map(|n| wide.width(n)), [1, 16, 16, 64, 64, 128, 128, 128]);
    let narrow = session(512, 20, folder.path());
    assert_eq!([1, 16, 17, 500].map(|n| narrow.width(n)), [1, 16, 20, 20]);
}

#[test]
fn a_state_shows_the_positions_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(64, 16, folder.path());
    feed(&mut session, &tokens(16), 16);
    let path = "layers.0.self_attn.cache.k";
    let state = session.state(path).unwrap();
    assert_eq!(state.shape, [1, 2, 16, 16]);
    assert!(state.to_f32().iter().any(|v| *v != 0.0));
    session.reset().unwrap();
    assert_eq!(session.state(path).unwrap().shape, [1, 2, 0, 16]);
    assert!(session.state("no.such").unwrap_err().to_string().contains("has no state no.such"));
}
