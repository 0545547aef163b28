"""Losses: log shares chosen by index."""

from operators.reductions import log_softmax_of
from operators.table import IN_ORDER, LANES, SUMMED, op, there, total


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


@op("NegativeLogLikelihoodLoss", of_largest=8, why=SUMMED, mlx=there(of_largest=256, why=IN_ORDER), iree=there(of_largest=16, why=LANES))
def negative_log_likelihood(b, n):
    return picked_loss(b, n, b.t(n.inputs[0]))


@op("SoftmaxCrossEntropyLoss", of_largest=8, why=SUMMED, mlx=there(of_largest=256, why=IN_ORDER), iree=there(of_largest=16, why=LANES))
def softmax_cross_entropy(b, n):
    logs = log_softmax_of(b, b.t(n.inputs[0]), n.inputs[0].dtype, 1)
    return [picked_loss(b, n, logs), logs][: len(n.outputs)]
