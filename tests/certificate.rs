//! The two emissions of one source agree: what the StableHLO of every golden's graphs says, read back from its text, and what MLX would
//! execute, read back from its lazy arrays, is the op list of the IR, op for op, operand for operand. That a drift is caught:
//! `mutations.rs`.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::{
    bind::{self, Bindings, Stored, StoredDtype, Weight, WeightKind},
    ir::{DType, TwinBackend},
    kernels,
};
use mgraph_runtime::model::Model;
use mgraph_tests::certificate::{Case, Emitted, difference, first_difference, terms::EQUIVALENCES};

const GOLDENS: [&str; 17] = [
    "llama",
    "llama_rope3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "mistral",
    "phi3",
    "gemma2",
    "gemma3_text",
    "bailing_moe",
    "bailing_moe_v2",
    "molmo2",
    "molmo2_olmo",
    "molmo2_yarn",
    "molmo2_plain_mean",
    "mllama",
    "qwen2_vl",
];

/// B, S, R, T of a prefill, of a decode step and of a padded batch.
const SIZES: [[usize; 4]; 3] = [[1, 12, 1, 64], [1, 1, 1, 64], [2, 12, 12, 64]];

/// Columns that share a scale: the smallest that each backend has.
const HLO_GROUP: u64 = 16;
const MLX_GROUP: u64 = 32;

/// The same model with every matrix packed that can be: 4 bits, groups of `group`.
fn packed(model: &Model, group: u64) -> Bindings {
    let packs =
        |weight: &&Weight| weight.kind == WeightKind::Matrix && weight.shape.last().is_some_and(|k| k % group == 0);
    let pieces =
        model.bindings.weights.iter().filter(packs).flat_map(|w| w.parts.iter().flat_map(|p| p.source.pieces()));
    let packs: BTreeSet<&str> = pieces.map(|piece| piece.name.as_str()).collect();
    let mut stored = BTreeMap::new();
    for (name, tensor) in model.checkpoint.tensors() {
        let shape = tensor.shape.clone();
        match (name.strip_suffix(".weight"), shape.as_slice()) {
            (Some(module), [rows @ .., k]) if packs.contains(name.as_str()) => {
                let cut = |by: u64| [rows, &[k / by]].concat();
                let side = Stored { shape: cut(group), dtype: StoredDtype::F16 };
                stored.insert(name.clone(), Stored { shape: cut(8), dtype: StoredDtype::U32 });
                stored.insert(format!("{module}.scales"), side.clone());
                stored.insert(format!("{module}.biases"), side);
            }
            _ => drop(stored.insert(name.clone(), Stored { shape, dtype: StoredDtype::F32 })),
        }
    }
    bind::bind(&model.program, &model.resolved, &stored, &|_| Some((4, group as u32))).unwrap()
}

fn graphs(model: &Model) -> impl Iterator<Item = &str> {
    let root = model.program.block(model.program.model);
    root.functions.iter().filter(|function| function.graph).map(|function| function.name.as_str())
}

fn every_case(group: u64, mut check: impl FnMut(&Case<'_>, &Model)) {
    for name in GOLDENS {
        let (model, _) = mgraph_tests::open_golden(name).unwrap();
        let packed = packed(&model, group);
        let narrow = (SIZES[0], DType::BF16);
        let calls: Vec<_> = SIZES.map(|sizes| (sizes, DType::F32)).into_iter().chain([narrow]).collect();
        for bindings in [&*model.bindings, &packed] {
            for graph in graphs(&model) {
                for &(sizes, float) in &calls {
                    for fused in [false, true] {
                        let (program, resolved) = (&*model.program, &*model.resolved);
                        check(&Case { program, resolved, bindings, graph, sizes, float, fused }, &model);
                    }
                }
            }
        }
    }
}

#[test]
fn the_emission_is_the_ir() {
    every_case(HLO_GROUP, |case, model| {
        if let Some(difference) = first_difference(case, Emitted::Hlo(model.family.hlo)).unwrap() {
            panic!("{difference}");
        }
    });
}

#[test]
fn what_mlx_executes_is_the_ir() {
    let mut twins: BTreeSet<&str> = BTreeSet::new();
    every_case(MLX_GROUP, |case, model| {
        let mlx = case.of_backend(Emitted::Mlx(model.family.mlx)).unwrap();
        if let Some(lines) = difference(&case.of_ir(TwinBackend::Mlx).unwrap(), &mlx).unwrap() {
            let Case { graph, sizes, float, fused, .. } = case;
            panic!("{} {graph} {sizes:?} {float:?} fused {fused}, {lines}", model.family.name);
        }
        let is = |path: &str| mlx.iter().any(|line| line.contains(&format!(" = {path}[")));
        let found: Vec<&str> =
            kernels::of(TwinBackend::Mlx).map(|kernel| kernel.path).filter(|path| is(path)).collect();
        assert!(case.fused || found.is_empty(), "{} has twins in mode pinned: {found:?}", model.family.name);
        twins.extend(found);
    });
    let all: BTreeSet<&str> = kernels::of(TwinBackend::Mlx).map(|kernel| kernel.path).collect();
    assert_eq!(twins, all, "the goldens take every twin in mode fused");
}

/// Large products are cut into ranges of rows, one for each core.
#[test]
fn products_in_parts_are_the_product() {
    let (model, _) = mgraph_tests::open_golden("llama").unwrap();
    let (program, resolved, bindings) = (&*model.program, &*model.resolved, &*model.bindings);
    let (sizes, float) = ([1, 512, 512, 576], DType::F32);
    let case = Case { program, resolved, bindings, graph: "forward", sizes, float, fused: false };
    assert_eq!(first_difference(&case, Emitted::Mlx(model.family.mlx)).unwrap(), None);
}

#[test]
fn the_book_lists_every_equivalence() {
    let page = std::fs::read_to_string("../book/src/parity.md").unwrap();
    for (rewrite, reason) in EQUIVALENCES {
        let row = format!("| {rewrite} | {reason} |");
        assert!(page.contains(&row), "book/src/parity.md lacks the row\n{row}");
    }
}
