"""What every ONNX operator is in mgraph: the table that `import.py` reads, with the bound of each operator and its reason.

A function takes the body of the op so far and a node, and gives the text of each output. `ulp` is the bound per element, in units
of the last place of the result's dtype; `of_largest` is in the same unit at the largest number of the result. 0 is exact.
"""

import numpy as np
import onnx

from graph import Skip, dtype_of, number, shape_text


class Table(dict):
    bounds = {}
    skipped = {}

    def outside(self, operator):
        return self.skipped.get(operator, "primitive"), operator


TABLE = Table()


def bound(ulp, of_largest, rounds, why):
    """With `rounds`, floats become whole numbers on the way: right in the width that ONNX computed in, and in no other."""
    return ({"ulp": ulp} if ulp is not None else {"of_largest": of_largest}) | ({"rounds": True} if rounds else {}) | {"why": why}


def op(*names, ulp=None, of_largest=None, rounds=False, why):
    def register(f):
        for name in names:
            TABLE[name] = f
            TABLE.bounds[name] = bound(ulp, of_largest, rounds, why)
        return f

    return register


def outside(reason, names, ulp=None, of_largest=None, rounds=False, why=None):
    """Operators without text of their own; a bound is for cases whose function body is said all the same."""
    for name in names.split():
        Table.skipped[name] = reason
        if why:
            Table.bounds[name] = bound(ulp, of_largest, rounds, why)


ONE = "one operation, rounded once as ONNX's own"
MOVED = "elements are moved, not computed"
WHOLE = "integers or bools"
FUNCTION = "another libm"
CHAIN = "a few roundings, and another libm"
SUMMED = "sums in another order, accumulated wider"


def axis_of(axis, rank):
    return int(axis) + rank if axis < 0 else int(axis)


def floating(dtype):
    return dtype in ("f64", "f32", "f16", "bf16")


def cast(b, x, old, new):
    return x if old == new else b.let(f"{new}({x})")


def wide(b, x, dtype):
    """`x` where sums are allowed."""
    return b.let(f"f32({x})") if dtype in ("f16", "bf16") else x


def total(b, x, dtype, axes):
    axes = [int(a) for a in axes]
    listed = str(axes[0]) if len(axes) == 1 else shape_text(axes)
    return cast(b, b.let(f"sum({wide(b, x, dtype)}, axis = {listed})"), "f32" if dtype in ("f16", "bf16") else dtype, dtype)


def largest(b, x, axes):
    axes = [int(a) for a in axes]
    return b.let(f"maximum({x}, axis = {axes[0] if len(axes) == 1 else shape_text(axes)})")


# One number at a time.

def plain(b, n, text):
    return b.let(text.format(*[b.t(n.inputs[j]) for j in range(len(n.inputs)) if n.has(j)]))


for _name, _text in {
    "Abs": "abs({0})", "Neg": "-{0}", "Not": "!{0}", "Sqrt": "sqrt({0})", "Relu": "relu({0})",
    "Reciprocal": "1.0 / {0}", "IsNaN": "{0} != {0}",
}.items():
    op(_name, ulp=0, why=ONE)(lambda b, n, t=_text: plain(b, n, t))
for _name, _text in {
    "Log": "log({0})", "Sin": "sin({0})", "Cos": "cos({0})", "Tanh": "tanh({0})", "Erf": "erf({0})",
}.items():
    op(_name, ulp=4, why=FUNCTION)(lambda b, n, t=_text: plain(b, n, t))
op("Exp", ulp=7, why=FUNCTION)(lambda b, n: plain(b, n, "exp({0})"))
op("Sigmoid", ulp=8, why=CHAIN)(lambda b, n: plain(b, n, "sigmoid({0})"))
op("Tan", ulp=8, why=CHAIN)(lambda b, n: plain(b, n, "sin({0}) / cos({0})"))
op("Sinh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * (exp({0}) - exp(-{0}))"))
op("Cosh", ulp=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * (exp({0}) + exp(-{0}))"))
op("Asinh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "select({0} < 0.0, -log(sqrt({0} * {0} + 1.0) - {0}), log({0} + sqrt({0} * {0} + 1.0)))"))
op("Acosh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "log({0} + sqrt({0} * {0} - 1.0))"))
op("Atanh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * log((1.0 + {0}) / (1.0 - {0}))"))
op("Softplus", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "max({0}, 0.0) + log(1.0 + exp(-abs({0})))"))
op("Softsign", ulp=2, why="a few roundings")(lambda b, n: plain(b, n, "{0} / (1.0 + abs({0}))"))
op("Mish", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "{0} * tanh(log(1.0 + exp({0})))"))
op("HardSwish", of_largest=2, why="a few roundings")(lambda b, n: plain(b, n, "{0} * max(min({0} * 0.16666666666666666 + 0.5, 1.0), 0.0)"))


