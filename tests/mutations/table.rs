//! The mutations: what one emitter is told to do otherwise, while the other stays faithful. Read by the build script,
//! which makes them (`schemata.rs`), and by the test, which counts on each being caught (`../mutations.rs`).

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Emitter {
    Mlx,
    Hlo,
}

/// A mistake that somebody could make.
pub struct Mutation {
    pub name: &'static str,
    pub change: Change,
}

pub enum Change {
    /// Another text of `mutants.mgraph` or of the prelude, for each emitter in turn. `from` stands there once.
    Source { from: &'static str, to: &'static str },
    /// Another kernel, or other arguments of one; MLX alone has kernels.
    Twin { from: &'static str, to: &'static str },
    /// Other Rust than the emitter wrote in one function, for what the language cannot say.
    Emission {
        function: &'static str,
        mlx: Option<(&'static str, &'static str)>,
        hlo: Option<(&'static str, &'static str)>,
    },
}

const fn source(name: &'static str, from: &'static str, to: &'static str) -> Mutation {
    Mutation { name, change: Change::Source { from, to } }
}

const fn twin(name: &'static str, from: &'static str, to: &'static str) -> Mutation {
    Mutation { name, change: Change::Twin { from, to } }
}

const fn emission(
    name: &'static str,
    function: &'static str,
    mlx: Option<(&'static str, &'static str)>,
    hlo: Option<(&'static str, &'static str)>,
) -> Mutation {
    Mutation { name, change: Change::Emission { function, mlx, hlo } }
}

