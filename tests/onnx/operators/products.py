"""Matrix products."""

import numpy as np

from graph import Skip, shape_text
from operators.table import SUMMED, op, total


def matmul_of(b, x, y, xs, ys, out):
    """numpy's matmul: leading axes are repeated, axes of vectors come and go."""
    xs2 = [1] + list(xs) if len(xs) == 1 else list(xs)
    ys2 = list(ys) + [1] if len(ys) == 1 else list(ys)
    x, y = b.reshape(x, xs, xs2), b.reshape(y, ys, ys2)
    leading = list(np.broadcast_shapes(tuple(xs2[:-2]), tuple(ys2[:-2])))
    for_x, for_y = leading + xs2[-2:], leading + ys2[-2:]
    x = x if for_x == xs2 else b.let(f"broadcast({x}, {shape_text(for_x)})")
    y = y if for_y == ys2 else b.let(f"broadcast({y}, {shape_text(for_y)})")
    return b.reshape(b.let(f"matmul({x}, {y})"), leading + [xs2[-2], ys2[-1]], out)


@op("MatMul", of_largest=8, why=SUMMED)
def matmul(b, n):
    x, y = n.inputs
    return matmul_of(b, b.t(x), b.t(y), x.shape, y.shape, n.outputs[0].shape)


@op("MatMulInteger", ulp=0, why="whole numbers that f32 holds")
def matmul_integer(b, n):
    parts = []
    for i in (0, 1):
        t = b.let(f"f32({b.t(n.inputs[i])})")
        parts.append(b.let(f"{t} - f32({b.t(n.inputs[i + 2])})") if n.has(i + 2) else t)
    return b.let(f"i32({matmul_of(b, *parts, n.inputs[0].shape, n.inputs[1].shape, n.outputs[0].shape)})")


@op("Gemm", of_largest=8, why=SUMMED)
def gemm(b, n):
    x, y = b.t(n.inputs[0]), b.t(n.inputs[1])
    x = b.transpose(x, [1, 0]) if n.attr("transA", 0) else x
    product = b.let(f"dot({x}, {y})" if n.attr("transB", 0) else f"matmul({x}, {y})")
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    product = product if alpha == 1.0 else b.let(f"{product} * {alpha!r}")
    if not n.has(2):
        return product
    bias = b.t(n.inputs[2])
    return b.let(f"{product} + {bias if beta == 1.0 else b.let(f'{bias} * {beta!r}')}")


@op("Einsum", of_largest=8, why=SUMMED)
def einsum(b, n):
    equation, x = n.attr("equation").replace(" ", ""), n.inputs[0]
    match equation:
        case "ij->ji":
            return b.transpose(b.t(x), [1, 0])
        case "ij->i":
            return b.reshape(total(b, b.t(x), x.dtype, [1]), [x.shape[0], 1], [x.shape[0]])
        case "->":
            return b.t(x)
        case "i,i":
            return b.reshape(total(b, b.let(f"{b.t(x)} * {b.t(n.inputs[1])}"), x.dtype, [0]), [1], [])
        case "bij,bjk->bik":
            return b.let(f"matmul({b.t(x)}, {b.t(n.inputs[1])})")
        case "...ii->...i":
            size = x.shape[-1]
            at = b.let(f"broadcast(reshape(iota({size}), [{size}, 1]), {shape_text(list(x.shape[:-1]) + [1])})")
            return b.reshape(
                b.let(f"take_along({b.t(x)}, {at}, axis = {len(x.shape) - 1})"), list(x.shape[:-1]) + [1], n.outputs[0].shape
            )
    raise Skip("primitive", f"Einsum {equation}")