op("Identity", ulp=0, why="nothing is computed")(lambda b, n: b.t(n.inputs[0]))


@op("Sign", ulp=0, why=ONE)
def sign(b, n):
    x, dtype = b.t(n.inputs[0]), n.inputs[0].dtype
    one, zero = ("1.0", "0.0") if floating(dtype) else ("1", "0")
    return b.let(f"{dtype}({x} > {zero}) - {dtype}({x} < {zero})")


def floor_of(b, x, dtype):
    """Right where an i32 holds the number."""
    whole = b.let(f"{dtype}(i32({x}))")
    return b.let(f"select({x} < {whole}, {whole} - 1.0, {whole})")


def round_of(b, x, dtype):
    """To the nearest, ties to even."""
    below = floor_of(b, x, dtype)
    over = b.let(f"{x} - {below}")
    odd = b.let(f"abs(i32({below})) % 2 == 1")
    return b.let(f"select(({over} > 0.5) | (({over} == 0.5) & {odd}), {below} + 1.0, {below})")


op("Floor", ulp=0, why=ONE)(lambda b, n: floor_of(b, b.t(n.inputs[0]), n.inputs[0].dtype))
op("Round", ulp=0, why=ONE)(lambda b, n: round_of(b, b.t(n.inputs[0]), n.inputs[0].dtype))


@op("Ceil", ulp=0, why=ONE)
def ceil(b, n):
    return b.let("-" + floor_of(b, b.let("-" + b.t(n.inputs[0])), n.inputs[0].dtype))


@op("LeakyRelu", ulp=0, why=ONE)
def leaky_relu(b, n):
    x = b.t(n.inputs[0])
    return b.let(f"select({x} < 0.0, {x} * {n.attr('alpha', 0.01)!r}, {x})")


@op("Elu", of_largest=4, why=CHAIN)
def elu(b, n):
    x = b.t(n.inputs[0])
    return b.let(f"select({x} < 0.0, {n.attr('alpha', 1.0)!r} * (exp({x}) - 1.0), {x})")


@op("Selu", of_largest=4, why=CHAIN)
def selu(b, n):
    x = b.t(n.inputs[0])
    alpha, gamma = n.attr("alpha", 1.6732632423543772), n.attr("gamma", 1.0507009873554805)
    return b.let(f"{gamma!r} * select({x} <= 0.0, {alpha!r} * (exp({x}) - 1.0), {x})")


@op("Celu", of_largest=4, why=CHAIN)
def celu(b, n):
    x, alpha = b.t(n.inputs[0]), n.attr("alpha", 1.0)
    return b.let(f"max({x}, 0.0) + min({alpha!r} * (exp({x} / {alpha!r}) - 1.0), 0.0)")


@op("HardSigmoid", of_largest=2, why="a few roundings")
def hard_sigmoid(b, n):
    return b.let(f"max(min({b.t(n.inputs[0])} * {n.attr('alpha', 0.2)!r} + {n.attr('beta', 0.5)!r}, 1.0), 0.0)")


@op("Swish", of_largest=8, why=CHAIN)
def swish(b, n):
    x, alpha = b.t(n.inputs[0]), n.attr("alpha", 1.0)
    return b.let(f"silu({x})" if alpha == 1.0 else f"{x} * sigmoid({x} * {alpha!r})")


@op("SwiGLU", of_largest=8, why=CHAIN)
def swiglu(b, n):
    x, y, alpha = b.t(n.inputs[0]), b.t(n.inputs[1]), n.attr("alpha", 1.0)
    return b.let((f"silu({x})" if alpha == 1.0 else f"{x} * sigmoid({x} * {alpha!r})") + f" * {y}")


@op("Gelu", of_largest=8, why=CHAIN)
def gelu(b, n):
    return b.let(("gelu_tanh" if n.attr("approximate") == "tanh" else "gelu") + f"({b.t(n.inputs[0])})")


@op("ThresholdedRelu", ulp=0, why=MOVED)
def thresholded_relu(b, n):
    x = b.t(n.inputs[0])
    return b.let(f"select({x} > {n.attr('alpha', 1.0)!r}, {x}, 0.0)")


@op("PRelu", ulp=0, why=ONE)
def prelu(b, n):
    x, slope = b.t(n.inputs[0]), b.t(n.inputs[1])
    return b.let(f"select({x} < 0.0, {slope} * {x}, {x})")


