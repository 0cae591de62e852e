"""Tensors one after the other, and their slices: cat, pad, roll, diff, windows and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product as combinations
from typing import Any

from matgrad.writers.sizes import LongerError, ShapeError, UnsupportedError, less, parted, shown
from matgrad.writers.slots import axis
from matgrad.writers.tensors import Tensor, lift
from matgrad.writers.views import Part, Picked, Window, sliced, with_dim


def piece(x: Tensor, d: int, start: Any, stop: Any) -> Tensor:
    """x[start:stop] along a dimension"""
    view = sliced(x.dims, d, slice(start, stop))
    return x if view is None else view.get(x)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of equal parts, one after the other, or of which one has a named size, with numbers of others."""
    dims = tensors[0].dims
    d, n = axis(dims, dim), len(dims)
    if len(tensors) > 1 and sum(any(isinstance(a, str) for a in x.dims[d]) for x in tensors) == 1:
        return extended(tensors, d)
    parts: list[Tensor] = []
    for x in tensors:
        own = x.dims[d]
        is_parted = bool(own) and isinstance(own[0], int)
        parts += [Part((n - 1 - d, 0), i, i + 1).get(x) for i in range(int(own[0]))] if is_parted else [x]
    return stacked(parts, d, merged=True)


def stacked(parts: Sequence[Tensor], d: int, merged: bool) -> Tensor:
    """Tensors of one shape as parts of a dimension, a new one or one that is there."""
    shapes = {x.dims for x in parts}
    if len(shapes) > 1:
        raise UnsupportedError(f"tensors of {' and '.join(map(shown, shapes))} together: a sum of sizes")
    views = [x if merged else x.unsqueeze(d) for x in parts]
    dims, n = views[0].dims, len(views[0].dims)
    new = (*dims[:d], (len(parts), *dims[d]), *dims[d + 1 :])
    result = Tensor(new, {})
    for i, x in enumerate(views):
        result = Part((n - 1 - d, 0), i, i + 1).put(result, x)
    return result if len(parts) > 1 else views[0]


def extended(tensors: Sequence[Tensor], d: int) -> Tensor:
    """A tensor of a named size T - n, with some entries before and after it: one of T, T - 1 and so on."""
    at = next(i for i, x in enumerate(tensors) if any(isinstance(a, str) for a in x.dims[d]))
    x, counts = tensors[at], [int(y.sizes[d]) if i != at else 0 for i, y in enumerate(tensors)]
    if len(x.dims[d]) > 1:
        raise UnsupportedError(f"tensors of {' and '.join(shown(y.dims) for y in tensors)} together: a sum of sizes")
    slot = (len(x.dims) - 1 - d, 0)
    base, missing = parted(x.dims[d][0])
    if sum(counts) > missing:
        raise LongerError(base, sum(counts) - missing)
    dims = with_dim(x.dims, slot, (less(x.dims[d][0], -sum(counts)),))
    if len({with_dim(y.dims, slot, ()) for y in tensors}) > 1:
        raise ShapeError(f"{' and '.join(shown(y.dims) for y in tensors)} together")
    result = Window(slot, sum(counts[:at]), sum(counts)).put(lift(0).broadcast_to(dims), x)
    for i, y in enumerate(tensors):
        first = sum(counts[:i]) + 1 if i < at else 1 - sum(counts[i:]) - missing + sum(counts)
        if i != at:
            result = Picked(slot, range(first, first + counts[i])).put(result, y)
    return Tensor(dims, result.data, x.is_bool)


