"""Attention and rotary embeddings."""

import numpy as np

from graph import Skip, shape_text
from operators.reductions import softmax_of
from operators.table import SINGLE, cast, op, there


def heads(b, v, count):
    """`[B, S, H * D]` as `[B, H, S, D]`."""
    B, S, W = v.shape
    return b.let(f"split_heads({b.t(v)}, {count}, {W // count})"), (B, count, S, W // count)


@op(
    "Attention",
    of_largest=8,
    why="sums in another order, softmax, and the scale taken on the product, not its root on both sides",
)
def attention(b, n):
    flat = len(n.inputs[0].shape) == 3
    if flat:
        q, qs = heads(b, n.inputs[0], n.attr("q_num_heads"))
        (k, ks), (v, vs) = (heads(b, n.inputs[i], n.attr("kv_num_heads")) for i in (1, 2))
    else:
        (q, qs), (k, ks), (v, vs) = ((b.t(n.inputs[i]), n.inputs[i].shape) for i in range(3))
    dtype, past = n.inputs[0].dtype, 0
    if n.has(4):
        past = n.inputs[4].shape[2]
        k = b.let(f"concat([{b.t(n.inputs[4])}, {k}], axis = 2)")
        v = b.let(f"concat([{b.t(n.inputs[5])}, {v}], axis = 2)")
    (B, H, S, D), T = qs, ks[2] + past
    scores = b.let(f"attention_scores({q}, {k}, {n.attr('scale') or float(1 / np.sqrt(D))!r})")
    raw = scores
    cap = n.attr("softcap", 0.0)
    if cap:
        scores = b.let(f"softcap({scores}, {cap!r})")
    capped = scores
    # Who is seen: load numbers and positions by comparison, masks as they are given.
    sees, bias = [], None
    if n.has(3):
        mask = n.inputs[3]
        shape = [1] * (4 - len(mask.shape)) + list(mask.shape)
        m = b.reshape(b.t(mask), mask.shape, shape)
        if shape[-1] < T:
            fill = "bool" if mask.dtype == "bool" else mask.dtype
            rest = shape[:-1] + [T - shape[-1]]
            none = (
                f"broadcast(iota(1) > 0, {shape_text(rest)})"
                if fill == "bool"
                else f"broadcast(log({fill}(0.0)), {shape_text(rest)})"
            )
            m = b.let(f"concat([{m}, {none}], axis = 3)")
            shape[-1] = T
        if mask.dtype == "bool":
            sees.append(m)
        else:
            bias = m
    offset, kv = str(past), None
    if n.has(6):
        kv = b.reshape(b.t(n.inputs[6]), n.inputs[6].shape, [B, 1, 1, 1])
        offset = b.let(f"{kv} - {S}")
        sees.append(b.let(f"iota({T}) < {kv}"))
    before, after = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    if n.attr("is_causal", 0) or before >= 0 or after >= 0:
        query = b.let(f"reshape(iota({S}), [{S}, 1]) + {offset}")
    if n.attr("is_causal", 0):
        sees.append(b.let(f"iota({T}) <= {query}"))
    if before >= 0:
        sees.append(b.let(f"iota({T}) >= {query} - {before}"))
    if after >= 0:
        sees.append(b.let(f"iota({T}) <= {query} + {after}"))
    if bias:
        scores = b.let(f"{scores} + {cast(b, bias, dtype, 'f32')}")
    if sees:
        visible = b.let(" & ".join(sees)) if len(sees) > 1 else sees[0]
        scores = b.let(f"select({visible}, {scores}, log(f32(0.0)))")
    biased = scores
    dead = b.let(f"maximum({scores}, axis = 3) == log(f32(0.0))") if sees or bias else None
    share = b.let(f"softmax({scores})")
    if dead:
        # ONNX gives zeros to a query that sees no key; the softmax of nothing is NaN.
        share = b.let(f"select({dead}, broadcast(f32(0.0), {shape_text([B, H, S, T])}), {share})")
    G = ks[1]
    y = b.let(f"ungroup_heads(matmul(group_heads({cast(b, share, 'f32', dtype)}, {G}), {v}), {H})")
    outs = [b.let(f"merge_heads({y})") if flat else y]
    shown = {0: raw, 1: capped, 2: biased, 3: share}[n.attr("qk_matmul_output_mode", 0)]
    return (outs + [k, v, cast(b, shown, "f32", dtype)])[: len(n.outputs)]


@op("FlexAttention", of_largest=8, why="sums in another order, and softmax", mlx=there(of_largest=8, single=True, why=SINGLE))
def flex_attention(b, n):
    (q, k, v), dtype = (b.t(n.inputs[i]) for i in range(3)), n.inputs[0].dtype
    (B, H, S, D), (_, G, T, _) = n.inputs[0].shape, n.inputs[1].shape
    scale = n.attr("scale") or float(1 / np.sqrt(D))
    if n.attr("score_mod") or n.attr("prob_mod"):
        raise Skip("control", "FlexAttention with a graph of its own")
    if dtype == "f64" or n.inputs[2].shape[3] != D:
        scores = b.let(f"dot({q}, {k}) * {scale!r}")
        return b.let(f"matmul({softmax_of(b, scores, (B, H, S, T), dtype, 3)}, {v})")
    return b.let(f"attention({q}, {k}, {v}, {scale!r})")


@op("RotaryEmbedding", of_largest=2, why="two products and a sum, in another order of operands")
def rotary(b, n):
    x, cos, sin = n.inputs[:3]
    flat, count = len(x.shape) == 3, n.attr("num_heads", 0)
    if flat:
        q, (B, H, S, D) = heads(b, x, count)
    else:
        q, (B, H, S, D) = b.t(x), x.shape
    W = (n.attr("rotary_embedding_dim", 0) or D) // 2
    tables = []
    for table in (cos, sin):
        t = b.let(f"take({b.t(table)}, {b.t(n.inputs[3])}, axis = 0)") if n.has(3) else b.t(table)
        tables.append(
            b.let(f"f32(reshape({t}, {shape_text([B, 1, S, W])}))") if x.dtype != "f32" else b.reshape(t, [B, S, W], [B, 1, S, W])
        )
    cos, sin = tables
    if n.attr("interleaved", 0):
        turned = b.let(f"rope_interleaved({q if 2 * W == D else b.let(f'{q}[_, _, _, 0..{2 * W}]')}, {cos}, {sin})")
        if 2 * W != D:
            turned = b.let(f"concat([{turned}, {q}[_, _, _, {2 * W}..{D}]], axis = 3)")
    else:
        turned = b.let(f"rope_partial({q}, {cos}, {sin})")
    return b.let(f"merge_heads({turned})") if flat else turned
