"""One or two numbers at a time."""

import numpy as np

from graph import Skip, dtype_of
from operators.table import CHAIN, FUNCTION, MOVED, ONE, TABLE, WHOLE, cast, floating, op, there


def plain(b, n, text):
    return b.let(text.format(*[b.t(n.inputs[j]) for j in range(len(n.inputs)) if n.has(j)]))


for _name, _text in {
    "Abs": "abs({0})",
    "Neg": "-{0}",
    "Not": "!{0}",
    "Sqrt": "sqrt({0})",
    "Relu": "relu({0})",
    "Reciprocal": "1.0 / {0}",
    "IsNaN": "{0} != {0}",
}.items():
    op(_name, ulp=0, why=ONE)(lambda b, n, t=_text: plain(b, n, t))
for _name, _text in {
    "Log": "log({0})",
    "Tanh": "tanh({0})",
}.items():
    op(_name, ulp=4, why=FUNCTION)(lambda b, n, t=_text: plain(b, n, t))
op(
    "Erf", ulp=4, why=FUNCTION, mlx=there(of_largest=5, why="its erf is good to 5e-7, however small the result")
)(lambda b, n: plain(b, n, "erf({0})"))
ANGLE = "what is left of an angle is rounded to f32: good to 2e-7, however small the result"
for _name in ["Sin", "Cos"]:
    op(_name, ulp=4, why=FUNCTION, iree=there(of_largest=2, why=ANGLE))(lambda b, n, t=_name.lower(): plain(b, n, t + "({0})"))
op("Exp", ulp=7, why=FUNCTION)(lambda b, n: plain(b, n, "exp({0})"))
op("Sigmoid", ulp=8, why=CHAIN)(lambda b, n: plain(b, n, "sigmoid({0})"))
op("Tan", ulp=8, why=CHAIN, iree=there(of_largest=45, why="as its sin and cos, times a tangent of 26"))(lambda b, n: plain(b, n, "sin({0}) / cos({0})"))
op("Sinh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * (exp({0}) - exp(-{0}))"))
op("Cosh", ulp=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * (exp({0}) + exp(-{0}))"))
op("Asinh", of_largest=8, why=CHAIN)(
    lambda b, n: plain(b, n, "select({0} < 0.0, -log(sqrt({0} * {0} + 1.0) - {0}), log({0} + sqrt({0} * {0} + 1.0)))")
)
op("Acosh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "log({0} + sqrt({0} * {0} - 1.0))"))
op("Atanh", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "0.5 * log((1.0 + {0}) / (1.0 - {0}))"))
op("Softplus", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "max({0}, 0.0) + log(1.0 + exp(-abs({0})))"))
op("Softsign", ulp=2, why="a few roundings")(lambda b, n: plain(b, n, "{0} / (1.0 + abs({0}))"))
op("Mish", of_largest=8, why=CHAIN)(lambda b, n: plain(b, n, "{0} * tanh(log(1.0 + exp({0})))"))
op("HardSwish", of_largest=2, why="a few roundings")(
    lambda b, n: plain(b, n, "{0} * max(min({0} * 0.16666666666666666 + 0.5, 1.0), 0.0)")
)
op("Identity", ulp=0, why="nothing is computed")(lambda b, n: b.t(n.inputs[0]))


@op("Sign", ulp=0, why=ONE)
def sign(b, n):
    x, dtype = b.t(n.inputs[0]), n.inputs[0].dtype
    zero = "0.0" if floating(dtype) else "0"
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


def two(symbol):
    def text(b, n):
        return b.let(f"{b.t(n.inputs[0])} {symbol} {b.t(n.inputs[1])}")

    return text


for _name, _symbol in {"Add": "+", "Sub": "-", "Mul": "*"}.items():
    op(_name, ulp=0, why=ONE)(two(_symbol))
for _name, _symbol in {
    "Greater": ">",
    "Less": "<",
    "GreaterOrEqual": ">=",
    "LessOrEqual": "<=",
    "Equal": "==",
    "Xor": "!=",
}.items():
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
