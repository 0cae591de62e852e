"""The primitives of JAX on tensors of index notation, and the jaxprs that consist of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax._src import source_info_util

from matgrad.index_notation.expressions import ONE, Expression
from matgrad.index_notation.indices import Index
from matgrad.index_notation.positions import Position, position
from matgrad.writers.contractions import einsum
from matgrad.writers.joining import cat, pad, piece, stacked
from matgrad.writers.labels import put, taken
from matgrad.writers.operations import OPERATIONS, cumsum, flip, squeezed
from matgrad.writers.sizes import Atoms, DivisionError, Less, Size, UnsupportedError, atoms_of, merged
from matgrad.writers.slots import axis, broadcast
from matgrad.writers.tensors import Tensor, lift, positions
from matgrad.writers.views import Part, selected, sliced

LETTERS = "abcdefghijklmnopqrstuvwxyz"


# -- sizes ---------------------------------------------------------------------------------------


def atoms(n: Any) -> Atoms:
    """The atoms of a size in a jaxpr: of 1, D, 2*D or H*K."""
    text = re.sub(r"\s", "", str(n))
    if match := re.fullmatch(r"([^\W\d]\w*)([+-]\d+)|([+-]?\d+)\+([^\W\d]\w*)", text):
        return atoms_of(Size((match[1] or match[4],)) + int(match[2] or match[3]))
    words = text.split("*")
    if not all(re.fullmatch(r"\w+(\^\d+)?", word) for word in words):
        raise UnsupportedError(f"a size {n}")
    pairs = (word.partition("^") for word in words)
    found = [a for a, _, p in pairs for _ in range(int(p or 1))]
    return tuple(int(a) if a.isdigit() else a for a in found if a != "1")


def sizes(shape: Sequence[Any]) -> list[Size]:
    """A shape."""
    return [Size(atoms(n)) for n in shape]


def value_of_size(dim: Any) -> Tensor:
    """A size, or a sum of sizes, as a number."""
    terms = re.findall(r"([+-]?)([^+-]+)", re.sub(r"\s", "", str(dim)))
    return lift(0) + sum((lift(Size(atoms(term))) * (-1 if sign == "-" else 1) for sign, term in terms), lift(0))


# -- primitives ----------------------------------------------------------------------------------


def dot_general(a: Tensor, b: Tensor, dimension_numbers: Any, **_: Any) -> Tensor:
    """Σ of a product, over some dimensions, for each entry of others."""
    (contracted_a, contracted_b), (batch_a, batch_b) = dimension_numbers
    left = list(LETTERS[: len(a.dims)])
    right = list(LETTERS[len(a.dims) : len(a.dims) + len(b.dims)])
    for i, j in (*zip(contracted_a, contracted_b, strict=True), *zip(batch_a, batch_b, strict=True)):
        right[j] = left[i]
    batch = [left[i] for i in batch_a]
    free = [c for c in (*left, *right) if (c in left) != (c in right)]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join((*batch, *free))}", a, b)


def broadcast_in_dim(x: Tensor, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any) -> Tensor:
    """Repeated along new dimensions."""
    target = sizes(shape)
    own = [x.sizes[broadcast_dimensions.index(i)] if i in broadcast_dimensions else 1 for i in range(len(target))]
    y = x.reshape(*own)
    return y.broadcast_to([d or n.atoms for d, n in zip(y.dims, target, strict=True)])


def slice_(x: Tensor, start_indices: Any, limit_indices: Any, strides: Any) -> Tensor:
    """x[a:b]"""
    for d, (a, b) in enumerate(zip(start_indices, limit_indices, strict=True)):
        start, stop = (n if isinstance(n, int) else Size(atoms(n)) for n in (a, b))
        part = sliced(x.dims, d, slice(start, stop, None if strides is None else strides[d]))
        x = x if part is None else part.get(x)
    return x


def split(x: Tensor, sizes: Any, axis: int) -> list[Tensor]:
    """Equal parts."""
    whole, n = x.dims[axis], len(sizes)
    if len(set(map(str, sizes))) > 1 or not whole or not isinstance(whole[0], int) or whole[0] % n:
        raise DivisionError(f"{n} parts of a size {Size(whole)}", whole[0] if whole else 1, n, is_last=False)
    step = whole[0] // n
    return [Part((len(x.dims) - 1 - axis, 0), i * step, (i + 1) * step).get(x) for i in range(n)]


def iota(*_: Any, shape: Any, dimension: int, **__: Any) -> Tensor:
    """Positions along a dimension."""
    own = [n if i == dimension else 1 for i, n in enumerate(sizes(shape))]
    return positions(sizes(shape)[dimension]).reshape(*own).broadcast_to([n.atoms for n in sizes(shape)])


def maximum(a: Any, b: Any) -> Tensor:
    """The greater; of -∞ and a number, the number."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Tensor) and x.scalar is not None and x.scalar == lift(-math.inf).scalar:
            return lift(y)
    return OPERATIONS["maximum"](a, b)


