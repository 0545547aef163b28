"""Sums, extremes, products along axes, and what is made of them."""

import numpy as np

from graph import shape_text
from operators.table import CHAIN, MOVED, SINGLE, SUMMED, axis_of, cut, floating, kept, largest, last_axis, op, there, total


def axes_of(n, rank):
    axes = n.attr("axes")
    if axes is None and n.has(1):
        axes = n.known(1).tolist()
    if not axes:
        return [] if n.attr("noop_with_empty_axes", 0) else list(range(rank))
    return [axis_of(a, rank) for a in axes]


def product(b, x, shape, axes):
    for axis in axes:
        parts = [cut(b, x, len(shape), axis, i, i + 1) for i in range(shape[axis])]
        x = b.let(" * ".join(parts)) if parts else b.let(f"broadcast(f32(1.0), {shape_text(kept(shape, [axis]))})")
        shape = kept(shape, [axis])
    return x


@op(
    "ReduceSum",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceSumSquare",
    of_largest=8,
    why=SUMMED,
)
@op("ReduceLogSumExp", of_largest=8, why=SUMMED, mlx=there(of_largest=8, single=True, why=SINGLE))
@op("ReduceMax", "ReduceMin", ulp=0, why=MOVED)
@op("ReduceProd", ulp=4, why="products in another order")
def reduced(b, n):
    x = n.inputs[0]
    t, dtype, shape, kind = b.t(x), x.dtype, x.shape, n.proto.op_type
    axes = axes_of(n, len(shape))
    count = int(np.prod([shape[a] for a in axes]))
    if not axes:
        return {"ReduceSum": t, "ReduceMax": t, "ReduceMin": t, "ReduceMean": t, "ReduceProd": t}.get(kind) or b.let(
            {
                "ReduceL1": f"abs({t})",
                "ReduceL2": f"abs({t})",
                "ReduceLogSum": f"log({t})",
                "ReduceLogSumExp": t,
                "ReduceSumSquare": f"{t} * {t}",
            }[kind]
        )
    match kind:
        case "ReduceSum":
            y = total(b, t, dtype, axes)
        case "ReduceMean":
            y = b.let(f"{total(b, t, dtype, axes)} / {float(count)!r}")
        case "ReduceL1":
            y = total(b, b.let(f"abs({t})"), dtype, axes)
        case "ReduceL2":
            y = b.let(f"sqrt({total(b, b.let(f'{t} * {t}'), dtype, axes)})")
        case "ReduceSumSquare":
            y = total(b, b.let(f"{t} * {t}"), dtype, axes)
        case "ReduceLogSum":
            y = b.let(f"log({total(b, t, dtype, axes)})")
        case "ReduceLogSumExp":
            top = largest(b, t, axes) if count else None
            y = (
                b.let(f"log({total(b, b.let(f'exp({t} - {top})'), dtype, axes)}) + {top}")
                if count
                else b.let(f"log({total(b, t, dtype, axes)})")
            )
        case "ReduceMax" | "ReduceMin" if dtype == "bool":
            some = axes[0] if len(axes) == 1 else shape_text(axes)
            y = b.let(f"any({t}, axis = {some})" if kind == "ReduceMax" else f"!any(!{t}, axis = {some})")
        case "ReduceMax":
            y = largest(b, t, axes)
        case "ReduceMin":
            y = b.let("-" + largest(b, b.let("-" + t), axes))
        case "ReduceProd":
            y = product(b, t, shape, axes)
    return b.reshape(y, kept(shape, axes), n.outputs[0].shape)


@op("CumSum", of_largest=4, why=SUMMED)
@op("CumProd", of_largest=4, why="products in another order")
def cumulated(b, n):
    x = n.inputs[0]
    rank, size, axis = len(x.shape), None, axis_of(int(np.asarray(n.known(1)).reshape(-1)[0]), len(x.shape))
    size = x.shape[axis]
    t, back = last_axis(b, b.t(x), rank, axis)
    moved = [k for a, k in enumerate(x.shape) if a != axis]
    step = f"reshape(iota({size}), [{size}, 1])"
    sign = {(0, 0): "<=", (1, 0): "<", (0, 1): ">=", (1, 1): ">"}[n.attr("exclusive", 0), n.attr("reverse", 0)]
    each = b.reshape(t, moved + [size], moved + [1, size])
    zero, one = ("0.0", "1.0") if floating(x.dtype) else ("0", "1")
    if n.proto.op_type == "CumSum":
        y = total(b, b.let(f"select(iota({size}) {sign} {step}, {each}, {zero})"), x.dtype, [rank])
    else:
        y = product(b, b.let(f"select(iota({size}) {sign} {step}, {each}, {one})"), moved + [size, size], [rank])
    return b.transpose(b.reshape(y, moved + [size, 1], moved + [size]), back)


def softmax_of(b, x, shape, dtype, axis):
    """The prelude's for f32, its text for other floats."""
    if dtype == "f32":
        t, back = last_axis(b, x, len(shape), axis)
        return b.transpose(b.let(f"softmax({t})"), back)
    e = b.let(f"exp({x} - {largest(b, x, [axis])})")
    return b.let(f"{e} / {total(b, e, dtype, [axis])}")


@op("Softmax", of_largest=8, why=CHAIN)
def softmax(b, n):
    x = n.inputs[0]
    return softmax_of(b, b.t(x), x.shape, x.dtype, axis_of(n.attr("axis", -1), len(x.shape)))


@op("LogSoftmax", of_largest=8, why=CHAIN)
def log_softmax(b, n):
    x = n.inputs[0]
    return log_softmax_of(b, b.t(x), x.dtype, axis_of(n.attr("axis", -1), len(x.shape)))


def log_softmax_of(b, x, dtype, axis):
    moved = b.let(f"{x} - {largest(b, x, [axis])}")
    return b.let(f"{moved} - log({total(b, b.let(f'exp({moved})'), dtype, [axis])})")


@op("LpNormalization", of_largest=8, why=SUMMED)
def lp_normalization(b, n):
    x = n.inputs[0]
    t, axis = b.t(x), axis_of(n.attr("axis", -1), len(x.shape))
    if n.attr("p", 2) == 1:
        norm = total(b, b.let(f"abs({t})"), x.dtype, [axis])
    else:
        norm = b.let(f"sqrt({total(b, b.let(f'{t} * {t}'), x.dtype, [axis])})")
    return b.let(f"select({norm} == 0.0, broadcast({x.dtype}(0.0), {shape_text(x.shape)}), {t} / {norm})")


@op("GlobalAveragePool", of_largest=4, why=SUMMED)
@op("GlobalMaxPool", ulp=0, why=MOVED)
def global_pool(b, n):
    x = n.inputs[0]
    axes = list(range(2, len(x.shape)))
    if n.proto.op_type == "GlobalMaxPool":
        return largest(b, b.t(x), axes)
    return b.let(f"{total(b, b.t(x), x.dtype, axes)} / {float(np.prod(x.shape[2:]))!r}")