pub const MUTATIONS: &[Mutation] = &[
    // Activations.
    source("quotient SiLU", "{ x * sigmoid(x) }", "{ x / (1.0 + exp(-x)) }"),
    source(
        "erf for tanh in GELU",
        "1.0 + tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x)))",
        "1.0 + erf(x * 0.7071067811865476)",
    ),
    source("constant rounded to bf16", "0.044715 * (x * x * x)", "0.044677734375 * (x * x * x)"),
    source("reassociated product", "0.044715 * (x * x * x)", "0.044715 * (x * (x * x))"),
    source(
        "distributed product",
        "0.7978845608028654 * (x + 0.044715 * (x * x * x))",
        "0.7978845608028654 * x + 0.7978845608028654 * (0.044715 * (x * x * x))",
    ),
    source("clamp for soft cap", "{ tanh(x / cap) * cap }", "{ min(max(x, -cap), cap) }"),
    source(
        "gate and up swapped",
        "down_proj(gelu_tanh(gate_proj(x)) * up_proj(x))",
        "down_proj(gelu_tanh(up_proj(x)) * gate_proj(x))",
    ),
    // Norms and reductions.
    source("wrong eps", "{ rms_norm(x, weight, eps) }", "{ rms_norm(x, weight, eps + 0.00001) }"),
    source("sum for mean", "{ sum(x, axis = -1) / N }", "{ sum(x, axis = -1) }"),
    source("variance about zero", "mean(centred * centred)", "mean(wide * wide)"),
    source(
        "cast to F after the gain",
        "weight * F(wide * rsqrt(mean(wide * wide) + eps))",
        "F(f32(weight) * (wide * rsqrt(mean(wide * wide) + eps)))",
    ),
    source(
        "rounded to F twice",
        "F((centred * rsqrt(mean(centred * centred) + eps)) * f32(weight) + f32(bias))",
        "F(f32(F(centred * rsqrt(mean(centred * centred) + eps))) * f32(weight) + f32(bias))",
    ),
    source(
        "eps outside the root",
        "F(wide * rsqrt(mean(wide * wide) + eps))",
        "F(wide * (rsqrt(mean(wide * wide)) + eps))",
    ),
    source("softmax without its maximum", "let e = exp(x - maximum(x, axis = -1));", "let e = exp(x);"),
    source("operands of a division swapped", "e / sum(e, axis = -1)\n", "sum(e, axis = -1) / e\n"),
    emission(
        "reduction over another axis",
        "prelude::softmax",
        Some(("ops::sum(&e, &[-1])", "ops::sum(&e, &[-2])")),
        Some(("cx.sum(e, &[-1])", "cx.sum(e, &[-2])")),
    ),
    // Positions.
    source(
        "rope: halves swapped",
        "concat([a * F(cos) - b * F(sin), b * F(cos) + a * F(sin)], axis = -1)",
        "concat([b * F(cos) + a * F(sin), a * F(cos) - b * F(sin)], axis = -1)",
    ),
    source(
        "rope: the other way round",
        "concat([a * F(cos) - b * F(sin), b * F(cos) + a * F(sin)], axis = -1)",
        "concat([a * F(cos) + b * F(sin), b * F(cos) - a * F(sin)], axis = -1)",
    ),
    source("slice off by one", "let b = x[.., W..2 * W];", "let b = x[.., W - 1..2 * W - 1];"),
    source(
        "positions count from one",
        "f32(reshape(positions, [B, 1, S, 1])) * f32(frequencies)",
        "f32(reshape(positions, [B, 1, S, 1]) + 1) * f32(frequencies)",
    ),
    // Attention.
    source(
        "dropped mask",
        "attention_values(hide(attention_scores(q, k, scale), visible), v)",
        "attention_values(attention_scores(q, k, scale), v)",
    ),
    source("< for <= in the causal mask", "iota(keys) <= reshape(positions", "iota(keys) < reshape(positions"),
    source("> for <= in the causal mask", "iota(keys) <= reshape(positions", "iota(keys) > reshape(positions"),
    source(
        "window one token wider",
        "reshape(positions, [B, S, 1]) - window",
        "reshape(positions, [B, S, 1]) - window - 1",
    ),
    source("| for & of two masks", "causal(positions, T) & recent", "causal(positions, T) | recent"),
    source(
        "scale before the product",
        "f32(dot(group_heads(q, G), k) * scale)",
        "f32(dot(group_heads(q * scale, G), k))",
    ),
    source("scale without its root", "1.0 / sqrt(head_dim)", "1.0 / head_dim"),
    source(
        "key heads repeated in another order",
        "reshape(reshape(x, [B, groups, H / groups, S, D]), [B, groups, H / groups * S, D])",
        "reshape(transpose(reshape(x, [B, H / groups, groups, S, D]), [0, 2, 1, 3, 4]), [B, groups, H / groups * S, D])",
    ),
    source(
        "wrong permutation",
        "reshape(transpose(x, [0, 2, 1, 3]), [B, S, H * D])",
        "reshape(transpose(x, [0, 2, 3, 1]), [B, S, H * D])",
    ),
    source(
        "values projected as keys",
        "split_heads(v_proj(x), kv_heads, head_dim)",
        "split_heads(k_proj(x), kv_heads, head_dim)",
    ),
    emission(
        "lost cast",
        "SwiGluExperts::call",
        Some(("ops::convert(&t6, DType::F32)?", "t6")),
        Some(("cx.convert(t6, DType::F32)", "t6")),
    ),
    source("the lowest score a little higher", "-3.4028234663852886e38", "-3.0e38"),
    // State.
    source(
        "values where keys are written",
        "k = update(k, new_k, positions, axis = 2)",
        "k = update(k, new_v, positions, axis = 2)",
    ),
    source(
        "state read before it is written",
        "v = update(v, new_v, positions, axis = 2);\n        (k, v)",
        "let old = v;\n        v = update(v, new_v, positions, axis = 2);\n        (k, old)",
    ),
    emission(
        "state not written",
        "Taps::call",
        Some(("cx.set_state(&self.calls, &t1)?;", "")),
        Some(("cx.set_state(&self.calls, t1);", "")),
    ),
    emission(
        "update at a wrong axis",
        "KvCache::call",
        Some(("cx.update_state(&self.k, new_k, positions, -2)", "cx.update_state(&self.k, new_k, positions, -1)")),
        Some(("cx.update(k, new_k, positions, -2)", "cx.update(k, new_k, positions, -1)")),
    ),
    source("state counts double", "calls = calls + 1.0;", "calls = calls + 2.0;"),
    // Layers and probes.
    source("swapped taps", "seen[t][..", "seen[depth - 1 - t][.."),
    source(
        "transposed weight",
        "dot(concat(kept, axis = -1), mixing)",
        "dot(concat(kept, axis = -1), transpose(mixing, [1, 0]))",
    ),
    source(
        "operands of a subtraction swapped",
        "dot(concat(kept, axis = -1), mixing) / 4.0 - 0.5",
        "0.5 - dot(concat(kept, axis = -1), mixing) / 4.0",
    ),
    source("missing residual", "x + mixture(before_mixture(x))", "mixture(before_mixture(x))"),
    source(
        "probe moved by one op",
        "x + attention(before_attention(x), positions, visible, cos, sin) @ \"layer.{i}.attention\"",
        "(x + attention(before_attention(x), positions, visible, cos, sin)) @ \"layer.{i}.attention\"",
    ),
    source("lost probe", "embed_tokens(tokens) @ \"embed\"", "embed_tokens(tokens)"),
    emission(
        "gather along another axis",
        "prelude::lookup",
        Some(("ops::take(&t1, ids, -2)", "ops::take(&t1, ids, -1)")),
        Some(("cx.take(t1, ids, -2)", "cx.take(t1, ids, -1)")),
    ),
    // Experts and packed matrices.
    source("top_k of another k", "top_k(f32(dot(x, router)), chosen)", "top_k(f32(dot(x, router)), chosen - 1)"),
    source(
        "mean of the experts for their sum",
        "F(sum(f32(y * reshape(share, [.., K, 1])), axis = -2))",
        "F(sum(f32(y * reshape(share, [.., K, 1])), axis = -2) / K)",
    ),
    source(
        "codes of a byte in another order",
        "[l * w.bits for l in 0..lanes]",
        "[(lanes - 1 - l) * w.bits for l in 0..lanes]",
    ),
    source(
        "bias before scale in a packed matrix",
        "1, 1]);\n        reshape(code * scale + bias, [.., K])",
        "1, 1]);\n        reshape((code + bias) * scale, [.., K])",
    ),
    // Twins.
    emission("twin used where `pinned`", "prelude::softmax", Some(("cx.fused()", "true")), None),
    emission("twin used where `pinned`", "prelude::rope", None, Some(("cx.fused()", "true"))),
    emission("twin missing where `fused`", "prelude::masked_attention", Some(("cx.fused()", "false")), None),
    emission("twin missing where `fused`", "prelude::linear", None, Some(("cx.fused()", "false"))),
    twin("twin with another weight", "fast::rms_norm(x, weight, eps)", "fast::rms_norm(x, 2.0 * weight, eps)"),
    twin("twin with another eps", "fast::rms_norm(x, weight, eps)", "fast::rms_norm(x, weight, eps * 2.0)"),
    twin(
        "twin without its mask",
        "fast::scaled_dot_product_attention(q, k, v, scale, mask = visible) ",
        "fast::scaled_dot_product_attention(q, k, v, scale) ",
    ),
    twin(
        "twin with its operands swapped",
        "fast::scaled_dot_product_attention(q, k, v, scale, mask = visible) ",
        "fast::scaled_dot_product_attention(q, v, k, scale, mask = visible) ",
    ),
];
