"""Numbers stored as codes with a scale."""

from graph import Skip, dtype_of, shape_text
from operators.elementwise import round_of
from operators.table import axis_of, cast, op


def per_axis(b, n, i):
    """A scale or zero point beside the numbers that it is for."""
    v, x, block = n.inputs[i], n.inputs[0], n.attr("block_size", 0)
    if v.shape in ((), (1,)):
        return b.reshape(b.t(v), v.shape, [])
    axis = axis_of(n.attr("axis", 1), len(x.shape))
    if block:
        apart = list(v.shape[: axis + 1]) + [1] + list(v.shape[axis + 1 :])
        repeated = apart[: axis + 1] + [block] + apart[axis + 2 :]
        t = b.let(f"broadcast({b.reshape(b.t(v), v.shape, apart)}, {shape_text(repeated)})")
        return b.reshape(t, repeated, x.shape)
    return b.reshape(b.t(v), v.shape, list(v.shape) + [1] * (len(x.shape) - 1 - axis))


@op("DequantizeLinear", ulp=0, why="one product of exact differences")
def dequantize(b, n):
    x, dtype = b.t(n.inputs[0]), n.inputs[1].dtype
    t = cast(b, x, n.inputs[0].dtype, dtype)
    if n.has(2):
        t = b.let(f"{t} - {cast(b, per_axis(b, n, 2), n.inputs[2].dtype, dtype)}")
    return b.let(f"{t} * {per_axis(b, n, 1)}")


@op("QuantizeLinear", ulp=0, rounds=True, why="the quotient is rounded as ONNX's own")
def quantize(b, n):
    if dtype_of(n.outputs[0]) != "u8":
        raise Skip("quantized", "QuantizeLinear to others than uint8")
    dtype = n.inputs[0].dtype
    t = round_of(b, b.let(f"{b.t(n.inputs[0])} / {per_axis(b, n, 1)}"), dtype)
    if n.has(2):
        t = b.let(f"{t} + {dtype}({per_axis(b, n, 2)})")
    return b.let(f"u8(min(max({t}, 0.0), 255.0))")
