//! The two emissions of one source agree: what the StableHLO of every golden's graphs says, read back from its text, is
//! the op list of the IR, op for op, operand for operand; and a single op written another way is caught.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::bind::{self, Bindings, Stored, StoredDtype, Weight, WeightKind};
use mgraph_runtime::{family::HloEmitter, model::Model};
use mgraph_tests::certificate::{Case, listings};

/// `x * sigmoid(x)` written as `x / (1 + exp(-x))` before the StableHLO emitter ran; see `build.rs`.
#[allow(dead_code, clippy::all)]
mod quotient_silu {
    include!(concat!(env!("OUT_DIR"), "/quotient_silu.rs"));
}

const GOLDENS: [&str; 8] =
    ["llama", "llama_rope3", "gemma3_text", "bailing_moe", "bailing_moe_v2", "molmo2", "mllama", "qwen2_vl"];

/// B, S, R, T of a prefill, of a decode step and of a padded batch.
const SIZES: [[usize; 4]; 3] = [[1, 12, 1, 64], [1, 1, 1, 64], [2, 12, 12, 64]];

/// The same model with every matrix packed that can be: 4 bits, groups of 16.
fn packed(model: &Model) -> Bindings {
    let packs =
        |weight: &&Weight| weight.kind == WeightKind::Matrix && weight.shape.last().is_some_and(|k| k % 16 == 0);
    let pieces =
        model.bindings.weights.iter().filter(packs).flat_map(|w| w.parts.iter().flat_map(|p| p.source.pieces()));
    let packs: BTreeSet<&str> = pieces.map(|piece| piece.name.as_str()).collect();
    let mut stored = BTreeMap::new();
    for (name, tensor) in model.checkpoint.tensors() {
        let shape = tensor.shape.clone();
        match (name.strip_suffix(".weight"), shape.as_slice()) {
            (Some(module), [rows @ .., k]) if packs.contains(name.as_str()) => {
                let cut = |by: u64| [rows, &[k / by]].concat();
                let side = Stored { shape: cut(16), dtype: StoredDtype::F16 };
                stored.insert(name.clone(), Stored { shape: cut(8), dtype: StoredDtype::U32 });
                stored.insert(format!("{module}.scales"), side.clone());
                stored.insert(format!("{module}.biases"), side);
            }
            _ => drop(stored.insert(name.clone(), Stored { shape, dtype: StoredDtype::F32 })),
        }
    }
    bind::bind(&model.program, &model.resolved, &stored, &|_| Some((4, 16))).unwrap()
}

fn graphs(model: &Model) -> impl Iterator<Item = &str> {
    let root = model.program.block(model.program.model);
    root.functions.iter().filter(|function| function.graph).map(|function| function.name.as_str())
}

fn every_case(mut check: impl FnMut(&Case<'_>, &Model)) {
    for name in GOLDENS {
        let (model, _) = mgraph_tests::open_golden(name).unwrap();
        let packed = packed(&model);
        for bindings in [&*model.bindings, &packed] {
            for graph in graphs(&model) {
                for sizes in SIZES {
                    for fused in [false, true] {
                        let (program, resolved) = (&*model.program, &*model.resolved);
                        check(&Case { program, resolved, bindings, graph, sizes, fused }, &model);
                    }
                }
            }
        }
    }
}

fn first_difference(case: &Case<'_>, emitter: HloEmitter) -> Option<String> {
    let (ir, emitted) = listings(case, emitter).unwrap();
    assert!(ir.len() >= 3, "a certificate over nothing");
    let at = (0..ir.len().max(emitted.len())).find(|i| ir.get(*i) != emitted.get(*i))?;
    let side = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(ends)".into());
    let Case { graph, sizes, fused, .. } = case;
    Some(format!(
        "{graph} {sizes:?} fused {fused}, line {at}:\n  IR       {}\n  emitted  {}",
        side(&ir),
        side(&emitted)
    ))
}

#[test]
fn the_emission_is_the_ir() {
    every_case(|case, model| {
        if let Some(difference) = first_difference(case, model.family.hlo) {
            panic!("{difference}");
        }
    });
}

#[test]
fn the_quotient_form_of_silu_in_one_emitter_is_caught() {
    every_case(|case, model| {
        if model.family.name != quotient_silu::FAMILY.name {
            return;
        }
        let difference = first_difference(case, quotient_silu::FAMILY.hlo);
        assert_eq!(difference.is_some(), case.graph == "forward", "only `forward` has a SiLU");
    });
}