@op("Shrink", ulp=0, why=ONE)
def shrink(b, n):
    x, bias, limit = b.t(n.inputs[0]), n.attr("bias", 0.0), n.attr("lambd", 0.5)
    return b.let(f"select({x} < -{limit!r}, {x} + {bias!r}, select({x} > {limit!r}, {x} - {bias!r}, 0.0))")


@op("Binarizer", ulp=0, why=MOVED)
def binarizer(b, n):
    return b.let(f"f32({b.t(n.inputs[0])} > {n.attr('threshold', 0.0)!r})")


@op("Clip", ulp=0, why=MOVED)
def clip(b, n):
    x = b.t(n.inputs[0])
    if n.has(1):
        x = b.let(f"max({x}, {b.t(n.inputs[1])})")
    return b.let(f"min({x}, {b.t(n.inputs[2])})") if n.has(2) else x


@op("IsInf", ulp=0, why=WHOLE)
def is_inf(b, n):
    x, dtype = b.t(n.inputs[0]), n.inputs[0].dtype
    sides = [f"({x} == {s}log({dtype}(0.0)))" for s, k in (("-", "detect_positive"), ("", "detect_negative")) if n.attr(k, 1)]
    return b.let(" | ".join(sides))


@op("Dropout", ulp=0, why="identity when not training")
def dropout(b, n):
    if len(n.outputs) > 1 or (n.has(2) and bool(n.known(2))):
        raise Skip("random", "Dropout that drops, or its mask")
    return b.t(n.inputs[0])


@op("Cast", "CastLike", ulp=0, why="rounded once, ties to even")
def cast_to(b, n):
    x, new = n.inputs[0], dtype_of(n.outputs[0])
    if new == "bool":
        return b.let(f"{b.t(x)} != {'0.0' if floating(x.dtype) else '0'}")
    return cast(b, b.t(x), x.dtype, new)


# Two numbers at a time.

def two(symbol):
    def text(b, n):
        return b.let(f"{b.t(n.inputs[0])} {symbol} {b.t(n.inputs[1])}")

    return text


for _name, _symbol in {"Add": "+", "Sub": "-", "Mul": "*"}.items():
    op(_name, ulp=0, why=ONE)(two(_symbol))
for _name, _symbol in {"Greater": ">", "Less": "<", "GreaterOrEqual": ">=", "LessOrEqual": "<=", "Equal": "==", "Xor": "!="}.items():
    op(_name, ulp=0, why=WHOLE)(two(_symbol))
for _name, _symbol in {"And": "&", "Or": "|", "BitwiseAnd": "&", "BitwiseOr": "|"}.items():
    op(_name, ulp=0, why=WHOLE)(two(_symbol))


def not_negative(n):
    if any(v.dtype == "i32" and v.array.size and v.array.min() < 0 for v in n.inputs):
        raise Skip("negative", n.proto.op_type)


def unsigned(n):
    if any(v.dtype == "i32" for v in n.inputs):
        raise Skip("negative", f"{n.proto.op_type} of signed integers")


for _name in ("BitwiseAnd", "BitwiseOr"):
    def _bits(b, n, symbol=TABLE[_name]):
        unsigned(n)
        return symbol(b, n)

    TABLE[_name] = _bits


@op("BitwiseXor", ulp=0, why=WHOLE)
def bitwise_xor(b, n):
    unsigned(n)
    x, y = b.t(n.inputs[0]), b.t(n.inputs[1])
    return b.let(f"({x} | {y}) - ({x} & {y})")


@op("BitwiseNot", ulp=0, why=WHOLE)
def bitwise_not(b, n):
    unsigned(n)
    return b.let(f"{2 ** (8 * n.inputs[0].array.itemsize) - 1} - {b.t(n.inputs[0])}")


@op("BitShift", ulp=0, why=WHOLE)
def bit_shift(b, n):
    unsigned(n)
    return two("<<" if n.attr("direction") == "LEFT" else ">>")(b, n)


@op("Div", ulp=0, why=ONE)
def div(b, n):
    not_negative(n)
    return two("/")(b, n)


@op("Mod", ulp=0, why=WHOLE)
def mod(b, n):
    if floating(n.inputs[0].dtype):
        raise Skip("primitive", "Mod of floats")
    not_negative(n)
    return two("%")(b, n)


@op("Pow", ulp=4, why="ONNX calls pow, this multiplies")
def power(b, n):
    x, y = n.inputs
    exponents = np.unique(y.array)
    if len(exponents) != 1 or float(exponents[0]) not in (0.5, 1.0, 2.0, 3.0, 4.0):
        raise Skip("primitive", "Pow with a general exponent")
    t, e = b.t(x), float(exponents[0])
    if e == 0.5:
        return b.let(f"sqrt({t})")
    return b.let(" * ".join([t] * int(e)))


