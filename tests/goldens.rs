//! Every golden on every executor: all stages, prefill logits, caches, eight greedy steps, the padded batch, each within
//! ten times the reference's own noise (`goldens/README.md`).

use mgraph_runtime::{
    backend::{self, Backend},
    parity::{self, Settings, Verdict, compare::compare},
    session::{Batch, Float, Numerics, SessionOptions},
};

/// With its variant, and the number of rows of the table: stages, cache tensors, and decode.logits and batch.logits where there are such. A run
/// that compares less is no pass.
const GOLDENS: &[(&str, Option<&str>, usize)] = &[
    ("llama", None, 12 + 6 + 2),
    ("llama_rope3", None, 12 + 6 + 2),
    ("gemma3_text", None, 23 + 2 + 2),
    ("bailing_moe", None, 18 + 1),
    ("bailing_moe_v2", None, 18 + 1),
    ("molmo2", Some("text_only"), 6 + 1),
    ("qwen2_vl", Some("words_only"), 6 + 1),
];

fn every_golden(backend: Backend, numerics: Numerics) {
    for &(name, variant, rows) in GOLDENS {
        let (model, mut golden) = mgraph_tests::open_golden(name).unwrap();
        if let Some(variant) = variant {
            golden = golden.variant(variant).unwrap();
        }
        let mut stages = 0;
        let mut failed = Vec::new();
        let settings = Settings { backend, numerics, dtype: Float::F32 };
        let passed = parity::run(&model, &golden, settings, &mut |row| {
            stages += 1;
            if !row.passed() {
                failed.push(format!("{row:?}"));
            }
        })
        .unwrap();
        assert!(passed, "{name} on {backend}:\n{}", failed.join("\n"));
        assert_eq!(stages, rows, "{name} on {backend}");
    }
}

#[test]
fn reference() {
    every_golden(Backend::Reference, Numerics::Pinned);
}

#[test]
fn mlx_pinned() {
    every_golden(Backend::Mlx, Numerics::Pinned);
}

#[test]
fn mlx_fused() {
    every_golden(Backend::Mlx, Numerics::Fused);
}

#[test]
fn iree_pinned() {
    every_golden(Backend::Iree, Numerics::Pinned);
}

#[test]
fn iree_fused() {
    every_golden(Backend::Iree, Numerics::Fused);
}

/// IREE makes the reference numbers: on the golden's inputs its noise bounds MLX too.
#[test]
fn mlx_beside_iree() {
    let (model, golden) = mgraph_tests::open_golden("gemma3_text").unwrap();
    let settings = |backend| Settings { backend, numerics: Numerics::Pinned, dtype: Float::F32 };
    let made = parity::made_by(&model, &golden, settings(Backend::Iree), 4, &|_| ()).unwrap();
    let mut verdicts = Vec::new();
    parity::run(&model, &made, settings(Backend::Mlx), &mut |row| verdicts.push((row.stage.clone(), row.verdict())))
        .unwrap();
    let (states, stages): (Vec<_>, Vec<_>) = verdicts.into_iter().partition(|(stage, _)| stage.starts_with("state."));
    assert_eq!(states.len(), model.states().len());
    assert!(states.iter().all(|(_, verdict)| *verdict == Verdict::Unjudged), "{states:?}");
    assert_eq!(stages.len(), 23 + 1);
    assert!(stages.iter().all(|(_, verdict)| *verdict == Verdict::Within), "{stages:?}");
}

/// No reference ran mllama on words alone; the backends agree with the interpreter on them, within the noise of its logits.
#[test]
fn mllama_on_words_alone() {
    let (model, golden) = mgraph_tests::open_golden("mllama").unwrap();
    let bound = golden.bound("logits").unwrap();
    let tokens: Vec<i32> = (3..12).collect();
    let width = tokens.len();
    let wanted: Vec<i32> = (0..width as i32).collect();
    let batch = Batch { wanted, ..Batch::row(&tokens, 0, width) };
    let logits = |backend, numerics| {
        let options =
            SessionOptions { rows: 1, capacity: 16, max_chunk: 16, dtype: Float::F32, numerics, probes: false };
        let mut session = backend::open(backend, &model, options).unwrap();
        session.step(&batch, None).unwrap()
    };
    let reference = logits(Backend::Reference, Numerics::Pinned);
    assert!(reference.to_f64().iter().all(|x| x.is_finite()));
    for backend in [Backend::Mlx, Backend::Iree] {
        for numerics in [Numerics::Pinned, Numerics::Fused] {
            let difference = compare(&logits(backend, numerics), &reference, bound).unwrap();
            assert!(difference.within(), "{backend} {numerics:?}: {difference:?}");
        }
    }
}
