"""Sums of products by the letters of einsum, and diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from string import ascii_uppercase
from typing import Any

from matgrad.writers.functions import equal
from matgrad.writers.sizes import ShapeError, Size, UnsupportedError, shown
from matgrad.writers.slots import axis, counted, flat, index, named
from matgrad.writers.tensors import Tensor, positions


def einsum(equation: str, *operands: Any) -> Tensor:
    """Σ of a product, by its letters; an index that occurs twice in an operand is that of its diagonal"""
    tensors = flat(operands)
    equation = _spelled(equation.replace(" ", ""), [len(x.dims) for x in tensors])
    left, arrow, right = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if not arrow:
        letters = "".join(names)
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(set(right)) != len(right) or len(names) != len(tensors):
        raise UnsupportedError(f"einsum {equation}")
    for n, own in enumerate(names):
        while twice := next((c for c in own if own.count(c) > 1), None):
            i, j = own.index(twice), own.rindex(twice)
            tensors[n], own = diagonal(tensors[n], 0, i, j), own.replace(twice, "") + twice
        names[n] = own
    letters = right + "".join(sorted(set("".join(names)) - set(right)))
    sizes: dict[str, Any] = {}
    factors = []
    for own, x in zip(names, tensors, strict=True):
        if len(own) != len(x.dims):
            raise ShapeError(f"einsum {equation} of {shown(x.dims)}")
        for c, d in zip(own, x.dims, strict=True):
            if sizes.setdefault(c, d) != d:
                raise ShapeError(f"einsum {equation}: {c} is {Size(sizes[c])} and {Size(d)}")
        ordered = x.permute([own.index(c) for c in letters if c in own])
        factors.append(ordered.reshape(*(Size(sizes[c]) if c in own else 1 for c in letters)))
    gone = list(range(len(right), len(letters)))
    result = reduce(lambda a, b: a * b, factors)
    return result.sum(gone) if gone else result


def _spelled(equation: str, counts: Sequence[int]) -> str:
    """An equation with capital letters for the dimensions that are meant by dots."""
    left, arrow, right = equation.partition("->")
    dots = [n - len(own) + 3 if "..." in own else 0 for own, n in zip(left.split(","), counts, strict=True)]
    most = "".join(c for c in ascii_uppercase if c not in equation)[: max(dots)]
    own = ",".join(x.replace("...", most[len(most) - n :]) for x, n in zip(left.split(","), dots, strict=True))
    return own + arrow + right.replace("...", most)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x_ii, in a last dimension"""
    a, b = axis(x.dims, dim1), axis(x.dims, dim2)
    if x.dims[a] != x.dims[b] or offset:
        raise ShapeError(f"a diagonal of {shown(x.dims)}")
    x = x.permute([i for i in range(len(x.dims)) if i not in (a, b)] + [a, b])
    dims, new = x.dims, x.dims[:-1]
    names = {index(dims, (1, k)): index(new, (0, k)) for d, k in named(dims) if d == 1}
    names |= {index(dims, (0, k)): index(new, (0, k)) for d, k in named(dims) if d == 0}
    names |= {index(dims, (d, k)): index(new, (d - 1, k)) for d, k in named(dims) if d > 1}
    n = len(counted(dims[-1:]))
    data = {
        k[: len(k) - n]: e.substituted(names)
        for k, e in x.data.items()
        if k[len(k) - n :] == k[len(k) - 2 * n : len(k) - n]
    }
    return Tensor(new, data)


def diag(x: Tensor) -> Tensor:
    """x_i·[i = j] of a vector, and the diagonal of a matrix"""
    return diagonal(x) if len(x.dims) == 2 else x.unsqueeze(-1) * equal(*(positions_of(x, d) for d in (-1, -2)))


def positions_of(x: Tensor, d: int) -> Tensor:
    """The positions along a vector, in its dimension or a new one before it."""
    return positions(x.sizes[0]).unsqueeze(d)