def fold(f):
    def text(b, n):
        parts = [b.t(v) for v in n.inputs]
        result = parts[0]
        for part in parts[1:]:
            result = b.let(f.format(result, part))
        return result

    return text


op("Max", ulp=0, why=MOVED)(fold("max({}, {})"))
op("Min", ulp=0, why=MOVED)(fold("min({}, {})"))
op("Sum", of_largest=2, why="a few roundings")(fold("{} + {}"))
op("Where", ulp=0, why=MOVED)(lambda b, n: plain(b, n, "select({0}, {1}, {2})"))


@op("Mean", of_largest=2, why="a few roundings")
def mean(b, n):
    return b.let(f"{fold('{} + {}')(b, n)} / {len(n.inputs)}.0")


# Shapes.

@op("Reshape", "Flatten", "Squeeze", "Unsqueeze", ulp=0, why=MOVED)
def reshape(b, n):
    return b.reshape(b.t(n.inputs[0]), n.inputs[0].shape, n.outputs[0].shape)


@op("Transpose", ulp=0, why=MOVED)
def transpose(b, n):
    rank = len(n.inputs[0].shape)
    return b.transpose(b.t(n.inputs[0]), n.attr("perm", list(range(rank))[::-1]))


@op("Expand", ulp=0, why=MOVED)
def expand(b, n):
    return b.let(f"broadcast({b.t(n.inputs[0])}, {shape_text(n.outputs[0].shape)})")


@op("Concat", ulp=0, why=MOVED)
def concat(b, n):
    axis = axis_of(n.attr("axis"), len(n.outputs[0].shape))
    return b.let(f"concat([{', '.join(b.t(v) for v in n.inputs)}], axis = {axis})")


def cut(b, x, rank, axis, start, end):
    slots = ", ".join(f"{start}..{end}" if a == axis else "_" for a in range(rank))
    return b.let(f"{x}[{slots}]")


@op("Split", ulp=0, why=MOVED)
def split(b, n):
    x, axis, at, parts = b.t(n.inputs[0]), n.attr("axis", 0), 0, []
    rank = len(n.inputs[0].shape)
    axis = axis_of(axis, rank)
    for out in n.outputs:
        parts.append(cut(b, x, rank, axis, at, at + out.shape[axis]))
        at += out.shape[axis]
    return parts


@op("Slice", ulp=0, why=MOVED)
def slices(b, n):
    x, shape = b.t(n.inputs[0]), n.inputs[0].shape
    starts, ends = n.known(1), n.known(2)
    axes = n.known(3, np.arange(len(starts)))
    steps = n.known(4, np.ones(len(starts), dtype=int))
    slots, strided = ["_"] * len(shape), []
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = axis_of(axis, len(shape))
        picked = range(*slice(int(start), int(end), int(step)).indices(shape[axis]))
        if step == 1:
            slots[axis] = f"{picked.start}..{max(picked.stop, picked.start)}"
        else:
            strided.append((axis, list(picked)))
    if slots != ["_"] * len(shape):
        x = b.let(f"{x}[{', '.join(slots)}]")
    for axis, picked in strided:
        x = b.let(f"take({x}, i32({picked}), axis = {axis})")
    return x


@op("Tile", ulp=0, why=MOVED)
def tile(b, n):
    x = b.t(n.inputs[0])
    for axis, times in enumerate(n.known(1)):
        if times != 1:
            x = b.let(f"concat([{', '.join([x] * int(times))}], axis = {axis})")
    return x


def padded(b, x, shape, axis, before, after, value, dtype):
    """`value` before and after along an axis; less than none cuts."""
    shape = list(shape)
    if before < 0 or after < 0:
        x = cut(b, x, len(shape), axis, max(-before, 0), shape[axis] - max(-after, 0))
        shape[axis] -= max(-before, 0) + max(-after, 0)
    fill = [b.let(f"broadcast({value}, {shape_text(shape[:axis] + [k] + shape[axis + 1:])})") if k > 0 else None for k in (before, after)]
    parts = [p for p in (fill[0], x, fill[1]) if p]
    return (b.let(f"concat([{', '.join(parts)}], axis = {axis})") if len(parts) > 1 else x), shape[:axis] + [shape[axis] + max(before, 0) + max(after, 0)] + shape[axis + 1:]


