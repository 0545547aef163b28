//! Families written wrong in the ways that ports go wrong: each is caught, and at the stage where it goes wrong.

use mgraph_dsl::{interpret::Precision, ir::DType};

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

const LLAMA: Case = Case { golden: "llama", family: "llama", processor: None };
const LLAMA_ROPE3: Case = Case { golden: "llama_rope3", family: "llama", processor: None };
const GEMMA3: Case = Case { golden: "gemma3_text", family: "gemma3_text", processor: None };

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
];

#[test]
fn is_caught_where_it_goes_wrong() {
    let mut told = Vec::new();
    for Wrong { what, case, from, to, stage } in WRONG {
        let golden = Golden::edited(case.golden, case.family, &[Edit { from, to }]);
        let (tokens, pictures) = fed(&golden, case.processor, None);
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
