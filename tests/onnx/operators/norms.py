"""Normalizations."""

import numpy as np

from graph import Skip, shape_text
from operators.table import SUMMED, axis_of, op, total


def normalized(b, x, eps, axes, dtype, shape):
    count = float(np.prod([shape[a] for a in axes]))
    centre = b.let(f"{total(b, x, dtype, axes)} / {count!r}")
    centred = b.let(f"{x} - {centre}")
    inverse = b.let(f"rsqrt({total(b, b.let(f'{centred} * {centred}'), dtype, axes)} / {count!r} + {eps!r})")
    return b.let(f"{centred} * {inverse}"), centre, inverse


@op("LayerNormalization", of_largest=8, why=SUMMED)
def layer_normalization(b, n):
    x, w = n.inputs[:2]
    rank = len(x.shape)
    axis, eps = axis_of(n.attr("axis", -1), rank), n.attr("epsilon", 1e-5)
    merged = list(x.shape[:axis]) + [int(np.prod(x.shape[axis:]))]
    flat = b.reshape(b.t(x), x.shape, merged)
    if x.dtype in ("f32", "f16", "bf16") and w.shape == x.shape[axis:]:
        gain = b.reshape(b.t(w), w.shape, merged[-1:])
        bias = (
            b.reshape(b.t(n.inputs[2]), w.shape, merged[-1:])
            if n.has(2)
            else b.let(f"broadcast({x.dtype}(0.0), {shape_text(merged[-1:])})")
        )
        y = b.reshape(b.let(f"layer_norm({flat}, {gain}, {bias}, {eps!r})"), merged, x.shape)
    else:
        y, _, _ = normalized(b, b.t(x), eps, list(range(axis, rank)), x.dtype, x.shape)
        y = b.let(f"{y} * {b.t(w)}")
        y = b.let(f"{y} + {b.t(n.inputs[2])}") if n.has(2) else y
    outs = [y]
    if len(n.outputs) > 1:
        _, centre, inverse = normalized(b, flat, eps, [axis], x.dtype, merged)
        outs += [b.reshape(v, merged[:-1] + [1], o.shape) for v, o in zip((centre, inverse), n.outputs[1:])]
    return outs


@op("RMSNormalization", of_largest=8, why=SUMMED)
def rms_normalization(b, n):
    x, w = n.inputs[:2]
    axis, eps = axis_of(n.attr("axis", -1), len(x.shape)), n.attr("epsilon", 1e-5)
    merged = list(x.shape[:axis]) + [int(np.prod(x.shape[axis:]))]
    flat, gain = b.reshape(b.t(x), x.shape, merged), b.reshape(b.t(w), w.shape, merged[-1:])
    return b.reshape(b.let(f"rms_norm({flat}, {gain}, {eps!r})"), merged, x.shape)


@op("GroupNormalization", "InstanceNormalization", of_largest=8, why=SUMMED)
def group_normalization(b, n):
    x, w, bias = n.inputs
    N, C = x.shape[:2]
    groups = n.attr("num_groups", C)
    inner = [N, groups, C // groups * int(np.prod(x.shape[2:]))]
    y, _, _ = normalized(b, b.reshape(b.t(x), x.shape, inner), n.attr("epsilon", 1e-5), [2], x.dtype, inner)
    y = b.reshape(y, inner, x.shape)
    per = [C] + [1] * (len(x.shape) - 2)
    return b.let(f"{y} * {b.reshape(b.t(w), [C], per)} + {b.reshape(b.t(bias), [C], per)}")


@op("BatchNormalization", of_largest=8, why="a few roundings")
def batch_normalization(b, n):
    if n.attr("training_mode", 0):
        raise Skip("training", "BatchNormalization while training")
    x = n.inputs[0]
    per = [x.shape[1]] + [1] * (len(x.shape) - 2)
    w, bias, centre, variance = (b.reshape(b.t(v), v.shape, per) for v in n.inputs[1:])
    return b.let(f"{w} * ({b.t(x)} - {centre}) * rsqrt({variance} + {n.attr('epsilon', 1e-5)!r}) + {bias}")


@op("MeanVarianceNormalization", of_largest=8, why=SUMMED)
def mean_variance_normalization(b, n):
    x = n.inputs[0]
    y, _, _ = normalized(b, b.t(x), 1e-9, [axis_of(a, len(x.shape)) for a in n.attr("axes", [0, 2, 3])], x.dtype, x.shape)
    return y