@op("Pad", ulp=0, why=MOVED)
def pad(b, n):
    x, shape, dtype = b.t(n.inputs[0]), list(n.inputs[0].shape), n.inputs[0].dtype
    pads, axes, mode = n.known(1), n.known(3, np.arange(len(shape))), n.attr("mode", "constant")
    value = None
    if mode == "constant":
        value = b.t(n.inputs[2]) if n.has(2) else f"{dtype}({number(0, dtype)})"
    for i, axis in enumerate(axes):
        axis, before, after = axis_of(axis, len(shape)), int(pads[i]), int(pads[i + len(axes)])
        if mode == "constant":
            x, shape = padded(b, x, shape, axis, before, after, value, dtype)
        elif before or after:
            how = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode]
            picked = np.pad(np.arange(shape[axis]), (before, after), mode=how).tolist()
            x = b.let(f"take({x}, i32({picked}), axis = {axis})")
            shape[axis] = len(picked)
    return x


@op("CenterCropPad", ulp=0, why=MOVED)
def center_crop_pad(b, n):
    x, shape, dtype = b.t(n.inputs[0]), list(n.inputs[0].shape), n.inputs[0].dtype
    for axis, size in zip(n.attr("axes", list(range(len(shape)))), n.known(1)):
        axis, size = axis_of(axis, len(shape)), int(size)
        more = size - shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        x, shape = padded(b, x, shape, axis, before, more - before, f"{dtype}({number(0, dtype)})", dtype)
    return x


@op("DepthToSpace", ulp=0, why=MOVED)
def depth_to_space(b, n):
    x, (N, C, H, W), k = b.t(n.inputs[0]), n.inputs[0].shape, n.attr("blocksize")
    if n.attr("mode", "DCR") == "DCR":
        x = b.transpose(b.let(f"reshape({x}, {shape_text([N, k, k, C // k**2, H, W])})"), [0, 3, 4, 1, 5, 2])
    else:
        x = b.transpose(b.let(f"reshape({x}, {shape_text([N, C // k**2, k, k, H, W])})"), [0, 1, 4, 2, 5, 3])
    return b.let(f"reshape({x}, {shape_text(n.outputs[0].shape)})")


@op("SpaceToDepth", ulp=0, why=MOVED)
def space_to_depth(b, n):
    x, (N, C, H, W), k = b.t(n.inputs[0]), n.inputs[0].shape, n.attr("blocksize")
    x = b.let(f"reshape({x}, {shape_text([N, C, H // k, k, W // k, k])})")
    order = [0, 3, 5, 1, 2, 4] if n.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return b.let(f"reshape({b.transpose(x, order)}, {shape_text(n.outputs[0].shape)})")


# Indices.

def indices(b, ids, size):
    """Indices as i32, those below zero counted from the end."""
    t = b.t(ids)
    return b.let(f"select({t} < 0, {t} + {size}, {t})") if (ids.array < 0).any() else t


@op("Gather", ulp=0, why=MOVED)
def gather(b, n):
    axis = axis_of(n.attr("axis", 0), len(n.inputs[0].shape))
    return b.let(f"take({b.t(n.inputs[0])}, {indices(b, n.inputs[1], n.inputs[0].shape[axis])}, axis = {axis})")


@op("ArrayFeatureExtractor", ulp=0, why=MOVED)
def array_feature_extractor(b, n):
    x = n.inputs[0]
    return b.let(f"take({b.t(x)}, {b.reshape(b.t(n.inputs[1]), n.inputs[1].shape, [n.inputs[1].array.size])}, axis = {len(x.shape) - 1})")


@op("GatherElements", ulp=0, why=MOVED)
def gather_elements(b, n):
    axis = axis_of(n.attr("axis", 0), len(n.inputs[0].shape))
    return b.let(f"take_along({b.t(n.inputs[0])}, {indices(b, n.inputs[1], n.inputs[0].shape[axis])}, axis = {axis})")


@op("GatherND", ulp=0, why=MOVED)
def gather_nd(b, n):
    x, ids, batch = n.inputs[0], n.inputs[1], n.attr("batch_dims", 0)
    shape, count = x.shape, ids.shape[-1]
    strides = [int(np.prod(shape[batch + i + 1 : batch + count])) for i in range(count)]
    flat = b.reshape(b.t(x), shape, [int(np.prod(shape[: batch + count]))] + list(shape[batch + count :]))
    rows = b.let(f"sum({b.t(ids)} * i32({strides}), axis = {len(ids.shape) - 1})[.., 0]")
    if batch:
        step = int(np.prod(shape[batch : batch + count]))
        size = int(np.prod(shape[:batch]))
        first = b.reshape(f"(iota({size}) * {step})", [size], list(shape[:batch]) + [1] * (len(ids.shape) - 1 - batch))
        rows = b.let(f"{rows} + {first}")
    return b.let(f"take({flat}, {rows}, axis = 0)")


