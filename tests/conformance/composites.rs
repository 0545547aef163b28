//! Every op of the prelude: a call, what it takes, and how far executors may be from it.

use mgraph_dsl::ir::DType::{self, BF16, F16, F32, F64};

use super::{
    numbers::Draw,
    primitives::{SINGLE_ON_IREE, SINGLE_ON_MLX},
    row::{Of, Row, row, within},
};

const FLOATS: &[DType] = &[F32, F64, F16, BF16];
const NARROW: &[DType] = &[F32, F16, BF16];

const FEW: &str = "a few roundings, and another libm";
const ORDER: &str = "the order of the sums";

const SMALL: &[(&str, Draw)] = &[("x", Draw::Within(4.0)), ("weight", Draw::Within(2.0)), ("bias", Draw::Within(2.0))];
const ANGLES: &[(&str, Draw)] = &[("x", Draw::Within(4.0)), ("cos", Draw::Within(1.0)), ("sin", Draw::Within(1.0))];
const HEADS: &[(&str, &[usize])] = &[
    ("H", &[4, 2, 1]),
    ("G", &[2, 2, 1]),
    ("D", &[8, 5, 16]),
    ("S", &[3, 1, 2]),
    ("T", &[7, 9, 1]),
    ("B", &[2, 1, 3]),
];
const ATTENDED: &[(&str, Draw)] = &[
    ("q", Draw::Within(2.0)),
    ("k", Draw::Within(2.0)),
    ("v", Draw::Within(2.0)),
    ("scores", Draw::Within(8.0)),
    ("sinks", Draw::Within(2.0)),
];

/// A factor of them may be the difference of two numbers near 1.
const fn activation(op: &'static str, body: &'static str) -> Row {
    row(op, "x: D[A, B]", "D[A, B]", body)
        .of(FLOATS)
        .elementwise()
        .within(within(Of::Text("abs(x)"), 2.0, 3.0, 3.0), FEW)
        .refused(&[SINGLE_ON_MLX])
}

const fn gate(op: &'static str, body: &'static str, of: &'static str) -> Row {
    row(op, "gate: D[A, B], up: D[A, B]", "D[A, B]", body)
        .of(FLOATS)
        .elementwise()
        .within(within(Of::Text(of), 2.0, 3.0, 3.0), FEW)
        .refused(&[SINGLE_ON_MLX])
}

/// Load functions of the prelude, each number rounded once when it meets a tensor.
const fn load(op: &'static str, count: &'static str, body: &'static str) -> Row {
    row(op, "x: f32[A, 1]", count, body)
        .drawn(&[("x", Draw::Whole(0, 0))])
        .exact("numbers of the load stage: f64, rounded once")
}

const fn rotated(
    op: &'static str,
    takes: &'static str,
    gives: &'static str,
    body: &'static str,
    sum: &'static str,
) -> Row {
    row(op, takes, gives, body)
        .of(NARROW)
        .drawn(ANGLES)
        .within(within(Of::Text(sum), 1.5, 1.5, 1.5), "two products and a sum, which IREE may contract")
}

const ROTATED: &str = "x: D[B, H, S, 2 * W], cos: f32[B, 1, S, W], sin: f32[B, 1, S, W]";