def shifted(name: str, nothing: int) -> Callable[..., Any]:
    """A sum or a product, which leaves positions as they are if nothing is added to them."""

    def f(x: Tensor, y: Tensor) -> Any:
        for a, b in ((x, y), (y, x)):
            if a.is_index and b.scalar is not None and b.scalar.constant == nothing:
                return a
        return OPERATIONS[name](x, y)

    return f


class Columns:
    """Indices beside each other, of which each is for another dimension."""

    def __init__(self, *columns: Tensor) -> None:
        self.columns = columns


def concatenate(*xs: Tensor, dimension: int) -> Any:
    """Tensors one after the other; or indices beside each other."""
    if all(x.is_index for x in xs):
        return Columns(*(squeezed(x, dimension) for x in xs))
    return cat(xs, dimension)


def chosen(condition: Tensor, no: Any, yes: Any) -> Tensor:
    """What a condition chooses; one that always or never holds needs nothing of the other."""
    c = [e.constant for e in condition.data.values()]
    if set(c) in ({0}, {1}):
        found = lift(yes if c[0] else no)
        return found if found.is_index else found.broadcast_to(broadcast(found.dims, condition.dims))
    return OPERATIONS["where"](condition, yes, no)


def indexed(d: Any, operand: Tensor, indices: Any, map_name: str, batched: str) -> tuple[list[int], list[Tensor]]:
    """The dimensions that have indices, and those; dimensions of a batch have positions."""
    columns = list(indices.columns) if isinstance(indices, Columns) else [squeezed(indices, len(indices.dims) - 1)]
    own = [*getattr(d, batched), *getattr(d, map_name)]
    shape = columns[0].dims
    places = [
        positions(operand.sizes[o]).reshape(*(n if i == b else 1 for i, n in enumerate(map(Size, shape))))
        for o, b in zip(getattr(d, batched), _batched(d), strict=True)
    ]
    return own, [*places, *columns]


def _batched(d: Any) -> Sequence[int]:
    name = "start_indices_batching_dims" if hasattr(d, "offset_dims") else "scatter_indices_batching_dims"
    found: Sequence[int] = getattr(d, name)
    return found


def gather(x: Tensor, at: Any, dimension_numbers: Any, slice_sizes: Any, **_: Any) -> Tensor:
    """x[t, …], with indices for some dimensions, all of the others"""
    d, n = dimension_numbers, len(x.dims)
    own, labels = indexed(d, x, at, "start_index_map", "operand_batching_dims")
    if sorted(own) != sorted((*d.operand_batching_dims, *d.collapsed_slice_dims)):
        return _slices(x, at, d, slice_sizes)
    rest = [i for i in range(n) if i not in own]
    found = selected_or_taken(x.permute([*own, *rest]), labels)
    batch = len(found.dims) - len(rest)
    order, places = iter(range(batch)), {o: batch + i for i, o in enumerate(d.offset_dims)}
    return found.permute([places[i] if i in places else next(order) for i in range(len(found.dims))])


