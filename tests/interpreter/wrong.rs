//! Families written wrong in the ways that ports go wrong: each is caught, and at the stage where it goes wrong.

use mgraph_dsl::{
    interpret::Precision,
    ir::DType,
    trace::{Sizes, trace},
};

use crate::{
    Case,
    fixture::{Edit, Golden},
    request::{Request, fed},
    stages::first_difference,
};

struct Wrong {
    what: &'static str,
    case: Case,
    from: &'static str,
    to: &'static str,
    /// The first stage that differs.
    stage: &'static str,
}

const fn wrong(case: Case, what: &'static str, from: &'static str, to: &'static str, stage: &'static str) -> Wrong {
    Wrong { what, case, from, to, stage }
}

const LLAMA: Case = Case { golden: "llama", family: "llama" };
const LLAMA_ROPE3: Case = Case { golden: "llama_rope3", family: "llama" };
const GEMMA3: Case = Case { golden: "gemma3_text", family: "gemma3_text" };

const BAILING: Case = Case { golden: "bailing_moe", family: "bailing_moe" };
const BAILING_V2: Case = Case { golden: "bailing_moe_v2", family: "bailing_moe" };
const QWEN2_VL: Case = Case { golden: "qwen2_vl", family: "qwen2_vl" };

const MOLMO2: Case = Case { golden: "molmo2", family: "molmo2" };
const MLLAMA: Case = Case { golden: "mllama", family: "mllama" };

const WRONG: &[Wrong] = &[
    wrong(
        LLAMA,
        "another epsilon in the norms",
        "eps:       float = \"rms_norm_eps\"",
        "eps: float = \"epsilon\" else 1e-6",
        "layer.0.attn",
    ),
    wrong(LLAMA_ROPE3, "frequencies left as they are", "frequencies);", "plain);", "layer.0.attn"),
    wrong(GEMMA3, "embeddings that keep their size", " * sqrt(hidden)", "", "embed"),
    wrong(GEMMA3, "a gain of `weight`, not `1 + weight`", "(1.0 + f32(weight))", "f32(weight)", "layer.0.attn"),
    wrong(GEMMA3, "the exact GELU for the tanh form", "gelu_tanh(gate_proj(x))", "gelu(gate_proj(x))", "layer.0.mlp"),
    wrong(
        GEMMA3,
        "no sliding window",
        "let near = past & recent(positions, T, window)",
        "let near = past",
        "layer.0.attn",
    ),
    wrong(
        GEMMA3,
        "a window one token wider",
        "recent(positions, T, window)",
        "recent(positions, T, window + 1)",
        "layer.0.attn",
    ),
    wrong(
        GEMMA3,
        "one rotary base for both kinds of layer",
        "let local_frequencies = rope_frequencies(head_dim, local)",
        "let local_frequencies = far",
        "layer.0.attn",
    ),
    wrong(BAILING, "a head as it is stored", "dot(x, unit)", "dot(x, raw_head)", "logits"),
    wrong(
        BAILING,
        "shares that do not sum to one",
        "if renormalise & per_token > 1",
        "if per_token > 99",
        "layer.1.topk_weights",
    ),
    wrong(BAILING_V2, "the whole head turned", "int(hidden / heads * partial)", "int(hidden / heads)", "layer.0.attn"),
    wrong(
        BAILING_V2,
        "softmax scores for sigmoid ones",
        "scoring == \"sigmoid\"",
        "scoring == \"softmax\"",
        "layer.1.topk_experts",
    ),
    wrong(BAILING_V2, "shares of the biased scores", "take_along(score,", "take_along(ranked,", "layer.1.topk_weights"),
    wrong(
        BAILING_V2,
        "experts chosen without their bias",
        "if nudged { score + expert_bias }",
        "if nudged { score + 0.0 * expert_bias }",
        "layer.1.topk_experts",
    ),
    wrong(BAILING_V2, "groups that do not matter", "if groups > 1 {", "if groups > 99 {", "layer.1.topk_experts"),
    wrong(BAILING_V2, "shares without their factor", "F(share * gain)", "F(share)", "layer.1.topk_weights"),
    wrong(QWEN2_VL, "the tanh GELU for the quick one", "gelu_quick(fc1(x))", "gelu_tanh(fc1(x))", "vision.block.0"),
    wrong(
        QWEN2_VL,
        "rows and columns exchanged",
        "concat([row_cos, column_cos]",
        "concat([column_cos, row_cos]",
        "vision.block.0.attn",
    ),
    wrong(
        QWEN2_VL,
        "patches that see their own row alone",
        "reshape(picture, [N, 1]) == picture",
        "reshape(grid[0, _], [N, 1]) == grid[0, _]",
        "vision.block.0.attn",
    ),
    wrong(QWEN2_VL, "one rotary axis for all", "axis % 3", "axis * 0", "text.layer.0.attn"),
    wrong(
        QWEN2_VL,
        "features added to the embeddings",
        "features_at(features, feature_rows), x)",
        "x + features_at(features, feature_rows), x)",
        "text.merged",
    ),
    wrong(MOLMO2, "the exact GELU for the tanh form", "gelu_tanh(", "gelu(", "vision.block.0.mlp"),
    wrong(
        MOLMO2,
        "taps in ascending order",
        "seen[t]",
        "seen[adapter.taps[len(adapter.taps) - 1 - n]]",
        "vision.select.0",
    ),
    wrong(MOLMO2, "taps that count from the stored depth", "[index(vit.depth)]", "[index(5)]", "vision.block.3.attn"),
    wrong(MOLMO2, "a mean over unused places too", "F(max(count, 1))", "F(max(count, 0) + 4 - count)", "adapter.query"),
    wrong(MOLMO2, "gate and up exchanged", "let (up, gate) = split", "let (gate, up) = split", "text.layer.0.mlp"),
    wrong(MOLMO2, "features in the place of embeddings", "x + features_at(", "features_at(", "text.merged"),
    wrong(
        MOLMO2,
        "a causal mask alone",
        " | same_span(spans, spans_so_far(spans, positions))",
        "",
        "text.layer.0.attn",
    ),
    wrong(MLLAMA, "the tanh GELU for the exact form", "gelu(fc1(x))", "gelu_tanh(fc1(x))", "vision.layer.0"),
    wrong(
        MLLAMA,
        "padding hidden from every patch",
        "padded, 1]) | reshape(real",
        "padded, 1]) & reshape(real",
        "vision.layer.0.attn",
    ),
    wrong(
        MLLAMA,
        "patches before their class token",
        "concat([class, x], axis = 2)",
        "concat([x, class], axis = 2)",
        "vision.pos_added",
    ),
    wrong(MLLAMA, "the taps one after the other", "vit.hidden, 1]) for t", "1, vit.hidden]) for t", "vision.output"),
    wrong(
        MLLAMA,
        "a word before its picture that sees none",
        "(tile_sight | !looks) & present",
        "tile_sight & present",
        "text.layer.1.attn",
    ),
    wrong(MLLAMA, "an MLP that words before their picture take part in", "(F(looks) * y)", "y", "text.layer.1"),
    wrong(MLLAMA, "gates that stay open", "tanh(cross_attn_attn_gate) * y", "y", "text.layer.1.mlp"),
];