pub fn rows() -> Vec<Row> {
    vec![
        activation("silu", "silu(x)"),
        row("relu", "x: D[A, B]", "D[A, B]", "relu(x)")
            .of(FLOATS)
            .elementwise()
            .within(within(Of::Number, 0.0, 0.0, 0.0), "the operand, or a zero of either sign"),
        row("relu_squared", "x: D[A, B]", "D[A, B]", "relu_squared(x)").of(FLOATS).elementwise().exact("one product"),
        row("gelu_tanh", "x: D[A, B]", "D[A, B]", "gelu_tanh(x)")
            .of(FLOATS)
            .refused(&[SINGLE_ON_IREE])
            .elementwise()
            .within(within(Of::Text("abs(x)"), 2.0, 3.0, 3.0), FEW),
        activation("gelu", "gelu(x)"),
        activation("gelu_quick", "gelu_quick(x)"),
        row("softcap", "x: D[A, B]", "D[A, B]", "softcap(x, 30.0)")
            .of(FLOATS)
            .refused(&[SINGLE_ON_IREE])
            .elementwise()
            .within(
                within(Of::Text("abs(softcap(x, 30.0)) + 1e-30"), 8.0, 8.0, 8.0),
                "a few roundings; below the least normal number the quotient loses digits",
            ),
        gate(
            "swiglu_clamped",
            "swiglu_clamped(gate, up, 7.0)",
            "(min(abs(gate), 7.0) + 1.0) * (min(abs(up), 7.0) + 1.0)",
        ),
        gate(
            "swiglu_oai",
            "swiglu_oai(gate, up, 1.702, 7.0)",
            "(abs(min(gate, 7.0)) + 1.0) * (min(abs(up), 7.0) + 1.0)",
        ),
        row("mean", "x: f32[A, B, N]", "f32[A, B, 1]", "mean(x)")
            .sized(&[("N", &[33, 1, 1024])])
            .drawn(SMALL)
            .within(within(Of::Sum, 1.0, 2.0, 2.0), ORDER),
        row("softmax", "x: f32[A, B, N]", "f32[A, B, N]", "softmax(x)")
            .sized(&[("N", &[33, 1, 512])])
            .drawn(&[("x", Draw::Within(8.0))])
            .within(
                within(Of::Text("softmax(x) * (8.0 + maximum(x, axis = -1) - x)"), 1.0, 1.5, 1.5),
                "the difference from the largest is rounded, and another libm",
            ),
        row("rms_norm", "x: D[A, B, N], weight: D[N]", "D[A, B, N]", "rms_norm(x, weight, 1e-5)")
            .of(NARROW)
            .sized(&[("N", &[33, 1, 576])])
            .drawn(SMALL)
            .within(within(Of::Ulp, 4.0, 8.0, 8.0), ORDER),
        row("rms_norm_offset", "x: D[A, B, N], weight: D[N]", "D[A, B, N]", "rms_norm_offset(x, weight, 1e-5)")
            .of(NARROW)
            .sized(&[("N", &[33, 1, 576])])
            .drawn(SMALL)
            .within(within(Of::Text("abs(x) * (1.0 + abs(weight))"), 4.0, 4.0, 4.0), ORDER),
        row("layer_norm", "x: D[A, B, N], weight: D[N], bias: D[N]", "D[A, B, N]", "layer_norm(x, weight, bias, 1e-5)")
            .of(NARROW)
            .sized(&[("N", &[33, 1, 576])])
            .drawn(SMALL)
            .within(within(Of::Largest, 4.0, 4.0, 4.0), ORDER),
        row("unpack", "words: u32[A, 3]", "u32[A, 32]", "unpack(words, 3, 32)").exact("bits are moved"),
        row("unpack", "words: u32[A, B]", "u32[A, 8 * B]", "unpack(words, 4, 8 * B)").exact("bits are moved"),
        row("expand", "w: Q[A, K], x: F[1, K]", "F[A, K]", "x + expand(w)")
            .of(NARROW)
            .sized(&[("K", &[64, 128])])
            .drawn(&[("w", Draw::Packed), ("x", Draw::Whole(0, 0))])
            .within(within(Of::Sum, 1.0, 1.0, 1.0), "a product and a sum, which IREE may contract"),
        row("linear", "x: F[A, B, K], w: Q[N, K]", "F[A, B, N]", "linear(x, w)")
            .of(NARROW)
            .sized(&[("K", &[64, 128]), ("N", &[5, 9])])
            .drawn(SMALL)
            .sums()
            .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row("linear_by_bytes", "x: F[A, B, K], w: Q[N, K]", "F[A, B, N]", "linear_by_bytes(x, w)")
            .of(NARROW)
            .sized(&[("K", &[64, 128]), ("N", &[5, 9])])
            .drawn(&[("w", Draw::Bytes), ("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row("linear_by_parts", "x: F[A, B, K], w: Q[N, K]", "F[A, B, N]", "linear_by_parts(x, w, 2)")
            .of(NARROW)
            .sized(&[("K", &[64, 128]), ("N", &[5, 9])])
            .drawn(&[("w", Draw::Bytes), ("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row("lookup", "w: Q[V, K], ids: i32[A, B], x: F[1]", "F[A, B, K]", "x + lookup(w, ids)")
            .of(NARROW)
            .sized(&[("K", &[64]), ("V", &[7, 1])])
            .drawn(&[("ids", Draw::Index("V")), ("x", Draw::Whole(0, 0))])
            .within(within(Of::Sum, 1.0, 1.0, 1.0), "a product and a sum, which IREE may contract"),
        row(
            "linear_routed",
            "x: F[A, R, K], w: Q[E, N, K], chosen: i32[A, R]",
            "F[A, R, N]",
            "linear_routed(x, w, chosen)",
        )
        .of(NARROW)
        .sized(&[("K", &[64, 128]), ("N", &[5, 9]), ("E", &[4, 1])])
        .drawn(&[("chosen", Draw::Index("E")), ("x", Draw::Within(4.0))])
        .sums()
        .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        load("rope_frequencies", "f32[A, 32]", "x + f32(rope_frequencies(64, 10000.0))"),
        load(
            "rope_llama3",
            "f32[A, 32]",
            "x + f32(rope_llama3(rope_frequencies(64, 500000.0), 8.0, 1.0, 4.0, 8192.0))",
        ),
        load(
            "rope_llama3_one",
            "f32[A, 3]",
            "x + f32([rope_llama3_one(f, 8.0, 1.0, 4.0, 8192.0) for f in [1.0, 0.002, 1e-5]])",
        ),
        load(
            "rope_yarn",
            "f32[A, 32]",
            "x + f32(rope_yarn(rope_frequencies(64, 1000000.0), 1000000.0, 4.0, 32.0, 1.0, \
             32768.0))",
        ),
        load(
            "rope_yarn_dim",
            "f32[A, 2]",
            "x + f32([rope_yarn_dim(64, 10000.0, turns, 4096.0) for turns in [32.0, 1.0]])",
        ),
        load("rope_yarn_one", "f32[A, 3]", "x + f32([rope_yarn_one(0.25, 4.0, ramp) for ramp in [0.0, 0.3, 1.0]])"),
        load(
            "rope_longrope",
            "f32[A, 4]",
            "x + f32(rope_longrope(rope_frequencies(8, 10000.0), [1.0, 1.5, 3.0, 64.8]))",
        ),
        load("rope_longrope_scale", "f32[A, 2]", "x + f32([rope_longrope_scale(f, 4096.0) for f in [0.5, 32.0]])"),
        row("rope_axes_interleaved", "x: i32[A, 1]", "i32[A, 64]", "x + i32(rope_axes_interleaved([24, 20, 20], 128))")
            .drawn(&[("x", Draw::Whole(0, 0))])
            .exact("integers"),
        row(
            "rope_table",
            "positions: i32[B, S]",
            "f32[B, 2, S, 8]",
            "let (c, s) = rope_table(positions, rope_frequencies(16, 10000.0));  concat([c, s], \
             axis = 1)",
        )
        .drawn(&[("positions", Draw::Whole(0, 8192))])
        .within(
            within(Of::Largest, 1024.0, 2.0, 2.0),
            "the angle is rounded to f32 first; the distance to f64 grows with it",
        ),
        row(
            "rope_table_axes",
            "positions: i32[3, B, S]",
            "f32[B, 2, S, 8]",
            "let (c, s) = rope_table_axes(positions, rope_axes_interleaved([3, 3, 2], 16), \
             rope_frequencies(16, 10000.0));  concat([c, s], axis = 1)",
        )
        .drawn(&[("positions", Draw::Whole(0, 8192))])
        .within(
            within(Of::Largest, 1024.0, 2.0, 2.0),
            "the angle is rounded to f32 first; the distance to f64 grows with it",
        ),
        rotated(
            "rope",
            ROTATED,
            "D[B, H, S, 2 * W]",
            "rope(x, cos, sin)",
            "let a = abs(x[.., 0..W]);  let b = abs(x[.., W..2 * W]);  let c = D(abs(cos));  let \
             s = D(abs(sin));  concat([a * c + b * s, b * c + a * s], axis = -1)",
        ),
        rotated(
            "rope_by_halves",
            ROTATED,
            "D[B, H, S, 2 * W]",
            "rope_by_halves(x, cos, sin)",
            "let a = abs(x[.., 0..W]);  let b = abs(x[.., W..2 * W]);  let c = D(abs(cos));  let \
             s = D(abs(sin));  concat([a * c + b * s, b * c + a * s], axis = -1)",
        ),
        rotated(
            "rope_interleaved",
            ROTATED,
            "D[B, H, S, 2 * W]",
            "rope_interleaved(x, cos, sin)",
            "let t = abs(reshape(x, [B, H, S, W, 2]));  let a = reshape(t[.., 0], [B, H, S, W, \
             1]);  let b = reshape(t[.., 1], [B, H, S, W, 1]);  let c = D(abs(reshape(cos, [B, 1, \
             S, W, 1])));  let s = D(abs(reshape(sin, [B, 1, S, W, 1])));  reshape(concat([a * c \
             + b * s, b * c + a * s], axis = -1), [B, H, S, 2 * W])",
        ),
        rotated(
            "rope_partial",
            "x: D[B, H, S, 9], cos: f32[B, 1, S, 3], sin: f32[B, 1, S, 3]",
            "D[B, H, S, 9]",
            "rope_partial(x, cos, sin)",
            "let a = abs(x[.., 0..3]);  let b = abs(x[.., 3..6]);  let c = D(abs(cos));  let s = \
             D(abs(sin));  concat([a * c + b * s, b * c + a * s, abs(x[.., 6..9])], axis = -1)",
        ),
        row("split_heads", "x: D[B, S, 12]", "D[B, 3, S, 4]", "split_heads(x, 3, 4)").of(FLOATS).moved(),
        row("merge_heads", "x: D[B, H, S, W]", "D[B, S, H * W]", "merge_heads(x)").of(FLOATS).moved(),
        row("group_heads", "x: D[B, 6, S, W]", "D[B, 2, 3 * S, W]", "group_heads(x, 2)").of(FLOATS).moved(),
        row("ungroup_heads", "x: D[B, 2, R, W]", "D[B, 6, 2 * R / 6, W]", "ungroup_heads(x, 6)")
            .of(FLOATS)
            .sized(&[("R", &[6, 3])])
            .moved(),
        row(
            "attention_scores",
            "q: D[B, H, S, D], k: D[B, G, T, D]",
            "f32[B, H, S, T]",
            "attention_scores(q, k, 0.25)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Sum, 2.0, 2.0, 2.0), ORDER),
        row(
            "attention_values",
            "scores: f32[B, H, S, T], v: D[B, G, T, D]",
            "D[B, H, S, D]",
            "attention_values(scores, v)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Text("attention_values(scores, abs(v))"), 4.0, 8.0, 8.0), ORDER),
        row("hide", "scores: f32[B, H, S, T], visible: bool[B, S, T]", "f32[B, H, S, T]", "hide(scores, visible)")
            .moved(),
        row(
            "attention",
            "q: D[B, H, S, D], k: D[B, G, T, D], v: D[B, G, T, D]",
            "D[B, H, S, D]",
            "attention(q, k, v, 0.25)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Text("attention(q, k, abs(v), 0.25)"), 16.0, 16.0, 16.0), ORDER),
        row(
            "masked_attention",
            "q: D[B, H, S, D], k: D[B, G, T, D], v: D[B, G, T, D], visible: bool[B, S, T]",
            "D[B, H, S, D]",
            "masked_attention(q, k, v, visible, 0.25)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Text("masked_attention(q, k, abs(v), visible, 0.25)"), 16.0, 16.0, 16.0), ORDER),
        row(
            "softcapped_attention",
            "q: D[B, H, S, D], k: D[B, G, T, D], v: D[B, G, T, D], visible: bool[B, S, T]",
            "D[B, H, S, D]",
            "softcapped_attention(q, k, v, visible, 0.25, 5.0)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Text("softcapped_attention(q, k, abs(v), visible, 0.25, 5.0)"), 16.0, 16.0, 16.0), ORDER),
        row(
            "sink_attention",
            "q: D[B, H, S, D], k: D[B, G, T, D], v: D[B, G, T, D], visible: bool[B, S, T], \
             sinks: D[H]",
            "D[B, H, S, D]",
            "sink_attention(q, k, v, visible, sinks, 0.25)",
        )
        .of(NARROW)
        .sized(HEADS)
        .drawn(ATTENDED)
        .sums()
        .within(within(Of::Text("sink_attention(q, k, abs(v), visible, sinks, 0.25)"), 16.0, 16.0, 16.0), ORDER),
        row(
            "softmax_with_sink",
            "scores: f32[B, H, S, T], sinks: f32[H]",
            "f32[B, H, S, T]",
            "softmax_with_sink(scores, sinks)",
        )
        .sized(HEADS)
        .drawn(ATTENDED)
        .within(
            within(
                Of::Text(
                    "softmax_with_sink(scores, sinks) * (8.0 + maximum(abs(scores), axis = -1) + \
             abs(scores))",
                ),
                1.0,
                1.5,
                1.5,
            ),
            "the difference from the largest is rounded, and another libm",
        ),
        row("gate_heads", "x: D[B, H, S, W], gate: D[B, S, H]", "D[B, H, S, W]", "gate_heads(x, gate)")
            .of(NARROW)
            .drawn(&[("x", Draw::Within(4.0)), ("gate", Draw::Within(8.0))])
            .within(within(Of::Ulp, 4.0, 9.0, 9.0), FEW),
        row("causal", "positions: i32[B, S]", "bool[B, S, 9]", "causal(positions, 9)")
            .drawn(&[("positions", Draw::Whole(0, 9))])
            .exact("integers or bools"),
        row("recent", "positions: i32[B, S]", "bool[B, S, 9]", "recent(positions, 9, 3)")
            .drawn(&[("positions", Draw::Whole(0, 9))])
            .exact("integers or bools"),
        row("same_span", "queries: i32[B, S], keys: i32[B, T]", "bool[B, S, T]", "same_span(queries, keys)")
            .drawn(&[("queries", Draw::Whole(0, 3)), ("keys", Draw::Whole(0, 3))])
            .exact("integers or bools"),
        row("keep_best_groups", "scores: f32[A, 12]", "f32[A, 12]", "keep_best_groups(scores, 4, 2)")
            .drawn(&[("scores", Draw::Whole(-9, 9))])
            .exact("whole numbers, whose sums are exact"),
        row("patchify", "pixels: D[N, C, 6, 4]", "D[N, 6, C * 2 * 2]", "patchify(pixels, 2)").of(FLOATS).moved(),
        row("mean_pool", "x: D[N, 24, W]", "D[N, 6, W]", "mean_pool(x, 6, 4, 2)")
            .of(NARROW)
            .drawn(SMALL)
            .within(within(Of::Sum, 1.5, 1.5, 1.5), ORDER),
        row("masked_mean", "x: D[N, P, W], valid: bool[N, P]", "D[N, 1, W]", "masked_mean(x, valid)")
            .of(NARROW)
            .drawn(SMALL)
            .within(within(Of::Sum, 1.5, 1.5, 1.5), ORDER),
        row("pixel_shuffle", "x: D[N, 24, W]", "D[N, 6, 2 * 2 * W]", "pixel_shuffle(x, 6, 4, 2)").of(FLOATS).moved(),
        row("rows_at", "x: D[B, S, N], wanted: i32[B, R]", "D[B, R, N]", "rows_at(x, wanted)")
            .of(FLOATS)
            .sized(&[("S", &[5, 1])])
            .drawn(&[("wanted", Draw::Index("S"))])
            .moved(),
        row("features_at", "features: D[M, N], rows: i32[B, S]", "D[B, S, N]", "features_at(features, rows)")
            .of(FLOATS)
            .sized(&[("M", &[5, 1])])
            .drawn(&[("rows", Draw::IndexOrNone("M"))])
            .moved(),
        // The numbers of `rope_longrope_scale`'s row, so its module too, which `tests/stablehlo` has stored. Last, for what a row
        // draws depends on its place.
        load("rope_yarn_scale", "f32[A, 2]", "x + f32([rope_yarn_scale(f, 0.5157069342877273) for f in [0.5, 40.0]])"),
        row("linear_by_lanes", "x: F[A, B, K], w: Q[N, K]", "F[A, B, N]", "linear_by_lanes(x, w)")
            .of(NARROW)
            .sized(&[("K", &[64, 128]), ("N", &[5, 9])])
            .drawn(&[("w", Draw::Bytes), ("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row("linear_by_pieces", "x: F[A, B, K], w: Q[N, K]", "F[A, B, N]", "linear_by_pieces(x, w, 3)")
            .of(NARROW)
            .sized(&[("K", &[64, 128]), ("N", &[6, 9])])
            .drawn(&[("w", Draw::Bytes), ("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row(
            "linear_of_bytes",
            "x: f32[A, 2, 32], bytes: u8[N, 2, 16], scales: F[N, 2, 1], biases: F[N, 2, 1]",
            "f32[A, N]",
            "linear_of_bytes(x, bytes, scales, biases, 4)",
        )
        .of(NARROW)
        .drawn(&[
            ("x", Draw::Within(4.0)),
            ("bytes", Draw::Whole(0, 256)),
            ("scales", Draw::Within(4.0)),
            ("biases", Draw::Within(4.0)),
        ])
        .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
        row(
            "linear_routed_in_place",
            "x: F[A, R, K], w: Q[E, N, K], chosen: i32[A, R]",
            "F[A, R, N]",
            "linear_routed_in_place(x, w, chosen)",
        )
        .of(NARROW)
        .sized(&[("K", &[64, 128]), ("N", &[5, 9]), ("E", &[4, 1])])
        .drawn(&[("chosen", Draw::Index("E")), ("x", Draw::Within(4.0))])
        .within(within(Of::Sum, 1.5, 2.0, 2.0), ORDER),
    ]
}
