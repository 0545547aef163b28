"""An ONNX graph becomes the body of one mgraph op: values, their text, and why a case cannot be said."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i32",
    "uint32": "u32",
    "uint8": "u8",
    "bool": "bool",
}

# The closed list of reasons.
REASONS = {
    "dtype": "a dtype that the language does not have (i8, i16, u16, u64, i64 beyond i32, four or eight bit floats, two or four bit integers, complex, text)",
    "window": "convolution, pooling, sliding windows: outside the language on purpose",
    "resampling": "resampling of pictures: host code of a processor",
    "recurrent": "recurrent networks and scans over a state per token",
    "scatter": "scatter: a merge is a gather in this language",
    "shape": "a result whose shape depends on data, or a shape as a tensor: shapes are dims",
    "control": "control flow, sequences, optionals",
    "text": "text, dictionaries, trees, pictures as files: host code",
    "random": "random numbers, dropout while training",
    "training": "optimizers, statistics while training",
    "fourier": "Fourier transforms and mel filters: host code",
    "quantized": "operators that compute on quantized numbers and requantize",
    "primitive": "a function that no primitive expresses (inverse trigonometry, general powers, float remainder, bit casts, determinants)",
    "negative": "integer division, remainder or shift of negative numbers: the language leaves them open",
}


class Skip(Exception):
    """The case is outside, for one of `REASONS`; `what` says which operator or dtype."""

    def __init__(self, reason, what=""):
        assert reason in REASONS, reason
        self.reason, self.what = reason, what


def array_of(value):
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, tuple)):
        raise Skip("control", "a sequence or optional")
    return np.asarray(value)


def dtype_of(array):
    name = DTYPES.get(array.dtype.name)
    if name is None:
        raise Skip("dtype", array.dtype.name)
    if array.dtype == np.int64 and array.size and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
        raise Skip("dtype", "int64 beyond int32")
    return name


def shape_text(shape):
    return "[" + ", ".join(str(n) for n in shape) + "]"


def type_text(array):
    return dtype_of(array) + shape_text(array.shape)


def number(x, dtype):
    """A load number."""
    if dtype == "bool":
        return "true" if x else "false"
    if dtype in ("i32", "u32", "u8"):
        return str(int(x))
    x = float(x)
    if not np.isfinite(x):
        raise ValueError("no literal")
    return repr(x)


class Value:
    def __init__(self, array, text=None, static=False, name=None):
        self.array, self.text, self.static, self.name = array, text, static, name

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return dtype_of(self.array)


class Body:
    """Statements so far, and which inputs they read as tensors."""

    def __init__(self):
        self.lines, self.operands, self.count = [], [], 0

    def let(self, text):
        self.count += 1
        self.lines.append(f"let v{self.count} = {text};")
        return f"v{self.count}"

    def operand(self, name, array):
        name = "".join(c if c.isalnum() else "_" for c in name).lower()
        name = f"in_{name}"
        while any(name == known for known, _ in self.operands):
            name += "_"
        dtype_of(array)
        self.operands.append((name, array))
        return name

    def t(self, value):
        """The name of a value as a tensor."""
        if value.text is None:
            if value.static:
                value.text = self.constant(value.array, value.name or "constant")
            else:
                value.text = self.operand(value.name, value.array)
        return value.text

    def constant(self, array, name="constant"):
        array = np.asarray(array)
        dtype = dtype_of(array)
        if array.size == 1 and dtype != "bool":
            x = array.reshape(-1)[0]
            if not np.issubdtype(array.dtype, np.integer) and np.isinf(np.float64(x)):
                text = f"log({dtype}(0.0))"
                text = text if x < 0 else f"-{text}"
            elif array.dtype.kind in "fV" and np.isnan(np.float64(x)):
                return self.operand(name, array)
            else:
                text = f"{dtype}({number(x, dtype)})"
            return self.let(text if array.shape == () else f"broadcast({text}, {shape_text(array.shape)})")
        flat = array.reshape(-1)
        if array.size == 0 or array.size > 64 or dtype == "bool" or not np.all(np.isfinite(flat.astype(np.float64))):
            return self.operand(name, array)
        listed = ", ".join(number(x, dtype) for x in flat)
        text = f"{dtype}([{listed}])"
        return self.let(text if array.ndim == 1 else f"reshape({text}, {shape_text(array.shape)})")

    def reshape(self, x, old, new):
        """Splits and merges in one, a regrouping in two reshapes."""
        old, new = [int(n) for n in old], [int(n) for n in new]
        if old == new:
            return x
        if not splits_or_merges(old, new):
            x = self.let(f"reshape({x}, [{int(np.prod(old))}])")
        return self.let(f"reshape({x}, {shape_text(new)})")

    def transpose(self, x, order):
        order = [int(a) for a in order]
        return x if order == sorted(order) else self.let(f"transpose({x}, {shape_text(order)})")


def splits_or_merges(old, new):
    a, b = [n for n in old if n != 1], [n for n in new if n != 1]
    if 0 in a or 0 in b:
        return min(len(a), len(b)) <= 1
    i = j = 0
    while i < len(a) and j < len(b):
        p, q, i0, j0 = a[i], b[j], i, j
        while p != q:
            if p < q:
                i += 1
                p *= a[i]
            else:
                j += 1
                q *= b[j]
        if i > i0 and j > j0:
            return False
        i, j = i + 1, j + 1
    return True


class Node:
    def __init__(self, proto, inputs, outputs):
        self.proto, self.inputs, self.outputs = proto, inputs, outputs

    def attr(self, name, default=None):
        for a in self.proto.attribute:
            if a.name == name:
                value = onnx.helper.get_attribute_value(a)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, i):
        return i < len(self.inputs) and self.inputs[i] is not None

    def known(self, i, default=None):
        """An input that is a load parameter here: its numbers are written into the text."""
        return self.inputs[i].array if self.has(i) else default


def intermediates(model, inputs):
    """Every value of a graph of several nodes, from ONNX's reference evaluator."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    names = [o for n in model.graph.node for o in n.output if o]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    return dict(zip(names, ReferenceEvaluator(model).run(names, inputs)))


