//! The two emissions of one source agree: what the StableHLO of every golden's graphs says, read back from its text, and what MLX would
//! execute, read back from its lazy arrays, is the op list of the IR, op for op, operand for operand; and a single op written
//! another way is caught.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::{
    bind::{self, Bindings, Stored, StoredDtype, Weight, WeightKind},
    compile,
    ir::TwinBackend,
    kernels, prelude_sources,
    source::{PRELUDE, Sources},
};
use mgraph_runtime::model::Model;
use mgraph_tests::certificate::{Case, Emitted, difference, first_difference, listings, terms::EQUIVALENCES};

/// `x * sigmoid(x)` written as `x / (1 + exp(-x))` before the StableHLO emitter ran; see `build.rs`.
#[allow(dead_code, clippy::all)]
mod quotient_silu {
    include!(concat!(env!("OUT_DIR"), "/quotient_silu.rs"));
}

const GOLDENS: [&str; 8] =
    ["llama", "llama_rope3", "gemma3_text", "bailing_moe", "bailing_moe_v2", "molmo2", "mllama", "qwen2_vl"];

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

#[test]
fn the_emission_is_the_ir() {
    every_case(HLO_GROUP, |case, model| {
        if let Some(difference) = first_difference(case, Emitted::Hlo(model.family.hlo)).unwrap() {
            panic!("{difference}");
        }
    });
}

#[test]
fn the_quotient_form_of_silu_in_one_emitter_is_caught() {
    every_case(HLO_GROUP, |case, model| {
        if model.family.name != quotient_silu::FAMILY.name {
            return;
        }
        let difference = first_difference(case, Emitted::Hlo(quotient_silu::FAMILY.hlo)).unwrap();
        assert_eq!(difference.is_some(), case.graph == "forward", "only `forward` has a SiLU");
    });
}

#[test]
fn what_mlx_executes_is_the_ir() {
    let mut twins: BTreeSet<&str> = BTreeSet::new();
    every_case(MLX_GROUP, |case, model| {
        let (ir, mlx) = listings(case, Emitted::Mlx(model.family.mlx)).unwrap();
        if let Some(lines) = difference(&ir, &mlx).unwrap() {
            panic!("{} {} {:?} fused {}, {lines}", model.family.name, case.graph, case.sizes, case.fused);
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
    let case = Case { program, resolved, bindings, graph: "forward", sizes: [1, 512, 512, 576], fused: false };
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

/// A text of the prelude or of `llama`, another, and whether the difference shows in mode fused alone: what the faithful module makes MLX
/// execute is no longer the IR.
const DRIFTS: [(&str, &str, &str, bool); 18] = [
    ("the quotient form of SiLU", "{ x * sigmoid(x) }", "{ x / (1.0 + exp(-x)) }", false),
    ("operands of a product swapped", "{ x * sigmoid(x) }", "{ sigmoid(x) * x }", false),
    ("a sum for a mean", "{ sum(x, axis = -1) / N }", "{ sum(x, axis = -1) }", false),
    (
        "epsilon outside the root",
        "weight * F(wide * rsqrt(mean(wide * wide) + eps))",
        "weight * F(wide * (rsqrt(mean(wide * wide)) + eps))",
        false,
    ),
    (
        "another order of two products",
        "weight * F(wide * rsqrt(mean(wide * wide) + eps))",
        "F(f32(weight) * wide * rsqrt(mean(wide * wide) + eps))",
        false,
    ),
    ("softmax without its maximum", "exp(x - maximum(x, axis = -1))", "exp(x)", false),
    ("a rotation the other way", "a * F(cos) - b * F(sin), b", "a * F(cos) + b * F(sin), b", false),
    ("halves of a head swapped", "let a = x[.., 0..W];", "let a = x[.., W..2 * W];", false),
    ("the lowest score a little higher", "-3.4028234663852886e38", "-3.0e38", false),
    (
        "heads merged before they are moved",
        "reshape(transpose(x, [0, 2, 1, 3]), [B, S, H * D])",
        "reshape(reshape(x, [B, H * S * D]), [B, S, H * D])",
        false,
    ),
    (
        "values where keys are written",
        "k = update(k, new_k, positions, axis = 2)",
        "k = update(k, new_v, positions, axis = 2)",
        false,
    ),
    ("a residual forgotten", "x + mlp(post_attention_layernorm(x)) @", "mlp(post_attention_layernorm(x)) @", false),
    ("the other norm", "mlp(post_attention_layernorm(x)) @", "mlp(input_layernorm(x)) @", false),
    ("the scale of another width", "1.0 / sqrt(head_dim)", "1.0 / sqrt(hidden)", false),
    ("a twin that is not declared", "    fused mlx fast::rms_norm(x, weight, eps) within 4 ulp\n", "", true),
    ("a twin with another weight", "fast::rms_norm(x, weight, eps)", "fast::rms_norm(x, 2.0 * weight, eps)", true),
    ("a twin with another epsilon", "fast::rms_norm(x, weight, eps)", "fast::rms_norm(x, weight, eps * 2.0)", true),
    (
        "a twin without its mask",
        "fast::scaled_dot_product_attention(q, k, v, scale, mask = visible) ",
        "fast::scaled_dot_product_attention(q, k, v, scale) ",
        true,
    ),
];

#[test]
fn mlx_executing_another_text_is_caught() {
    let (model, _) = mgraph_tests::open_golden("llama").unwrap();
    let family = std::fs::read_to_string("../models/families/llama.mgraph").unwrap();
    let prelude = prelude_sources().get(PRELUDE).text.clone();
    let (resolved, bindings, sizes) = (&*model.resolved, &*model.bindings, SIZES[0]);
    for (drift, old, new, twin) in DRIFTS {
        assert_eq!(prelude.matches(old).count() + family.matches(old).count(), 1, "{drift}: a text that stands once");
        let mut sources = Sources::default();
        sources.add("prelude.mgraph", prelude.replace(old, new));
        let file = sources.add("llama.mgraph", family.replace(old, new));
        let program = compile(sources, file).unwrap_or_else(|e| panic!("{drift}: {:?}", e.diagnostics));
        for fused in [false, true] {
            let case = Case { program: &program, resolved, bindings, graph: "forward", sizes, fused };
            let found = first_difference(&case, Emitted::Mlx(model.family.mlx)).unwrap();
            // What a twin stands for is not there in mode fused.
            if fused == twin {
                assert!(found.is_some(), "{drift} is not caught");
            } else if twin {
                assert_eq!(found, None, "{drift} changes mode pinned");
            }
        }
    }
}
