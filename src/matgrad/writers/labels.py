"""Tensors indexed with labels and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matgrad.index_notation.expressions import Expression, delta, multiplied
from matgrad.index_notation.indices import Index, new_index, opposite
from matgrad.index_notation.positions import Position, position
from matgrad.index_notation.sums import summed_over
from matgrad.writers.sizes import Less, ShapeError, Size, UnsupportedError, shown
from matgrad.writers.slots import Key, atom, axis, broadcast, counted, index, keys, named
from matgrad.writers.tensors import Tensor, lift

# -- labels --------------------------------------------------------------------------------------


def label(t: Tensor) -> Index:
    """The index that the entries of a tensor of labels or positions are."""
    if t.is_index:
        found: Index = t.data[()]
        return found
    for e in t.data.values() if set(t.data) == {()} else ():
        for i in (f.index for f in e.factors() if isinstance(f, Position)):
            for j in (i, opposite(i)):
                if e == position(j):
                    return j
    raise UnsupportedError('indexing with a tensor that does not have labels: give its range, such as t="N < K"')


def one_hot(t: Tensor, number: Any = -1) -> Tensor:
    """[t_i = k]"""
    k = label(t.unsqueeze(-1))
    dims = (*t.dims, (k.size,))
    if isinstance(number, Size) and number.atoms != (k.size,):
        raise ShapeError(f"one_hot of labels below {k.size} with {number} classes")
    return Tensor(dims, {(): delta(k, index(dims, (0, 0)))})


def _axis_index(x: Tensor, d: int) -> Index:
    """The index of a dimension that labels can stand for."""
    if len(x.dims[d]) != 1 or not isinstance(x.dims[d][0], str) or isinstance(x.dims[d][0], Less):
        raise UnsupportedError(f"labels for a size {Size(x.dims[d])}")
    return index(x.dims, (len(x.dims) - 1 - d, 0))


def _hot(t: Index, k: Index) -> Expression:
    """[t = k]"""
    if t.size != k.size:
        raise ShapeError(f"labels below {t.size} for a size {k.size}")
    return delta(t, k)


def _labeled(k: Index, t: Tensor) -> Index:
    """The label for an index of the same size."""
    if label(t).size != k.size:
        raise ShapeError(f"labels below {label(t).size} for a size {k.size}")
    return label(t)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """x_ij with t_ij for an index"""
    d, t = axis(x.dims, dim), index
    others = [x.dims[i] == t.dims[i] for i in range(len(x.dims)) if i != d] if len(t.dims) == len(x.dims) else [False]
    if not all(others):
        raise UnsupportedError(f"gather from {shown(x.dims)} with labels {shown(t.dims)}")
    k = _axis_index(x, d)
    return Tensor(t.dims, {key: e.substituted({k: _labeled(k, t)}) for key, e in x.data.items()})


def taken(x: Tensor, labels: Sequence[Tensor]) -> Tensor:
    """x[t, …], with labels or positions for its first dimensions"""
    rest, dims = x.dims[len(labels) :], broadcast(*(t.dims for t in labels))
    wide = [t.reshape(*t.sizes, *[1] * len(rest)) for t in labels]
    ks = [_axis_index(x, d) for d in range(len(labels))]
    names = {k: _labeled(k, t) for k, t in zip(ks, wide, strict=True)}
    return Tensor((*dims, *rest), {key: e.substituted(names) for key, e in x.data.items()})


def put(x: Tensor, labels: Sequence[Tensor], value: Tensor, is_sum: bool = False) -> Tensor:
    """x with x[t, …] = v, where a position is among the labels, so that no entry is put twice; or with x[t, …] += v"""
    dims, rest = broadcast(*(t.dims for t in labels)), x.dims[len(labels) :]
    if counted(dims) or any(isinstance(a, Less) for dim in dims for a in dim):
        raise UnsupportedError(f"an assignment at labels {' and '.join(shown(t.dims) for t in labels)}")
    rows = {index((*dims, *rest), (d + len(rest), k)): new_index(str(atom(dims, (d, k)))) for d, k in named(dims)}
    own = {index(dims, s): i for s, i in zip(named(dims), rows.values(), strict=True)}
    places = [label(t).at(own) for t in labels]
    if not is_sum and not set(own.values()) <= set(places):
        raise UnsupportedError("an assignment at labels, of which two may be equal")
    hot = multiplied(_hot(p, _axis_index(x, d)) for d, p in enumerate(places))
    new = value.broadcast_to((*dims, *rest))
    here = summed_over(rows.values(), hot)

    def changed(key: Key, e: Expression) -> Expression:
        there = summed_over(rows.values(), hot * new.data[key].substituted(rows))
        return e + there if is_sum else e * (1 - here) + there

    return Tensor(x.dims, {key: changed(key, e) for key, e in x.data.items()})


def scattered(x: Tensor, dim: int, t: Tensor, source: Any, add: bool) -> Tensor:
    """x_kj + Σ_i [t_ij = k]·s_ij; without `add`, entries are put, of one label for each place"""
    d, n = axis(x.dims, dim), len(x.dims)
    others = [i for i in range(n) if i != d]
    if len(t.dims) != n or any(t.dims[i] != x.dims[i] for i in others) or (t.dims[d] and not add):
        raise UnsupportedError(f"scatter to {shown(x.dims)} at labels {shown(t.dims)}")
    k = _axis_index(x, d)
    wide = t.unsqueeze(d + 1)
    dims = (*x.dims[:d], t.dims[d], x.dims[d], *x.dims[d + 1 :])
    hot = Tensor(dims, dict.fromkeys(keys(dims), _hot(label(wide), k)))
    source = lift(source).broadcast_to(t.dims).unsqueeze(d + 1)
    here, there = ((hot * e).sum(d) for e in (1, source))
    return x + there if add else x * (1 - here) + there


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1) -> Tensor:
    """x_k + Σ_i [t_i = k]·s_i"""
    d, n, t = axis(x.dims, dim), len(x.dims), index
    hot = one_hot(t).swapped().reshape(*x.sizes[d : d + 1], *t.sizes, *[1] * (n - 1 - d))
    if len(t.dims) != 1 or source.dims != (*x.dims[:d], t.dims[0], *x.dims[d + 1 :]):
        raise ShapeError(f"index_add of {shown(source.dims)} to {shown(x.dims)} at {shown(t.dims)}")
    return x + (hot * source.unsqueeze(d)).sum(d + 1) * alpha
