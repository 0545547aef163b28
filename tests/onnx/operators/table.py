"""The table itself, how a row is entered, and text that several rows share."""

from graph import shape_text


class Table(dict):
    bounds = {}
    skipped = {}

    def outside(self, operator):
        return self.skipped.get(operator, "primitive"), operator


TABLE = Table()


def bound(ulp, of_largest, rounds, why, single=False, **on):
    """With `rounds`, floats become whole numbers on the way: right in the width that ONNX computed in, and in no other. With `single`,
    f64 is computed in f32. `mlx` and `iree` are what that backend has instead: a `bound` of its own."""
    units = {"ulp": ulp} if ulp is not None else {"of_largest": of_largest}
    flags = ({"rounds": True} if rounds else {}) | ({"single": True} if single else {})
    return units | flags | {"why": why} | ({"on": on} if on else {})


def there(why, ulp=None, of_largest=None, single=False):
    """The bound of one backend."""
    return bound(ulp, of_largest, False, why, single)


def op(*names, ulp=None, of_largest=None, rounds=False, why, **on):
    def register(f):
        for name in names:
            TABLE[name] = f
            TABLE.bounds[name] = bound(ulp, of_largest, rounds, why, **on)
        return f

    return register


def outside(reason, names, ulp=None, of_largest=None, rounds=False, why=None, **on):
    """Operators without text of their own; a bound is for cases whose function body is said all the same."""
    for name in names.split():
        Table.skipped[name] = reason
        if why:
            Table.bounds[name] = bound(ulp, of_largest, rounds, why, **on)


ONE = "one operation, rounded once as ONNX's own"
MOVED = "elements are moved, not computed"
WHOLE = "integers or bools"
FUNCTION = "another libm"
CHAIN = "a few roundings, and another libm"
SUMMED = "sums in another order, accumulated wider"
IN_ORDER = "6480 terms added one after another in f32"
LANES = "6480 terms added in f32, in several sums"
SINGLE = "exp of f64 is computed in f32"


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


def cut(b, x, rank, axis, start, end):
    slots = ", ".join(f"{start}..{end}" if a == axis else "_" for a in range(rank))
    return b.let(f"{x}[{slots}]")


def last_axis(b, x, rank, axis):
    """The axis moved to the end, and how to move it back."""
    order = [a for a in range(rank) if a != axis] + [axis]
    back = [order.index(a) for a in range(rank)]
    return b.transpose(x, order), back


def kept(shape, axes):
    return [1 if a in axes else k for a, k in enumerate(shape)]
