"""Elements moved, repeated, cut, or made of nothing."""

import numpy as np
import onnx

from graph import dtype_of, number, shape_text
from operators.table import CHAIN, MOVED, ONE, axis_of, cast, cut, floating, op


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
    fill = [
        b.let(f"broadcast({value}, {shape_text(shape[:axis] + [k] + shape[axis + 1 :])})") if k > 0 else None
        for k in (before, after)
    ]
    parts = [p for p in (fill[0], x, fill[1]) if p]
    return (b.let(f"concat([{', '.join(parts)}], axis = {axis})") if len(parts) > 1 else x), shape[:axis] + [
        shape[axis] + max(before, 0) + max(after, 0)
    ] + shape[axis + 1 :]


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
