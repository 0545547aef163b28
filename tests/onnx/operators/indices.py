"""Choosing by indices, and by size."""

import numpy as np

from operators.table import MOVED, WHOLE, axis_of, cast, floating, last_axis, op


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
    return b.let(
        f"take({b.t(x)}, {b.reshape(b.t(n.inputs[1]), n.inputs[1].shape, [n.inputs[1].array.size])}, axis = {len(x.shape) - 1})"
    )


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