def strided(x: Tensor, d: int, t: Tensor) -> tuple[Tensor, Tensor]:
    """x[c + n·i] with i for its dimension d, whose last atom is n"""
    dim, e = x.dims[d], t.data.get(())
    if not isinstance(e, Expression):
        return x, t
    for i in (f.index for f in e.factors() if isinstance(f, Position)):
        n = dim[-1] if dim else 1
        c = (e - position(i) * n).constant if isinstance(n, int) else None
        if dim == (i.size, n) and c is not None and c in range(int(n)):
            own = Tensor(t.dims, {(): i})
            return Part((len(x.dims) - 1 - d, 1), int(c), int(c) + 1).get(x), own
    return x, t


def selected_or_taken(x: Tensor, labels: Sequence[Tensor]) -> Tensor:
    """x[t, …]; numbers select entries of counted dimensions"""
    if len(labels) == 1 and not labels[0].dims and not labels[0].is_index:
        for view in selected(x.dims, 0, _number(labels[0])):
            x = view.get(x)
        return x
    labels = list(labels)
    for d, t in enumerate(labels):
        x, labels[d] = strided(x, d, t)
    return taken(x, labels)


def _number(x: Any) -> int:
    c = x.scalar.constant if isinstance(x, Tensor) and x.scalar is not None else None
    if c is None or c.denominator != 1:
        raise UnsupportedError("an index that is no number, label or position")
    return int(c)


def _slices(x: Tensor, at: Tensor, d: Any, slice_sizes: Any) -> Tensor:
    """x[a:b] from a number on."""
    if len(at.dims) != 1 or at.dims[0] or d.collapsed_slice_dims or len(d.start_index_map) != 1:
        raise UnsupportedError("indexing that selects neither entries nor one slice")
    dim = d.start_index_map[0]
    length, start = Size(atoms(slice_sizes[dim])), squeezed(at, 0).data[()]
    if isinstance(start, Expression) and [*map(type, x.dims[dim])] in ([str], [Less]):
        return piece(x, dim, *_ends(start, length, Size(x.dims[dim])))
    parts = None if isinstance(start, Index) else (start / length.expression).constant
    if parts is None or parts.denominator != 1:
        raise UnsupportedError(f"a slice of {length} entries from {start} on")
    first, last = (Size(merged((n, *length.atoms))) if n else 0 for n in (int(parts), int(parts) + 1))
    part = sliced(x.dims, dim, slice(first, last))
    return x if part is None else part.get(x)


def _ends(start: Expression, length: Size, size: Size) -> tuple[Any, Any]:
    """Where a slice of a named size begins and ends, in numbers from its first or last entries on."""
    own = length if length.constant is None else length.constant
    if (c := start.constant) is not None:
        return int(c), own + int(c)
    if (c := (start - size.expression).constant) is not None and isinstance(own, int):
        return int(c), int(c) + own or None
    raise UnsupportedError(f"a slice of {length} entries from {start} on")


def padded(x: Tensor, value: Tensor, padding_config: Any) -> Tensor:
    """x with a number before and after each dimension"""
    if any(inside for _, _, inside in padding_config):
        raise UnsupportedError("padding between entries")
    return pad(x, [n for low, high, _ in reversed(padding_config) for n in (int(low), int(high))], value=value)


def scatter(x: Tensor, at: Any, updates: Tensor, dimension_numbers: Any, is_sum: bool, **_: Any) -> Tensor:
    """x[t, …] = v, or += v"""
    d, n = dimension_numbers, len(x.dims)
    own, labels = indexed(d, x, at, "scatter_dims_to_operand_dims", "operand_batching_dims")
    if sorted(own) != sorted((*d.operand_batching_dims, *d.inserted_window_dims)):
        raise UnsupportedError("an update of slices")
    rest = [i for i in range(n) if i not in own]
    order = [*own, *rest]
    batch = [i for i in range(len(updates.dims)) if i not in d.update_window_dims]
    found = put(x.permute(order), labels, updates.permute([*batch, *d.update_window_dims]), is_sum)
    return found.permute([order.index(i) for i in range(n)])


def same(x: Any, *_: Any, **__: Any) -> Any:
    """Itself."""
    return x