@op("OneHot", ulp=0, why=MOVED)
def one_hot(b, n):
    ids, depth, values, axis = n.inputs[0], int(np.asarray(n.known(1)).reshape(-1)[0]), n.inputs[2], n.attr("axis", -1)
    rank = len(ids.shape) + 1
    axis = axis_of(axis, rank)
    t = cast(b, b.t(ids), ids.dtype, "i32")
    if (ids.array < 0).any():
        t = b.let(f"select({t} < 0, {t} + {depth}, {t})")
    t = b.reshape(t, ids.shape, list(ids.shape[:axis]) + [1] + list(ids.shape[axis:]))
    at = b.reshape(f"iota({depth})", [depth], [depth] + [1] * (rank - 1 - axis))
    off, on = (b.let(f"{b.t(values)}[{i}]") for i in (0, 1))
    return b.let(f"select({t} == {at}, {on}, {off})")


def last_axis(b, x, rank, axis):
    """The axis moved to the end, and how to move it back."""
    order = [a for a in range(rank) if a != axis] + [axis]
    back = [order.index(a) for a in range(rank)]
    return b.transpose(x, order), back


@op("TopK", ulp=0, why=MOVED)
def top_k(b, n):
    x, rank, k = n.inputs[0], len(n.inputs[0].shape), int(np.asarray(n.known(1)).reshape(-1)[0])
    t, back = last_axis(b, b.t(x), rank, axis_of(n.attr("axis", -1), rank))
    t = t if floating(x.dtype) else b.let(f"f32({t})")
    down = n.attr("largest", 1) == 1
    t = t if down else b.let(f"-{t}")
    b.count += 1
    values, ids = f"v{b.count}", f"at{b.count}"
    b.lines.append(f"let ({values}, {ids}) = top_k({t}, {k});")
    values = values if down else b.let(f"-{values}")
    values = values if floating(x.dtype) else b.let(f"{x.dtype}({values})")
    return [b.transpose(values, back), b.transpose(ids, back)]


def arg(b, x, shape, dtype, axis, sign, last):
    """The place of the largest along an axis, which stays with size 1."""
    t, back = last_axis(b, x, len(shape), axis)
    t = b.let(f"{sign}{t}") if sign else t
    size = shape[axis]
    if last:
        t = b.let(f"take({t}, i32({list(range(size))[::-1]}), axis = {len(shape) - 1})")
    b.count += 1
    b.lines.append(f"let (v{b.count}, at{b.count}) = top_k({t}, 1);")
    at = f"at{b.count}"
    at = b.let(f"{size - 1} - {at}") if last else at
    return b.transpose(at, back)


@op("ArgMax", "ArgMin", ulp=0, why=WHOLE)
def arg_max(b, n):
    x = n.inputs[0]
    axis = axis_of(n.attr("axis", 0), len(x.shape))
    at = arg(b, b.t(x), x.shape, x.dtype, axis, "-" if n.proto.op_type == "ArgMin" else "", n.attr("select_last_index", 0))
    return b.reshape(at, [1 if a == axis else k for a, k in enumerate(x.shape)], n.outputs[0].shape)


@op("Hardmax", ulp=0, why=MOVED)
def hardmax(b, n):
    x = n.inputs[0]
    axis = axis_of(n.attr("axis", -1), len(x.shape))
    at = arg(b, b.t(x), x.shape, x.dtype, axis, "", 0)
    places = b.reshape(f"iota({x.shape[axis]})", [x.shape[axis]], [x.shape[axis]] + [1] * (len(x.shape) - 1 - axis))
    return b.let(f"{x.dtype}({at} == {places})")


@op("ReverseSequence", ulp=0, why=MOVED)
def reverse_sequence(b, n):
    x, lengths, time = n.inputs[0], n.inputs[1], n.attr("time_axis", 0)
    rank, size, batch = len(x.shape), n.inputs[0].shape[time], n.attr("batch_axis", 1)
    at = b.reshape(f"iota({size})", [size], [size if a == time else 1 for a in range(rank)])
    ends = b.reshape(b.t(lengths), lengths.shape, [lengths.shape[0] if a == batch else 1 for a in range(rank)])
    return b.let(f"take_along({b.t(x)}, select({at} < {ends}, {ends} - 1 - {at}, {at}), axis = {time})")


# Made of nothing.

@op("Trilu", ulp=0, why=MOVED)
def trilu(b, n):
    x = n.inputs[0]
    rows, columns, k = x.shape[-2], x.shape[-1], int(n.known(1, np.array(0)))
    diagonal = f"iota({columns}) - reshape(iota({rows}), [{rows}, 1])"
    kept = f"{diagonal} >= {k}" if n.attr("upper", 1) else f"{diagonal} <= {k}"
    zero = "0.0" if floating(x.dtype) else "0"
    return b.let(f"select({kept}, {b.t(x)}, {zero})")


