"""Products with sparse matrices on a GPU, in Triton: W B, Wᵀ B and A Bᵀ on a support.

Sums have a fixed order, so that results are always the same; they are computed in the dtype of the matrices. Dense
matrices are read and written by rows: those of `out` follow each other in memory. A kernel works on slices of `BN`
columns, one slice after the other, so that the rows of a slice stay in the cache. Only launches depend on sizes, and
sizes only on shapes and nnz: kernels can be captured in a graph. A scalar is a 0-d tensor on the device, or a number,
which is compiled into the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from matgrad.engines.cuda.functions import OPTIONS, uniform
from matgrad.engines.cuda.index import Index, Lines, index_of

if TYPE_CHECKING:
    from matgrad.backends.base import Scalar
    from matgrad.sparse.support import Support

    AnySupport = Support | Index

Sums = Sequence[Any]  # β, C and α, or nothing

ALIGNED = 16  # columns: the larger their power of 2, up to this one, the more bytes are loaded at once
MANY = 1024  # elements of a program that does little with each
SLICE = 512  # columns whose rows stay in the cache
FEWEST, MOST = 64, 2048  # columns for which one kernel for both gradients is faster than two


@triton.jit
def _scalar(pointer, NUMBER: tl.constexpr, TYPE: tl.constexpr):
    """A scalar on the device, or a number, of this type."""
    if NUMBER is None:
        return tl.load(pointer).to(TYPE)
    else:
        return tl.full((), NUMBER, TYPE)


@triton.jit
def _parts(starts, segments, lines, room, length, first, BL: tl.constexpr):
    """BL of the parts that lines are cut into, from the first: number, line, first element and number of elements.

    The segments of long lines come before all lines, because they take longest.
    """
    part = first + tl.arange(0, BL)
    is_segment = part < room
    line = tl.where(is_segment, tl.load(segments + part, mask=is_segment, other=0), part - room)
    is_line = line < lines
    begin = tl.load(starts + line, mask=is_line & (part >= room), other=0)
    begin += tl.load(segments + room + part, mask=is_segment, other=0)
    count = tl.minimum(tl.load(starts + line + 1, mask=is_line, other=0) - begin, length)
    return part, line, begin, count


@triton.jit
def _store_sum(out, at, total, mask, beta, C, alpha, BETA: tl.constexpr, ALPHA: tl.constexpr):
    """Write β·C + α·(what was summed), or just that without C."""
    if C is not None:
        c = tl.load(C + at, mask=mask, other=0.0)
        total = _scalar(beta, BETA, total.dtype) * c + _scalar(alpha, ALPHA, total.dtype) * total
    tl.store(out + at, total, mask=mask)


@triton.jit(do_not_specialize=["lines", "room", "length", "units"])
def _sum_lines(
    out, partials, starts, others, places, segments, values, B, X, sampled, beta, C, alpha,
    lines, room, length, units,
    BETA: tl.constexpr, ALPHA: tl.constexpr, KEEPS: tl.constexpr, UNIT: tl.constexpr,
    BL: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """β·C + α·W B for the first elements of BL lines of W, and W B for segments of long lines.

    With X it is W B, and the sum is β·C + α·X Bᵀ for the elements of the lines, which takes the same rows of B; a tile
    then has all columns.
    """
    N = units * UNIT
    stride = N.to(tl.int64)
    groups = tl.cdiv(room + lines, BL)
    first = (tl.program_id(0) % groups) * BL
    n = (tl.program_id(0) // groups) * BN + tl.arange(0, BN)
    part, line, begin, count = _parts(starts, segments, lines, room, length, first, BL)
    is_column = (n < N)[None, :]
    is_line = (line >= 0) & (line < lines)
    at = line[:, None] * stride + n[None, :]
    if X is not None:
        x = tl.load(X + at, mask=is_line[:, None] & is_column, other=0.0)
    total = tl.zeros((BL, BN), out.dtype.element_ty)
    for first in range(0, tl.max(count, 0), BK):
        t = first + tl.arange(0, BK)[None, :]
        is_element = t < count[:, None]
        k = begin[:, None] + t
        j = tl.load(others + k, mask=is_element, other=0)
        k = tl.load(places + k, mask=is_element, other=0) if places is not None else k
        w = tl.load(values + k, mask=is_element, other=0.0)
        rows = B + j[:, :, None] * stride + n[None, None, :]
        b = tl.load(rows, mask=is_element[:, :, None] & is_column[None, :, :], other=0.0)
        total += tl.sum(w[:, :, None] * b, 1)
        if X is not None:
            _store_sum(sampled, k, tl.sum(x[:, None, :] * b, 2), is_element, beta, C, alpha, BETA, ALPHA)
    mask = (is_line & (part < room))[:, None] & is_column
    tl.store(partials + part[:, None] * stride + n[None, :], total, mask=mask)
    is_written = is_line & (part >= room)
    if KEEPS:
        is_written = is_written & (count > 0)
    mask = is_written[:, None] & is_column
    if X is None:
        _store_sum(out, at, total, mask, beta, C, alpha, BETA, ALPHA)
    else:
        tl.store(out + at, total, mask=mask)


@triton.jit(do_not_specialize=["room", "units"])
def _add_segments(
    out, partials, segments, alpha, room, units,
    ALPHA: tl.constexpr, UNIT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add to every long line the sums of its segments, times α."""
    N = units * UNIT
    stride = N.to(tl.int64)
    slot = tl.program_id(0) % room
    n = (tl.program_id(0) // room) * BN + tl.arange(0, BN)
    is_column = n < N
    count = tl.load(segments + 2 * room + slot)
    total = tl.zeros((BN,), out.dtype.element_ty)
    for first in range(0, count, BK):
        k = first + tl.arange(0, BK)
        at = partials + (slot + k)[:, None] * stride + n[None, :]
        total += tl.sum(tl.load(at, mask=(k < count)[:, None] & is_column[None, :], other=0.0), 0)
    if count > 0:
        at = out + tl.load(segments + slot) * stride + n
        tl.store(at, tl.load(at, mask=is_column) + _scalar(alpha, ALPHA, total.dtype) * total, mask=is_column)


@triton.jit
def _elements(rows, columns, nnz, BK: tl.constexpr):
    """The BK elements of a program, their rows and columns, and which of them there are: nnz may be 2^31 - 1."""
    first, t = tl.program_id(0) * BK, tl.arange(0, BK)
    k, mask = first + t, t < nnz - first
    return k, tl.load(rows + k, mask=mask, other=0), tl.load(columns + k, mask=mask, other=0), mask


@triton.jit(do_not_specialize=["nnz", "begin", "end", "units"])
def _sample_elements(
    out, rows, columns, A, B, beta, C, alpha,
    nnz, begin, end, units,
    BETA: tl.constexpr, ALPHA: tl.constexpr, UNIT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """β·C + α·A Bᵀ for BK elements, summed over some of the columns of A and B."""
    stride = (units * UNIT).to(tl.int64)
    k, i, j, is_element = _elements(rows, columns, nnz, BK)
    products = tl.zeros((BK, BN), out.dtype.element_ty)
    for first in range(begin * UNIT, end * UNIT, BN):
        n = first + tl.arange(0, BN)
        mask = is_element[:, None] & (n < end * UNIT)[None, :]
        a = tl.load(A + i[:, None] * stride + n[None, :], mask=mask, other=0.0)
        b = tl.load(B + j[:, None] * stride + n[None, :], mask=mask, other=0.0)
        products += a * b
    _store_sum(out, k, tl.sum(products, 1), is_element, beta, C, alpha, BETA, ALPHA)


@triton.jit(do_not_specialize=["nnz", "D"])
def _hash(out, rows, columns, seed, count, nnz, D, SEED: tl.constexpr, COUNT: tl.constexpr, BK: tl.constexpr):
    """Numbers from [0, 1), one per position."""
    k, i, j, mask = _elements(rows, columns, nnz, BK)
    position = i.to(tl.uint32) * D.to(tl.uint32) + j.to(tl.uint32)
    numbers = uniform(position, _scalar(seed, SEED, tl.int64), _scalar(count, COUNT, tl.int64), out.dtype.element_ty)
    tl.store(out + k, numbers, mask=mask)


# -- launches: operations on W, with values w on the support S, which write to `out` ----------------------------


def sparse_product(out: Tensor, S: AnySupport, w: Tensor, B: Tensor) -> None:
    """W B"""
    _sum(out, index_of(S, out.device).by_rows, w, B)


def transposed_sum(out: Tensor, S: AnySupport, *operands: Any) -> None:
    """Wᵀ B, or β·C + α·Wᵀ B"""
    *sums, w, B = operands
    _sum(out, index_of(S, out.device).by_columns, w, B, sums)


def sampled_sum(out: Tensor, S: AnySupport, *operands: Any) -> None:
    """(A Bᵀ)_S, or β·C + α·(A Bᵀ)_S"""
    *sums, A, B = operands
    _sample(out, index_of(S, out.device), A, B, sums)


sparse_transposed_product, sampled_product = transposed_sum, sampled_sum


def sparse_gradients(out: Tensor, sampled: Tensor, S: AnySupport, w: Tensor, A: Tensor, B: Tensor, *sums: Any) -> None:
    """Wᵀ A, and β·C + α·(A Bᵀ)_S in `sampled`, which may be w or C: DX and DW, which read the same rows of A = DZᵀ."""
    index = index_of(S, out.device)
    if FEWEST <= A.shape[1] <= MOST:
        _sum(out, index.by_columns, w, A, sums, B, sampled)
    else:
        _sum(out, index.by_columns, w, A)
        _sample(sampled, index, A, B, sums)


def dense(out: Tensor, S: AnySupport, w: Tensor) -> None:
    """W"""
    index = index_of(S, out.device)
    out.zero_()[index.row_indices, index.by_rows.others] = w[0]


def uniform_on(out: Tensor, S: AnySupport, seed: Any, count: Any) -> None:
    """uniform(m, n, seed, count)_S"""
    index, nnz, (seed, SEED), (count, COUNT) = index_of(S, out.device), S.nnz, _split(seed, out), _split(count, out)
    at, D = (index.row_indices, index.by_rows.others), S.shape[1]
    with torch.cuda.device_of(out):
        _hash[(triton.cdiv(nnz, MANY),)](out, *at, seed, count, nnz, D, SEED, COUNT, BK=MANY, **OPTIONS)


def _sum(out: Tensor, lines: Lines, w: Tensor, B: Tensor, sums: Sums = (), X: Any = None, sampled: Any = None) -> None:
    """β·C + α·W B for the matrix W with these lines, W B without C, or W B and β·C + α·X Bᵀ for its elements."""
    (m, N), room, X = out.shape, lines.segments.shape[1], X if X is None else X.contiguous()
    w, B = w.contiguous(), B.contiguous()
    (beta, BETA), C, (alpha, ALPHA) = _scaled(sums, out)
    is_kept = X is None and C is not None and BETA == 1 and C.data_ptr() == out.data_ptr()
    unit, (BL, BK, BN, warps) = gcd(N, ALIGNED), _sum_tile(N) if X is None else _gradients_tile(N)
    programs, partials = triton.cdiv(room + m, BL) * triton.cdiv(N, BN), out.new_empty((room, N))
    with torch.cuda.device_of(out):
        _sum_lines[(programs,)](
            out, partials, lines.starts, lines.others, lines.places, lines.segments, w, B, X, sampled, beta, C, alpha,
            m, room, lines.length, N // unit, BETA, ALPHA, is_kept, unit, BL, BK, BN, num_warps=warps, **OPTIONS,
        )  # fmt: skip
        if room:
            (alpha, ALPHA), (_, BK, BN, warps) = (None, 1) if X is not None else (alpha, ALPHA), _sum_tile(N)
            _add_segments[(room * triton.cdiv(N, BN),)](
                out, partials, lines.segments, alpha, room, N // unit, ALPHA, unit, BK, BN, num_warps=warps, **OPTIONS
            )


def _sample(out: Tensor, index: Index, A: Tensor, B: Tensor, sums: Sums = ()) -> None:
    """β·C + α·(A Bᵀ)_S, or (A Bᵀ)_S without C."""
    (beta, BETA), C, (alpha, ALPHA) = _scaled(sums, out)
    N, A, B = A.shape[1], A.contiguous(), B.contiguous()
    unit, BN = gcd(N, ALIGNED), min(triton.next_power_of_2(N), 64)
    units, width, BK = N // unit, SLICE // unit, 2048 // BN
    with torch.cuda.device_of(out):
        for first in range(0, units, width):
            _sample_elements[(triton.cdiv(index.nnz, BK),)](
                out, index.row_indices, index.by_rows.others, A, B, beta, C, alpha,
                index.nnz, first, min(first + width, units), units, BETA, ALPHA, unit, BK, BN, num_warps=4,
                **OPTIONS,
            )  # fmt: skip
            beta, BETA, C = None, 1, out  # to which the other slices add


# Tiles, as measured on an H200 for layers with 16384, one million and five million neurons.


def _sum_tile(N: int) -> tuple[int, int, int, int]:
    """The lines, elements and columns of a tile, and its warps."""
    BN = min(triton.next_power_of_2(N), 128)
    BK = 8 if BN < 64 else 4
    return 1024 // (BK * BN), BK, BN, 2


def _gradients_tile(N: int) -> tuple[int, int, int, int]:
    """The same for a tile with all columns."""
    BN = triton.next_power_of_2(N)
    return 1, 4 if BN < 512 else 2, BN, max(1, BN // 512)


def _split(c: Scalar, out: Tensor) -> tuple[Tensor | None, Any]:
    """A scalar as kernels take it: a tensor on the device and None, or None and a number."""
    if isinstance(c, Tensor) and c.device == out.device:
        return c, None
    return None, c.item() if hasattr(c, "item") else c


def _scaled(sums: Sums, out: Tensor) -> tuple[tuple[Any, Any], Any, tuple[Any, Any]]:
    """β, C and α as kernels take them; without a C they are not used."""
    beta, C, alpha = sums or (0, None, 1)
    return _split(beta, out), C if C is None else C.contiguous(), _split(alpha, out)
