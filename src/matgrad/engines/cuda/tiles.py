"""How products and maps are cut into tiles: rules found by measurement on an H200, and never by timing at run time.

So a program has the same kernels in every run, and its results are the same to the last bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from matgrad.engines.cuda.fusion import Group, Method
from matgrad.program.program import Value

TILED = ("matmul", "product_sum")  # of which there are kernels of our own
UNITS = 132  # multiprocessors that should have work
LARGE = 500_000_000  # multiplications of a product from which on cuBLAS is faster, though nothing is fused with it
SHORT = 128  # terms of a sum that one tile adds up, instead of several that each add up a part
SHORT_ON_TENSOR_CORES = 1024
MOST_PARTS = 256  # of a sum


class Tile(NamedTuple):
    """The size of a tile, how many terms of a product it loads at once, how many warps compute it, and prefetching."""

    rows: int
    columns: int
    terms: int = 1
    warps: int = 4
    stages: int = 2
    parts: int = 1  # of the sum over the terms of a product


def method(product: Value, matmul: str) -> Method:
    """How a product is computed: by a tile for each part of the result, by several that are added up, or by cuBLAS."""
    (m, n), k = product.shape, product.operands[-1].shape[0]
    if product.operation not in TILED or product.dtype != "float32" or m * n * k > LARGE or min(m, n, k) == 0:
        return "library"
    return "tile" if k <= (SHORT if matmul == "float32" else SHORT_ON_TENSOR_CORES) else "split"


def product_tile(product: Value, matmul: str, kind: str, whole_rows: bool) -> Tile:
    """The tile of a product that is computed by a kernel of our own."""
    (m, n), k = product.shape, product.operands[-1].shape[0]
    if kind == "product":
        if whole_rows:
            return Tile(16, power_of_two(n, 16), 16 if k <= 16 else 64 if k > 64 else 32, 2, 3 if k > SHORT else 2)
        size = 64 if m * n >= 400_000 and matmul == "float32" else 32 if m * n >= 40_000 else 16
        rows, columns = min(size, power_of_two(m, 16)), min(size, power_of_two(n, 16))
        terms = 16 if k <= 16 else 32
        return Tile(rows, columns, terms, 4 if rows * columns > 1024 or k > SHORT else 2, 3 if k > SHORT else 2)
    rows, columns = min(64, power_of_two(m, 16)), min(64, power_of_two(n, 16))
    if matmul != "float32" and n >= 1024:
        return Tile(rows, 128, 32, 8, 3, max(1, min(k // 192, 8)))
    if rows * columns <= 1024:
        rows, columns = min(rows, 32), min(columns, 32)
    tiles = math.ceil(m / rows) * math.ceil(n / columns)
    parts = max(1, min(k // 64, max(UNITS // tiles, k // 192), MOST_PARTS))
    terms = 32 if k // parts >= 96 else 64
    return Tile(rows, columns, terms, 4 if rows * columns > 1024 else 2, 3 if k // parts >= SHORT else 2, parts)


def map_tile(group: Group, along_rows: bool, along_columns: bool) -> Tile:
    """The tile of a map, whose matrices have consecutive elements along rows, along columns, or some in either way."""
    m, n = group.domain
    rows, columns = power_of_two(m), power_of_two(n)
    if group.whole_rows and not group.whole_columns:
        rows = min(rows, max(1, 1024 // columns))
    elif group.whole_columns and not group.whole_rows:
        columns = min(columns, max(8, 2048 // rows))
    elif not group.whole_rows:
        if along_rows and along_columns:
            rows, columns = min(rows, 32), min(columns, 32)
        elif along_rows:
            columns = min(columns, 256)
            rows = min(rows, 1024 // columns)
        else:
            rows = min(rows, 256)
            columns = min(columns, 1024 // rows)
    size = rows * columns
    return Tile(rows, columns, warps=1 if size <= 128 else 4 if size <= 4096 else 8)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least n."""
    return max(least, 1 << max(n - 1, 0).bit_length())