@op("EyeLike", ulp=0, why=MOVED)
def eye_like(b, n):
    rows, columns = n.inputs[0].shape
    return b.let(f"{dtype_of(n.outputs[0])}(iota({columns}) - reshape(iota({rows}), [{rows}, 1]) == {n.attr('k', 0)})")


@op("Range", of_largest=1, why=ONE)
def ranged(b, n):
    start, _, delta = n.inputs
    size, dtype = n.outputs[0].shape[0], start.dtype
    return b.let(f"{cast(b, f'iota({size})', 'i32', dtype)} * {b.t(delta)} + {b.t(start)}")


@op("Constant", ulp=0, why=MOVED)
def constant(b, n):
    return b.constant(n.outputs[0])


@op("ConstantOfShape", ulp=0, why=MOVED)
def constant_of_shape(b, n):
    out = n.outputs[0]
    value = n.attr("value")
    value = onnx.numpy_helper.to_array(value).reshape(-1)[0] if value is not None else 0.0
    return b.let(f"broadcast({dtype_of(out)}({number(value, dtype_of(out))}), {shape_text(out.shape)})")


@op("BlackmanWindow", "HannWindow", "HammingWindow", of_largest=8, why=CHAIN)
def window(b, n):
    size = n.outputs[0].shape[0]
    whole = float(size if n.attr("periodic", 1) else size - 1)
    terms = {"BlackmanWindow": [0.42, -0.5, 0.08], "HannWindow": [0.5, -0.5], "HammingWindow": [25 / 46, -21 / 46]}
    at = b.let(f"f32(iota({size}))")
    text = [repr(terms[n.proto.op_type][0])]
    for i, factor in enumerate(terms[n.proto.op_type][1:], 1):
        text.append(f"{factor!r} * cos({at} * {2 * np.pi * i / whole!r})")
    return b.let(" + ".join(reversed(text)))


# Reductions.

def axes_of(n, rank):
    axes = n.attr("axes")
    if axes is None and n.has(1):
        axes = n.known(1).tolist()
    if not axes:
        return [] if n.attr("noop_with_empty_axes", 0) else list(range(rank))
    return [axis_of(a, rank) for a in axes]


def kept(shape, axes):
    return [1 if a in axes else k for a, k in enumerate(shape)]


def product(b, x, shape, axes):
    for axis in axes:
        parts = [cut(b, x, len(shape), axis, i, i + 1) for i in range(shape[axis])]
        x = b.let(" * ".join(parts)) if parts else b.let(f"broadcast(f32(1.0), {shape_text(kept(shape, [axis]))})")
        shape = kept(shape, [axis])
    return x


@op("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", of_largest=8, why=SUMMED)
@op("ReduceMax", "ReduceMin", ulp=0, why=MOVED)
@op("ReduceProd", ulp=4, why="products in another order")
def reduced(b, n):
    x = n.inputs[0]
    t, dtype, shape, kind = b.t(x), x.dtype, x.shape, n.proto.op_type
    axes = axes_of(n, len(shape))
    count = int(np.prod([shape[a] for a in axes]))
    if not axes:
        return {"ReduceSum": t, "ReduceMax": t, "ReduceMin": t, "ReduceMean": t, "ReduceProd": t}.get(kind) or b.let(
            {"ReduceL1": f"abs({t})", "ReduceL2": f"abs({t})", "ReduceLogSum": f"log({t})", "ReduceLogSumExp": t, "ReduceSumSquare": f"{t} * {t}"}[kind])
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
            y = b.let(f"log({total(b, b.let(f'exp({t} - {top})'), dtype, axes)}) + {top}") if count else b.let(f"log({total(b, t, dtype, axes)})")
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


@op("GlobalAveragePool", "GlobalMaxPool", of_largest=4, why=SUMMED)
def global_pool(b, n):
    x = n.inputs[0]
    axes = list(range(2, len(x.shape)))
    if n.proto.op_type == "GlobalMaxPool":
        return largest(b, b.t(x), axes)
    return b.let(f"{total(b, b.t(x), x.dtype, axes)} / {float(np.prod(x.shape[2:]))!r}")


# Norms.

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
        bias = b.reshape(b.t(n.inputs[2]), w.shape, merged[-1:]) if n.has(2) else b.let(f"broadcast({x.dtype}(0.0), {shape_text(merged[-1:])})")
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


# Products.

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
            return b.reshape(b.let(f"take_along({b.t(x)}, {at}, axis = {len(x.shape) - 1})"), list(x.shape[:-1]) + [1], n.outputs[0].shape)
    raise Skip("primitive", f"Einsum {equation}")


# Losses.