def nodes(body, graph, env, values, table, fold):
    """Statements for every node of a graph, in its order. With `fold`, what depends on no tensor is a number."""
    for proto in graph.node:
        inputs = [env[i] if i else None for i in proto.input]
        outputs = [values[o] if o else None for o in proto.output]
        static = fold and (all(v is None or v.static for v in inputs) or proto.op_type in ("Shape", "Size"))
        if static:
            texts = [None] * len(outputs)
        elif proto.op_type not in table:
            raise Skip(*table.outside(proto.op_type))
        else:
            texts = table[proto.op_type](body, Node(proto, inputs, outputs))
            texts = texts if isinstance(texts, list) else [texts]
        for name, array, text in zip(proto.output, outputs, texts):
            if name:
                env[name] = Value(array, text, static, name)


def translate(case, table):
    """`(parameters, body lines, results, operands, expected)` of a case, or `Skip`."""
    graph = case.model.graph
    inputs, expected = case.data_sets[0]
    given = {v.name: array_of(x) for v, x in zip(graph.input, inputs)}
    expected = [array_of(x) for x in expected]
    several = len(graph.node) > 1
    if several:
        values = intermediates(case.model, given)
    else:
        names = [o for o in graph.node[0].output if o]
        values = dict(zip(names, expected))
    body = Body()
    env = {name: Value(array, name=name) for name, array in given.items()}
    for tensor in graph.initializer:
        env[tensor.name] = Value(onnx.numpy_helper.to_array(tensor), static=True, name=tensor.name)
    nodes(body, graph, env, values, table, fold=several)
    if any(env[o.name].static for o in graph.output):
        raise Skip("shape", "a result that depends on no tensor")
    results = [body.t(env[o.name]) for o in graph.output]
    return body, results, expected