#[test]
fn is_caught_where_it_goes_wrong() {
    let mut told = Vec::new();
    for Wrong { what, case, from, to, stage } in WRONG {
        let golden = Golden::edited(case.golden, case.family, &[Edit { from, to }]);
        let (tokens, pictures) = fed(&golden, None);
        let mut request = Request::new(&golden, Precision::Single, DType::F32, pictures);
        request.forward(&tokens, 0..tokens.len());
        match first_difference(&golden, &request, None) {
            Some(found) if found.stage == *stage => {}
            Some(found) => {
                told.push(format!("{}, {what}: first at {}, not {stage}: {}", case.golden, found.stage, found.what))
            }
            None => told.push(format!("{}, {what}: passes", case.golden)),
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

/// `x / (1 + exp(-x))` differs from `x * sigmoid(x)` in the last bits alone: no stage of a golden tells (an accelerator's gate did,
/// after 13 minutes). The list of ops does, before anything runs.
#[test]
fn the_quotient_form_of_silu_is_another_list_of_ops() {
    let quotient = [Edit { from: "{ x * sigmoid(x) }", to: "{ x / (1.0 + exp(-x)) }" }];
    let traces = [&[], &quotient[..]].map(|edits| {
        let golden = Golden::edited(LLAMA.golden, LLAMA.family, edits);
        let (tokens, pictures) = fed(&golden, None);
        let mut request = Request::new(&golden, Precision::Single, DType::F32, pictures);
        request.forward(&tokens, 0..tokens.len());
        assert!(first_difference(&golden, &request, None).is_none());
        let inputs =
            [("x", DType::F, &[1, 12, 96][..]), ("positions", DType::I32, &[1, 12]), ("wanted", DType::I32, &[1, 1])];
        let sizes = Sizes { inputs: &inputs, rows: 1, positions: 16, family: DType::F32, twins: None };
        let trace = trace(&golden.program, &golden.resolved, &golden.bindings, "forward", &sizes).expect("a trace");
        trace.nodes.into_iter().map(|node| node.what).collect::<Vec<_>>()
    });
    assert_ne!(traces[0], traces[1]);
}