def picked_loss(b, n, log_shares):
    """The negated log share of each target, weighted; what is ignored weighs nothing."""
    x, target = n.inputs[:2]
    apart = [target.shape[0], 1] + list(target.shape[1:])
    at = b.reshape(b.t(target), target.shape, apart)
    weight, ignored = None, n.attr("ignore_index")
    if ignored is not None:
        seen = b.let(f"{at} != {ignored}")
        at = b.let(f"select({seen}, {at}, 0)")
        weight = b.let(f"{x.dtype}({seen})")
    if n.has(2):
        own = b.let(f"take({b.t(n.inputs[2])}, {at}, axis = 0)")
        weight = b.let(f"{weight} * {own}") if weight else own
    loss = b.let(f"-take_along({log_shares}, {at}, axis = 1)")
    loss = b.let(f"{loss} * {weight}") if weight else loss
    if n.attr("reduction", "mean") == "none":
        return b.reshape(loss, apart, n.outputs[0].shape)
    axes, ones = list(range(len(apart))), [1] * len(apart)
    whole = total(b, loss, x.dtype, axes)
    if n.attr("reduction", "mean") == "mean":
        by = total(b, weight, x.dtype, axes) if weight else f"{float(target.array.size)!r}"
        whole = b.let(f"{whole} / {by}")
    return b.reshape(whole, ones, n.outputs[0].shape)


@op("NegativeLogLikelihoodLoss", of_largest=8, why=SUMMED)
def negative_log_likelihood(b, n):
    return picked_loss(b, n, b.t(n.inputs[0]))


@op("SoftmaxCrossEntropyLoss", of_largest=8, why=SUMMED)
def softmax_cross_entropy(b, n):
    logs = log_softmax_of(b, b.t(n.inputs[0]), n.inputs[0].dtype, 1)
    return [picked_loss(b, n, logs), logs][: len(n.outputs)]


# Numbers stored as codes.

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


# Attention.

def heads(b, v, count):
    """`[B, S, H * D]` as `[B, H, S, D]`."""
    B, S, W = v.shape
    return b.let(f"split_heads({b.t(v)}, {count}, {W // count})"), (B, count, S, W // count)


@op("Attention", of_largest=8, why="sums in another order, softmax, and the scale taken on the product, not its root on both sides")
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
            none = f"broadcast(iota(1) > 0, {shape_text(rest)})" if fill == "bool" else f"broadcast(log({fill}(0.0)), {shape_text(rest)})"
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


@op("FlexAttention", of_largest=8, why="sums in another order, and softmax")
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
        tables.append(b.let(f"f32(reshape({t}, {shape_text([B, 1, S, W])}))") if x.dtype != "f32" else b.reshape(t, [B, S, W], [B, 1, S, W]))
    cos, sin = tables
    if n.attr("interleaved", 0):
        turned = b.let(f"rope_interleaved({q if 2 * W == D else b.let(f'{q}[_, _, _, 0..{2 * W}]')}, {cos}, {sin})")
        if 2 * W != D:
            turned = b.let(f"concat([{turned}, {q}[_, _, _, {2 * W}..{D}]], axis = 3)")
    else:
        turned = b.let(f"rope_partial({q}, {cos}, {sin})")
    return b.let(f"merge_heads({turned})") if flat else turned


# What has no text of its own.

outside("window", "AveragePool Conv ConvTranspose ConvInteger DeformConv CausalConvWithState LpPool MaxPool MaxUnpool LRN Col2Im QLinearConv")
outside("resampling", "Resize Upsample GridSample AffineGrid RoiAlign NonMaxSuppression", of_largest=8, why=CHAIN)
outside("recurrent", "GRU LSTM RNN Scan LinearAttention", of_largest=8, why=SUMMED)
outside("scatter", "Scatter ScatterElements ScatterND TensorScatter")
outside("shape", "NonZero Compress Unique Shape Size")
outside("control", "If Loop SequenceInsert SequenceMap SplitToSequence OptionalGetElement OptionalHasElement SequenceConstruct SequenceEmpty SequenceAt SequenceLength SequenceErase ConcatFromSequence Optional")
outside("text", "RegexFullMatch StringConcat StringNormalizer StringSplit LabelEncoder TfIdfVectorizer TreeEnsemble ImageDecoder")
outside("random", "Bernoulli RandomUniformLike RandomUniform RandomNormal RandomNormalLike")
outside("training", "Adagrad Adam Momentum Gradient")
outside("fourier", "DFT STFT MelWeightMatrix")
outside("quantized", "QLinearMatMul DynamicQuantizeLinear", ulp=0, rounds=True, why="the quotient is rounded as ONNX's own")
outside("primitive", "Acos Asin Atan Det BitCast")
