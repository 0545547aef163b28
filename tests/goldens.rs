//! Every golden on every executor: all stages, prefill logits, caches, eight greedy steps, the padded batch, each within
//! ten times the reference's own noise (`goldens/README.md`).

use mgraph_runtime::{
    backend::Backend,
    parity::{self, Settings},
    session::{Float, Numerics},
};

/// With the number of rows of the table: stages, cache tensors, and decode.logits and batch.logits where there are such. A run
/// that compares less is no pass.
const GOLDENS: &[(&str, usize)] = &[
    ("llama", 12 + 6 + 2),
    ("llama_rope3", 12 + 6 + 2),
    ("gemma3_text", 23 + 2 + 2),
    ("bailing_moe", 18 + 1),
    ("bailing_moe_v2", 18 + 1),
];

fn every_golden(backend: Backend, numerics: Numerics) {
    for &(name, rows) in GOLDENS {
        let (model, golden) = mgraph_tests::open_golden(name).unwrap();
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