def pad(x: Tensor, pads: Sequence[Any], mode: str = "constant", value: Any = 0) -> Tensor:
    """Numbers before and after the last dimensions, the last one first; negative ones take entries away."""
    if mode != "constant":
        raise UnsupportedError(f"padding of mode {mode}")
    for i in range(len(pads) // 2):
        d, before, after = len(x.dims) - 1 - i, *pads[2 * i : 2 * i + 2]
        x = piece(x, d, max(-before, 0) or None, min(after, 0) or None)
        ends = [with_dim(x.dims, (i, 0), () if n == 1 else (n,)) for n in (before, after) if n > 0]
        filled = [lift(0 if value is None else value).broadcast_to(dims) for dims in ends]
        x = cat([*filled[: before > 0], x, *filled[before > 0 :]], d) if filled else x
    return x


def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The last entries before the first ones."""
    if dims is None and len(x.dims) > 1:
        raise UnsupportedError("roll without dims")
    pairs = zip([shifts], [dims or 0], strict=True) if isinstance(shifts, int) else zip(shifts, dims, strict=True)
    for n, d in ((n, axis(x.dims, d)) for n, d in pairs if n):
        x = cat([piece(x, d, -n, None), piece(x, d, None, -n)], d)
    return x


def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """x_i+1 - x_i, n times"""
    d = axis(x.dims, dim)
    x = cat([y for y in (prepend, x, append) if y is not None], d)
    for _ in range(n):
        x = piece(x, d, 1, None) - piece(x, d, None, -1)
    return x


def windows(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """x_i, …, x_i+size-1, in a new last dimension"""
    d = axis(x.dims, dimension)
    if step != 1:
        raise UnsupportedError(f"windows with a step of {step}")
    parts = [piece(x, d, r or None, r - size + 1 or None) for r in range(size)]
    return stacked(parts, len(x.dims), merged=False)


# -- convolutions --------------------------------------------------------------------------------


def taps(w: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """The places in windows, with the matrix of weights of each."""
    sizes = w.sizes[2:]
    if any(n.constant is None for n in sizes):
        raise UnsupportedError(f"a convolution with weights {shown(w.dims)}: give the size of windows as a number")
    for place in combinations(*(range(int(n)) for n in sizes)):
        own = w
        for k, (r, n) in enumerate(zip(place, sizes, strict=True)):
            own = Part((len(sizes) - 1 - k, 0), r, r + 1).get(own) if int(n) > 1 else own
        yield place, own


def several(x: Any, n: int) -> list[int]:
    """A number for each of n dimensions."""
    return [x] * n if isinstance(x, int) else list(x)


def convolution(
    x: Tensor,
    w: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Tensor:
    """Σ_cr x_nc,i+r·w_ocr, with one input for each output if there are groups"""
    count, sizes = len(w.dims) - 2, [int(n) for n in w.sizes[2:] if n.constant is not None]
    steps = several(dilation, count)
    if any(n != 1 for n in several(stride, count)) or len(x.dims) != len(w.dims):
        raise UnsupportedError(f"a convolution of {shown(x.dims)} with strides or without a batch")
    reach = [s * (n - 1) for s, n in zip(steps, sizes, strict=False)]
    around = {"valid": [0] * count, "same": [n // 2 for n in reach]}.get(str(padding)) or several(padding, count)
    x = pad(x, [n for k in reversed(around) for n in (k, k)])
    terms = []
    for place, own in taps(w):
        part = x
        for k, (r, s, n) in enumerate(zip(place, steps, reach, strict=True)):
            part = piece(part, k + 2, r * s or None, r * s - n or None)
        terms.append(mixed(part, own, groups))
    result = sum(terms[1:], terms[0])
    return result if bias is None else result + bias.reshape(-1, *[1] * count)


def mixed(x: Tensor, w: Tensor, groups: Any) -> Tensor:
    """Σ_c x_nci·w_oc, or x_nci·w_c"""
    if isinstance(groups, int) and groups == 1:
        return (x.unsqueeze(1) * w).sum(2)
    if w.dims[1] or w.dims[0] != x.dims[1] or not groups == x.sizes[1]:
        raise UnsupportedError(f"a convolution with {groups} groups")
    return x * w.swapped(0, 1)


def transposed(
    x: Tensor,
    w: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> Tensor:
    """Σ_cr x_nc,i-r·w_cor, the transpose of a convolution"""
    count = len(w.dims) - 2
    plain = several(stride, count) + several(dilation, count) + [1 + n for n in several(output_padding, count)]
    if any(n != 1 for n in (*plain, groups)):
        raise UnsupportedError("a transposed convolution with strides, dilation or groups")
    sizes, terms = [int(n) for n in w.sizes[2:]], []
    for place, own in taps(w):
        ends = [(r - p, n - 1 - r - p) for r, n, p in zip(place, sizes, several(padding, count), strict=True)]
        terms.append(pad(mixed(x, own.swapped(0, 1), 1), [n for pair in reversed(ends) for n in pair]))
    result = sum(terms[1:], terms[0])
    return result if bias is None else result + bias.reshape(-1, *[1] * count)


def shuffled(x: Tensor, factor: int) -> Tensor:
    """Channels C·r·r of pixels H and W, as C channels of pixels H·r and W·r"""
    *batch, c, h, w = x.sizes
    n, rest = len(batch), c // (factor * factor)
    x = x.reshape(*batch, rest, factor, factor, h, w)
    order = [*range(n + 1), n + 3, n + 1, n + 4, n + 2]
    return x.permute(order).reshape(*batch, rest, h * factor, w * factor)


def unshuffled(x: Tensor, factor: int) -> Tensor:
    """The opposite of shuffled."""
    *batch, c, h, w = x.sizes
    n = len(batch)
    x = x.reshape(*batch, c, h // factor, factor, w // factor, factor)
    order = [*range(n + 1), n + 2, n + 4, n + 1, n + 3]
    return x.permute(order).reshape(*batch, c * factor * factor, h // factor, w // factor)


JOINING: dict[str, Callable[..., Any]] = {
    "cat": cat,
    "pad": pad,
    "constant_pad_nd": lambda x, pads, value=0: pad(x, pads, value=value),
    "roll": roll,
    "diff": diff,
    "unfold": windows,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), transposed),
    "pixel_shuffle": shuffled,
    "pixel_unshuffle": unshuffled,
}