RENAMED = {
    "add": "add add_any",
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "sigmoid": "logistic",
    "minimum": "min",
}
SAME = [
    "exp",
    "log",
    "erf",
    "sin",
    "cos",
    "tanh",
    "sqrt",
    "abs",
    "sign",
    "neg",
    "square",
    "rsqrt",
    "expm1",
    "log1p",
    "log2",
    "exp2",
    "erfc",
    "sinh",
    "cosh",
]
SAME += ["sub", "mul", "div", "pow", "gt", "lt", "ge", "le", "eq", "ne"]
PRIMITIVES: dict[str, Callable[..., Any]] = {
    **{name: OPERATIONS[name] for name in SAME},
    **{name: OPERATIONS[own] for own, names in RENAMED.items() for name in names.split()},
    **dict.fromkeys(["convert_element_type", "stop_gradient", "copy", "copy_p", "reduce_precision"], same),
    "max": maximum,
    "add": shifted("add", 0),
    "mul": shifted("mul", 1),
    "integer_pow": lambda x, y: x**y,
    "clamp": lambda low, x, high: OPERATIONS["clamp"](x, low, high),
    "select_n": chosen,
    "gather": gather,
    "scatter": partial(scatter, is_sum=False),
    "scatter-add": partial(scatter, is_sum=True),
    "is_finite": lambda x: x.map(lambda e: ONE, is_bool=True),
    "reduce_sum": lambda x, axes, **_: x.sum(axes),
    "reduce_max": lambda x, axes, **_: x.max(axes),
    "reduce_min": lambda x, axes, **_: -(-x).max(axes),
    "cumsum": lambda x, axis, reverse: flip(cumsum(flip(x, axis), axis), axis) if reverse else cumsum(x, axis),
    "rev": lambda x, dimensions: flip(x, *dimensions),
    "dot_general": dot_general,
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": lambda x, *_, new_sizes, **__: x.reshape(*sizes(new_sizes)),
    "squeeze": lambda x, dimensions: x.reshape(
        *(n for i, n in enumerate(x.sizes) if i not in [axis(x.dims, d) for d in dimensions])
    ),
    "transpose": lambda x, permutation: x.permute(permutation),
    "slice": slice_,
    "split": split,
    "concatenate": concatenate,
    "stack": lambda *xs, axis, **_: stacked(xs, axis, merged=False),
    "iota": iota,
    "dim_as_value": value_of_size,
    "pad": padded,
}
CALLS = [
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "checkpoint",
    "custom_vjp_call_jaxpr",
]
NO_OPTIONS = {*SAME, *(name for names in RENAMED.values() for name in names.split()), "max", "stop_gradient"}


def interpreted(closed: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a jaxpr on tensors of index notation."""
    jaxpr = getattr(closed, "jaxpr", closed)
    constants = [lift(c.item()) if np.ndim(c) == 0 else _constants(c) for c in getattr(closed, "consts", [])]
    values = dict(zip(jaxpr.constvars, constants, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))

    def value(v: Any) -> Any:
        return lift(v.val.item() if hasattr(v.val, "item") else v.val) if hasattr(v, "val") else values[v]

    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        inputs = [value(v) for v in equation.invars]
        try:
            if name in CALLS:
                inner = options.get("jaxpr") or options.get("call_jaxpr") or options.get("fun_jaxpr")
                found: Any = interpreted(inner, inputs)
            elif name not in PRIMITIVES:
                raise UnsupportedError(f"the primitive {name} of JAX")
            else:
                found = PRIMITIVES[name](*inputs, **({} if name in NO_OPTIONS else options))
        except UnsupportedError as error:
            frame = source_info_util.user_frame(equation.source_info.traceback)
            error.place = error.place or (frame and (frame.file_name, frame.start_line))
            raise
        outputs = found if isinstance(found, list | tuple) else [found]
        values |= dict(zip(equation.outvars, outputs, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _constants(x: Any) -> Tensor:
    return OPERATIONS["stack"]([_constants(p) if np.ndim(p) else lift(p.item()) for p in np.asarray(x)])
