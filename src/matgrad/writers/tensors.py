"""N-D tensors of named sizes over index notation.

A tensor has one expression in the indices of its dimensions, or one for each of the parts that a number in its shape
counts. The slot (d, k) is atom k of dimension d, counted from the right, so that broadcasting renames nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from matgrad.index_notation.conditions import Flag, positive
from matgrad.index_notation.expressions import ONE, Entry, Expression, as_expression, of, total
from matgrad.index_notation.functions import INFINITE, exact, exp, log, maximum
from matgrad.index_notation.indices import Index, Label, new_index
from matgrad.index_notation.positions import position
from matgrad.index_notation.powers import Constant
from matgrad.index_notation.sums import summed_over
from matgrad.index_notation.values import Array, evaluate
from matgrad.writers.sizes import (
    Atom,
    Atoms,
    Dims,
    ShapeError,
    Size,
    UnsupportedError,
    atoms_of,
    number,
    parted,
    shown,
)
from matgrad.writers.slots import Key, atom, axis, broadcast, counted, index, indices, keys, slots, within
from matgrad.writers.views import permutation, reshaping, transposition, unsqueezing

MINUS_INFINITY = -1e4  # numbers from here on downwards stand for it, where entries are masked


class Tensor:
    """Expressions in the indices of its slots, or indices: of positions 0, 1, … and labels."""

    def __init__(self, dims: Iterable[Atoms], data: Mapping[Key, Any], is_bool: bool = False) -> None:
        self.dims, self.data, self.is_bool = tuple(dims), dict(data), is_bool

    @property
    def is_index(self) -> bool:
        """Whether its entries are positions or labels."""
        return any(isinstance(e, Index) for e in self.data.values())

    @property
    def sizes(self) -> list[Size]:
        """The shape."""
        return [Size(d) for d in self.dims]

    @property
    def numbers(self) -> Tensor:
        """Itself, with positions and labels as the numbers that they are."""
        return Tensor(self.dims, {k: position(i) for k, i in self.data.items()}) if self.is_index else self

    @property
    def scalar(self) -> Expression | None:
        """Its expression if it is one number."""
        return None if self.dims or self.is_index else self.data[()]

    def at(self, dims: Dims, key: Key) -> Any:
        """The expression for a key of a shape to which it is broadcast."""
        place = dict(zip(counted(dims), key, strict=True))
        return self.data[tuple(place[s] for s in counted(self.dims))]

    def map(self, f: Callable[..., Expression], *others: Any, is_bool: bool = False) -> Tensor:
        """f, entry by entry."""
        tensors = [t.numbers for t in (self, *map(lift, others))]
        dims = broadcast(*(t.dims for t in tensors))
        return Tensor(dims, {k: f(*(t.at(dims, k) for t in tensors)) for k in keys(dims)}, is_bool)

    def broadcast_to(self, dims: Iterable[Atoms]) -> Tensor:
        """Repeated to a shape."""
        dims = tuple(dims)
        if len(dims) < len(self.dims) or broadcast(self.dims, dims) != dims:
            raise ShapeError(f"{shown(self.dims)} as {shown(dims)}")
        return Tensor(dims, {k: self.at(dims, k) for k in keys(dims)}, self.is_bool)

    # -- views ----------------------------------------------------------------------------------
    def reshape(self, *target: Any) -> Tensor:
        """Splits and merges of sizes in their order; sizes of 1 come and go."""
        return reshaping(self.dims, target).get(self)

    def permute(self, order: Iterable[int]) -> Tensor:
        """The dimensions in another order."""
        return permutation(self.dims, order).get(self)

    def unsqueeze(self, d: int) -> Tensor:
        """A new dimension of size 1."""
        return unsqueezing(self.dims, d).get(self)

    def swapped(self, a: int = -1, b: int = -2) -> Tensor:
        """Two dimensions in the other order."""
        return transposition(self.dims, a, b).get(self)

    # -- reductions -----------------------------------------------------------------------------
    def axes(self, dim: Any = None) -> list[int]:
        """The dimensions that are meant; None and () are all."""
        dims = dim if isinstance(dim, tuple | list) else [dim]
        return list(range(len(self.dims))) if dim is None or not dims else sorted({axis(self.dims, d) for d in dims})

    def count(self, dim: Any = None) -> Size:
        """The number of entries along some dimensions."""
        return Size(a for i in self.axes(dim) for a in self.dims[i])

    def reduced(
        self,
        dim: Any,
        keepdim: bool,
        over_parts: Callable[[list[Expression]], Expression],
        over_indices: Callable[[list[Index], Expression, Expression], Expression],
    ) -> Tensor:
        """Reduced along dimensions: first over the parts, and then over the indices, where a condition holds."""
        if self.is_index:
            return self.numbers.reduced(dim, keepdim, over_parts, over_indices)
        axes, n = self.axes(dim), len(self.dims)
        gone = [s for s in slots(self.dims) if n - 1 - s[0] in axes]
        groups: dict[Key, list[Expression]] = {}
        for key, e in self.data.items():
            kept = tuple(v for s, v in zip(counted(self.dims), key, strict=True) if s not in gone)
            groups.setdefault(kept, []).append(e)
        bound = [index(self.dims, s) for s in gone if isinstance(atom(self.dims, s), str)]
        inside = within(self.dims, gone)
        data = {key: over_indices(bound, over_parts(es), inside) for key, es in groups.items()}
        result = Tensor([() if i in axes else d for i, d in enumerate(self.dims)], data)
        return result if keepdim else result.reshape(*(n for i, n in enumerate(self.sizes) if i not in axes))

    def sum(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Σ"""
        return self.reduced(dim, keepdim, total, lambda bound, e, inside: summed_over(bound, e * inside))

    def mean(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Σ / n"""
        return self.sum(dim, keepdim) / self.count(dim)

    def max(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The greatest."""

        def of_parts(es: list[Expression]) -> Expression:
            found = es[0]
            for e in es[1:]:
                found = greatest(e, found)
            return found

        def over(bound: list[Index], e: Expression, inside: Expression) -> Expression:
            if inside != ONE:
                raise UnsupportedError(f"the greatest of entries of shape {shown(self.dims)}")
            for i in bound:
                e = maximum(lambda k, e=e, i=i: e.substituted({i: k}), i.size)  # type: ignore[misc]
            return e

        return self.reduced(dim, keepdim, of_parts, over)

    # -- arithmetic -----------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: a + b, other)

    def __radd__(self, other: Any) -> Tensor:
        return self + other

    def __sub__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: a - b, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: b - a, other)

    def __mul__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: a * b, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self * other

    def __truediv__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: a / b, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: b / a, other)

    def __neg__(self) -> Tensor:
        return self.map(lambda a: -a)

    def __pow__(self, other: Any) -> Tensor:
        e = lift(other).scalar
        if e is not None and e.constant is not None:
            p = e.constant
            return self.map(lambda a: a**p)
        return self.map(lambda a, p: exp(p * log(a)) if p else as_expression(1), other)

    def __rpow__(self, other: Any) -> Tensor:
        return lift(other) ** self

    def __matmul__(self, other: Any) -> Tensor:
        a, b = self, lift(other)
        if not a.dims or not b.dims:
            raise ShapeError(f"matmul of {shown(a.dims)} and {shown(b.dims)}")
        if len(a.dims) == 1:
            return (a * b).sum(0) if len(b.dims) == 1 else (a.unsqueeze(0) @ b)._squeezed(-2)
        if len(b.dims) == 1:
            return (a @ b.unsqueeze(-1))._squeezed(-1)
        if a.dims[-1] != b.dims[-2]:
            if sorted(map(str, a.dims[-1])) == sorted(map(str, b.dims[-2])):
                raise UnsupportedError(f"matmul of {shown(a.dims)} and {shown(b.dims)}")
            raise ShapeError(
                f"matmul of {shown(a.dims)} and {shown(b.dims)} fails unless {Size(a.dims[-1])} = {Size(b.dims[-2])}"
            )
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)

    def _squeezed(self, d: int) -> Tensor:
        d = axis(self.dims, d)
        return self.reshape(*(n for i, n in enumerate(self.sizes) if i != d))

    def __gt__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: positive(a - b), other, is_bool=True)

    def __lt__(self, other: Any) -> Tensor:
        return self.map(lambda a, b: positive(b - a), other, is_bool=True)

    def where(self, a: Any, b: Any) -> Tensor:
        """a where it holds, otherwise b."""
        return self.map(lambda c, a, b: c * a + (1 - c) * b, a, b)

    # -- numbers --------------------------------------------------------------------------------
    def numeric(self, values: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        """A NumPy array, for arrays by the names of entries and numbers for sizes."""
        atoms = [atom(self.dims, s) for s in slots(self.dims)]
        found = np.zeros([a if isinstance(a, int) else sizes[parted(a)[0]] for a in atoms])
        for key, e in self.data.items():
            with np.errstate(all="ignore"):
                found[places(atoms, key)] = evaluate(e, indices(self.dims), values, sizes)
        return found[tuple(slice(number(a, sizes)) for a in atoms)].reshape([n.value(sizes) for n in self.sizes])


def places(atoms: Iterable[Atom], key: Key) -> tuple[int | slice, ...]:
    """What selects the part of a key from an array with an axis for every atom."""
    numbers = iter(key)
    return tuple(next(numbers) if isinstance(a, int) else slice(None) for a in atoms)


def summed_to(x: Tensor, dims: Sequence[Any]) -> Tensor:
    """What autograd does to a gradient with more dimensions than its input has: it sums over them."""
    n = len(x.dims) - len(dims)
    if n < 0 or any(d not in ((), e) for d, e in zip(dims, x.dims[n:], strict=True)):
        raise ShapeError(f"the gradient has shape {shown(x.dims)}, and the argument {shown(dims)}")
    axes = [*range(n), *(n + i for i, d in enumerate(dims) if not d and x.dims[n + i])]
    return x.sum(axes).reshape(*map(Size, dims)) if axes else x


def symbols(name: str, dims: Sequence[Atoms], kind: str = "") -> Tensor:
    """x_ij; of kind '>0' positive, of kind '?' a mask, and of kind '<K' labels below K."""
    own = indices(dims)
    if kind.startswith("<"):
        if counted(dims):
            raise UnsupportedError(f"labels {name} of shape {shown(dims)}")
        return Tensor(dims, {(): Label(name, own, kind[1:])})

    def symbol(part: str) -> Expression:
        return of(Flag(part, own) if kind == "?" else Entry(part, own, is_positive=kind == ">0"))

    return Tensor(dims, {key: symbol(entry_name(name, key)) for key in keys(dims)}, kind == "?")


def entry_name(name: str, key: Key) -> str:
    """The name of the entries of a part: x.0 for the first of x."""
    return ".".join([name, *map(str, key)])


def positions(n: Any) -> Tensor:
    """0, 1, …, n - 1"""
    dims = (atoms_of(n),)
    if len(dims[0]) != 1 or not isinstance(dims[0][0], str):
        raise UnsupportedError(f"the positions in a size {n}")
    return Tensor(dims, {(): index(dims, (0, 0))})


def lift(x: Any) -> Tensor:
    """A tensor, or a number as one; infinite numbers as ∞."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Size):
        return Tensor((), {(): x.expression})
    if isinstance(x, bool):
        return Tensor((), {(): as_expression(int(x))}, is_bool=True)
    if isinstance(x, int):
        return Tensor((), {(): as_expression(x)})
    if isinstance(x, float) and math.isinf(x):
        return Tensor((), {(): of(INFINITE) * (1 if x > 0 else -1)})
    if isinstance(x, float) and math.isnan(x):
        return Tensor((), {(): of(Constant("nan"))})  # of which nothing is proved, as the code has no such number
    if isinstance(x, float):
        return Tensor((), {(): as_expression(int(x)) if x == int(x) else exact(x)})
    if hasattr(x, "item") and not getattr(x, "shape", None):
        return lift(x.item())
    raise UnsupportedError(f"an operand of type {type(x).__name__}")


def greatest(a: Expression, b: Expression) -> Expression:
    """The greater of two numbers."""
    return b + (a - b) * positive(a - b)


def gradient(x: Tensor, ys: Sequence[Tensor], gs: Sequence[Tensor]) -> Tensor:
    """Σ g·∂y/∂x, by the engine"""
    data = {}
    for key, symbol in x.data.items():
        ((m, _),) = symbol.terms.items()
        entry = m[0][0]
        new = {i: new_index(i.size) for i in entry.indices}
        at = entry.at(*new.values())
        terms = []
        for y, g in zip(ys, gs, strict=True):
            for k in keys(y.dims):
                slope = y.data[k].derivative(at)
                terms.append(summed_over(indices(y.dims), slope * g.data[k] * within(y.dims)) if slope else slope)
        data[key] = total(terms).substituted({v: i for i, v in new.items()})
    return Tensor(x.dims, data)
