"""The source code of kernels in Triton's dialect of Python: one function for each group of values.

All sizes and strides are numbers in the code. A variable of a kernel is a tile of a matrix, or a part of a row, a
column or a scalar, which has the sizes 1 where it is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from matgrad.program.buffers import ALIGNED
from matgrad.program.grouping import Group, Limits, Method, located
from matgrad.program.operations import DENSE_PRODUCTS, OPERATIONS
from matgrad.program.program import Value
from matgrad.program.scalars import ScalarWriter

Strides = Callable[[Value], tuple[int, ...]]

UNROLLED = 32  # parts of a product that are added up without a loop
POWERS = {2: "x * x", 1: "x", 0.5: "sqrt(x)"}  # as PyTorch computes them
REDUCTIONS = {"sum": "tl.sum({}, axis={}, keep_dims=True)", "max": "tl.reduce({}, {}, larger, keep_dims=True)"}
NEUTRAL = {"sum": "0.0", "max": 'float("-inf")'}


class Tile(NamedTuple):
    """The size of a tile, how many terms of a product it loads at once, how many warps compute it, and prefetching."""

    rows: int
    columns: int
    terms: int = 1
    warps: int = 4
    stages: int = 2
    parts: int = 1  # of the sum over the terms of a product


class TileWriter(ScalarWriter):
    """Lines of elementwise operations on tiles of one type."""

    divide = "divide"

    def __init__(self, dtype: str, **names: str) -> None:
        super().__init__(**names)
        self.step = f"({{argument}} >= 0).to(tl.{dtype})"
        self.number = f"tl.full((1, 1), {{number}}, tl.{dtype})"


@dataclass
class Source:
    """The code of a kernel, the values whose memory its arguments point to, and how to launch it."""

    text: str
    read: list[Value]  # after those that are written
    programs: int
    tile: Tile


def write(group: Group, strides: Strides, matmul: str) -> Source:
    """The kernel that computes a group."""
    return _Writer(group, strides, matmul).source()


class _Writer:
    def __init__(self, group: Group, strides: Strides, matmul: str) -> None:
        self.group, self.written, self.strides, self.matmul = group, group.written, strides, matmul
        self.m, self.n = group.domain
        self.lines: list[str] = []
        self.variables: dict[tuple[Value, bool], str] = {}
        self.names = map("v{}".format, count())
        self.pointers: dict[Value, str] = {}  # of what is read
        product = group.product
        if product is not None and group.kind != "map":
            self.tile = product_tile(product, matmul, group.kind, group.whole_rows)
        else:
            sizes = group.domain, group.domain[::-1]
            steps = [strides(x) for x in (*group.operands, *group.written) if x.shape in sizes]
            self.tile = map_tile(group, any(s[1] == 1 for s in steps) or not steps, any(s[1] != 1 for s in steps))
        self.across = math.ceil(self.n / self.tile.columns)  # tiles in a row of them

    def source(self) -> Source:
        tiles, kind, product = math.ceil(self.m / self.tile.rows) * self.across, self.group.kind, self.group.product
        if product is not None and kind != "map":
            self._product(product, tiles)
        else:
            self._say("tile = tl.program_id(0)")
            self._say(f"i = (tile // {self.across}) * {self.tile.rows} + tl.arange(0, {self.tile.rows})[:, None]")
            self._say(f"j = (tile % {self.across}) * {self.tile.columns} + tl.arange(0, {self.tile.columns})[None, :]")
            self._bounds()
        if product is not None and kind == "parts":
            self._say(f"tl.store(out0 + part * {self.m * self.n} + {self._parts_offset(product)}, total, mask=inside)")
        else:
            for value in self.group.values:
                self._compute(value)
            for k, value in enumerate(self.written):
                offset, mask = self._offset(value, False)
                pairs = ("inside_i", self.tile.rows), ("inside_j", self.tile.columns)
                sizes = tuple(size if mask in ("inside", name) else 1 for name, size in pairs)
                x = f"tl.broadcast_to({self.variables[value, False]}, {sizes})"
                self._say(f"tl.store(out{k} + {offset}, {x}, mask={mask})")
        arguments = [*(f"out{k}" for k in range(max(1, len(self.written)))), *self.pointers.values()]
        head = f"def kernel({', '.join(arguments)}):\n"
        return Source(head + "\n".join(self.lines) + "\n", [*self.pointers], tiles * self.tile.parts, self.tile)

    def _say(self, line: str, indent: int = 1) -> None:
        self.lines.append("    " * indent + line)

    def _bounds(self) -> None:
        if (self.m + ALIGNED) * (self.n + ALIGNED) >= 2**31:  # also where a matrix is stored by columns
            self._say("i, j = i.to(tl.int64), j.to(tl.int64)")
        self._say(f"inside_i, inside_j = i < {self.m}, j < {self.n}")
        self._say("inside = inside_i & inside_j")

    # -- products ------------------------------------------------------------------------------
    def _product(self, product: Value, tiles: int) -> None:
        """`total`, a tile of A B, or of a part of the sum."""
        A, B = product.operands[-2:]
        k = B.shape[0]
        a, b = (self._pointer(located(x)[0]) for x in (A, B))
        (ai, ak), (bk, bj) = map(self._strides_of, (A, B))
        t = self.tile
        length = math.ceil(k / t.parts / t.terms) * t.terms
        self._say(f"part, tile = tl.program_id(0) // {tiles}, tl.program_id(0) % {tiles}")
        self._say(f"i = (tile // {self.across}) * {t.rows} + tl.arange(0, {t.rows})")
        self._say(f"j = (tile % {self.across}) * {t.columns} + tl.arange(0, {t.columns})")
        turn = -1 if bk == 1 and ak != 1 else 1  # it is (Bᵀ Aᵀ)ᵀ then: a second factor is read along its rows
        left, right = (("i", self.m, a, ai, ak), ("j", self.n, b, bj, bk))[::turn]
        self._say(f"total = tl.zeros({(t.rows, t.columns)[::turn]}, tl.{product.dtype})")
        stop = f"tl.minimum(part * {length} + {length}, {k})" if t.parts > 1 else f"{k}"
        self._say(f"for start in tl.range(part * {length}, {stop}, {t.terms}, num_stages={t.stages}):")
        self._say(f"k = start + tl.arange(0, {t.terms})", 2)
        self._say(f"x = {self._tile_of(left, '[:, None]', 'k[None, :]', k)}", 2)
        self._say(f"y = {self._tile_of(right, '[None, :]', 'k[:, None]', k)}", 2)
        precision = "tf32" if self.matmul == "tf32" else "ieee"
        self._say(f'total = tl.dot(x, y, total, input_precision="{precision}")', 2)
        if turn == -1:
            self._say("total = tl.trans(total)")
        self._say("i, j = i[:, None], j[None, :]")
        self._bounds()

    def _tile_of(self, factor: tuple[str, int, str, int, int], turn: str, inner: str, k: int) -> str:
        """A tile of a factor: its rows i or columns j, of which there are `size`, for the terms `inner` of k."""
        name, size, pointer, far, near = factor
        outer = name + turn
        mask = f"({outer} < {size})" + (f" & ({inner} < {k})" if k % self.tile.terms else "")
        load = f"tl.load({pointer} + {outer} * {far} + {inner} * {near}, mask={mask}, other=0.0)"
        return {"tf32": f"to_tf32({load})", "bf16": f"{load}.to(tl.bfloat16)"}.get(self.matmul, load)

    def _parts_offset(self, product: Value) -> str:
        """Where an element is in a part of the sum: in the order in which the tile of a product has it."""
        (_, ak), (bk, _) = map(self._strides_of, product.operands[-2:])
        return f"i + j * {self.m}" if bk == 1 and ak != 1 else f"i * {self.n} + j"

    def _strides_of(self, factor: Value) -> tuple[int, ...]:
        base, is_flipped = located(factor)
        return self.strides(base)[:: -1 if is_flipped else 1]

    # -- values --------------------------------------------------------------------------------
    def _compute(self, value: Value) -> None:
        """A variable for a value."""
        name = next(self.names)
        writers = {"product": self._product_expression, "reduction": self._reduction}
        self._say(f"{name} = {writers.get(value.kind, self._elementwise)(value)}")
        self.variables[value, False] = name

    def _elementwise(self, value: Value) -> str:
        """What the line of an operation says, or random numbers."""
        operands, row = [self._variable(x) for x in value.operands], OPERATIONS[value.operation]
        if value.operation == "uniform":
            return f"uniform(i * {self.n} + j, {operands[0]}, {operands[1]}, tl.{value.dtype})"
        exponent = value.operands[1].number if value.operation == "power" else None
        write = TileWriter(value.dtype, **dict(zip(row.letters, operands, strict=True)))
        return write(POWERS.get(exponent) or row.scalar)  # type: ignore[arg-type]

    def _product_expression(self, value: Value) -> str:
        """A B, or β·C + α·A B."""
        if self.group.kind == "map":
            pointer, offset = self._pointer(value), self._parts_offset(value)
            parts, size = product_tile(value, self.matmul, "parts", False).parts, self.m * self.n
            self._say(f"total = tl.load({pointer} + {offset}, mask=inside, other=0.0)")
            self._say(f"for part in tl.{'static_range' if parts <= UNROLLED else 'range'}(1, {parts}):")
            self._say(f"total += tl.load({pointer} + part * {size} + {offset}, mask=inside, other=0.0)", 2)
        if value.operation == "matmul":
            return "total"
        beta, C, alpha = (self._variable(x) for x in value.operands[:3])
        return f"{beta} * {C} + {alpha} * total"

    def _reduction(self, value: Value) -> str:
        row = OPERATIONS[value.operation]
        tile = f"tl.broadcast_to({self._variable(value.operands[0])}, ({self.tile.rows}, {self.tile.columns}))"
        found = f"tl.where(inside, {tile}, {NEUTRAL[row.over]})"
        for axis in reversed(row.axes):
            found = REDUCTIONS[row.over].format(found, axis)
        return found

    def _variable(self, operand: Value) -> str:
        """The variable of an operand, which is loaded when it is first needed."""
        key = base, is_flipped = located(operand)
        if base.operation == "number":
            return _literal(base)
        if key not in self.variables:
            if base in self.group.values:
                return self.variables[base, False]  # a scalar, whichever way it is turned
            if base.is_free:
                self._compute(base)
                return self.variables[base, False]
            name = next(self.names)
            offset, mask = self._offset(base, is_flipped)
            other = "" if mask == "None" else ", other=0" if "int" in base.dtype else ", other=0.0"
            self._say(f"{name} = tl.load({self._pointer(base)} + {offset}, mask={mask}{other})")
            self.variables[key] = name
        return self.variables[key]

    def _offset(self, value: Value, is_flipped: bool) -> tuple[str, str]:
        """Where the elements of a value are, and which of them exist."""
        turn = -1 if is_flipped else 1
        down, right = self.strides(value)[::turn] or (0, 0)
        found = {
            (self.m, 1): (f"i * {down}", "inside_i"),
            (1, self.n): (f"j * {right}", "inside_j"),
            (self.m, self.n): (f"i * {down} + j * {right}", "inside"),
        }
        return found.get(value.shape[::turn], ("tl.zeros((1, 1), tl.int32)", "None"))

    def _pointer(self, value: Value) -> str:
        return self.pointers.setdefault(value, f"p{len(self.pointers)}")


def _literal(number: Value) -> str:
    """A number of the code, exact in its type."""
    x = number.number
    assert x is not None
    plain = repr(int(x)) if "int" in number.dtype else repr(float(x)) if math.isfinite(x) else f'float("{x}")'
    return f"tl.full((1, 1), {plain}, tl.{number.dtype})"


# -- tiles: rules found by measurement on an H200, and never by timing at run time; so a program has the same kernels in
# every run, and its results are the same to the last bit -------------------------------------------------------------

LIMITS = Limits(longest=4096, largest=4096, narrow=64)
UNITS = 132  # multiprocessors that should have work
LARGE = 500_000_000  # multiplications of a product from which on cuBLAS is faster, though nothing is fused with it
SHORT = 128  # terms of a sum that one tile adds up, instead of several that each add up a part
SHORT_ON_TENSOR_CORES = 1024
MOST_PARTS = 256  # of a sum


def method(product: Value, matmul: str) -> Method:
    """How a product is computed: by a tile for each part of the result, by several that are added up, or by cuBLAS."""
    (m, n), k = product.shape, product.operands[-1].shape[0]
    if product.operation not in DENSE_PRODUCTS or product.dtype != "float32" or m * n * k > LARGE or min(m, n, k) == 0:
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
