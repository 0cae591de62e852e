"""The statements in C of operations that do not work element by element.

A matrix is a function of a row and a column, A("i", "k"), with m rows and n columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Statement = Callable[..., str]  # of the result Y, and the operands
IJ = ("i", "j")


def each(Y: Any, text: str) -> str:
    """A statement for each element of the result."""
    return f"FOR(i, {Y.m}) FOR(j, {Y.n}) {{ {text} }}"


def summed(Y: Any, over: str, term: str, result: str = "sum") -> str:
    """Y_ij is the sum of terms, or what becomes of it."""
    return each(Y, f"real sum = 0; {over} sum += {term}; {Y('i', 'j')} = {result};")


def greatest(Y: Any, n: str, first: str, x: str) -> str:
    """Y_ij is the greatest of several elements, or nan if one is."""
    return each(Y, f"real max = {first}; FOR(k, {n}) if ({x} > max || isnan({x})) max = {x}; {Y('i', 'j')} = max;")


def elements(S: Any) -> str:
    """The loop over the elements of row i of a support, whose columns are S.column."""
    return f"for (int32_t e = {S.starts}[i]; e < {S.starts}[i + 1]; e++)"


def scattered(Y: Any, S: Any, n: str, place: str, term: str, start: str = "0") -> str:
    """Every element of S adds a term to an element of Y for each of n columns."""
    return f"{each(Y, f'{Y(*IJ)} = {start};')}\nFOR(i, {S.m}) {elements(S)} FOR(j, {n}) {place} += {term};"


def times(c: Any) -> str:
    """c·, if it is not 1"""
    return "" if c.x.number == 1 else f"{c()} * "


def block_product(Y: Any, A: Any, B: Any) -> str:
    """Diag(A, p) B: row i is in block i / p"""
    p = f"({A.m} / ({B.m} / {A.n}))"
    return summed(Y, f"FOR(k, {A.n})", f"{A('i', 'k')} * {B(f'i / {p} * {A.n} + k', 'j')}")


def block_transposed_product(Y: Any, A: Any, B: Any) -> str:
    """Diag(A, p)ᵀ B: row i is column i % q of block i / q"""
    p, k = f"({A.m} / ({Y.m} / {A.n}))", f"i / {A.n} * ({A.m} / ({Y.m} / {A.n})) + k"
    return summed(Y, f"FOR(k, {p})", f"{A(k, f'i % {A.n}')} * {B(k, 'j')}")


def diag_product(Y: Any, A: Any, B: Any) -> str:
    """diag(A B, p): row i is in block i / p"""
    p = f"({A.m} / ({B.n} / {Y.n}))"
    return summed(Y, f"FOR(k, {A.n})", f"{A('i', 'k')} * {B('k', f'i / {p} * {Y.n} + j')}")


def one_hot_product(Y: Any, x: Any, W: Any) -> str:
    """The rows of W with the numbers x; a row of zeros if there is none"""
    k = f"label({x('i')}, {W.m})"
    return f"FOR(i, {Y.m}) {{ const int32_t k = {k}; FOR(j, {Y.n}) {Y(*IJ)} = k < 0 ? 0 : {W('k', 'j')}; }}"


def one_hot_transposed_product(Y: Any, x: Any, G: Any) -> str:
    """The rows of G are added to the rows of Y with the numbers x."""
    k = f"label({x('i')}, {Y.m})"
    add = f"FOR(i, {G.m}) {{ const int32_t k = {k}; if (k >= 0) FOR(j, {Y.n}) {Y('k', 'j')} += {G('i', 'j')}; }}"
    return f"{each(Y, f'{Y(*IJ)} = 0;')}\n{add}"


def sampled_sum(Y: Any, S: Any, b: Any, C: Any, a: Any, A: Any, B: Any) -> str:
    """β·C + α·(A Bᵀ)_S"""
    start = f"{times(b)}{C('0', 'e')} + " if b else ""
    factor = times(a) if a else ""
    inner = f"real sum = 0; FOR(k, {A.n}) sum += {A('i', 'k')} * {B(S.column, 'k')};"
    return f"FOR(i, {S.m}) {elements(S)} {{ {inner} {Y('0', 'e')} = {start}{factor}sum; }}"


STATEMENTS: dict[str, Statement] = {
    "elements_sum": lambda Y, X: f"{{ real sum = 0; FOR(i, {X.m}) FOR(j, {X.n}) sum += {X(*IJ)}; {Y()} = sum; }}",
    "columns_sum": lambda Y, X: summed(Y, f"FOR(k, {X.m})", X("k", "j")),
    "rows_sum": lambda Y, X: summed(Y, f"FOR(k, {X.n})", X("i", "k")),
    "columns_max": lambda Y, X: greatest(Y, X.m, X("0", "j"), X("k", "j")),
    "rows_max": lambda Y, X: greatest(Y, X.n, X("i", "0"), X("i", "k")),
    "matmul": lambda Y, A, B: summed(Y, f"FOR(k, {A.n})", f"{A('i', 'k')} * {B('k', 'j')}"),
    "product_sum": lambda Y, b, C, a, A, B: summed(
        Y, f"FOR(k, {A.n})", f"{A('i', 'k')} * {B('k', 'j')}", f"{times(b)}{C(*IJ)} + {times(a)}sum"
    ),
    "block_product": block_product,
    "block_transposed_product": block_transposed_product,
    "diag_product": diag_product,
    "one_hot_product": one_hot_product,
    "one_hot_transposed_product": one_hot_transposed_product,
    "gather": lambda Y, S, X: (
        f"{each(Y, f'{Y(*IJ)} = 0;')}\nFOR(i, {S.m}) {elements(S)} FOR(k, {Y.m}) {Y('k', 'i')} = {X('k', S.column)};"
    ),
    "scatter": lambda Y, S, U: scattered(Y, S, Y.m, Y("j", S.column), U("j", "i")),
    "sparse_product": lambda Y, S, w, B: summed(Y, elements(S), f"{w('0', 'e')} * {B(S.column, 'j')}"),
    "sparse_transposed_product": lambda Y, S, w, B: scattered(
        Y, S, Y.n, Y(S.column, "j"), f"{w('0', 'e')} * {B('i', 'j')}"
    ),
    "transposed_sum": lambda Y, S, b, C, a, w, B: scattered(
        Y, S, Y.n, Y(S.column, "j"), f"{times(a)}{w('0', 'e')} * {B('i', 'j')}", times(b) + C(*IJ)
    ),
    "dense": lambda Y, S, w: scattered(Y, S, "1", Y("i", S.column), w("0", "e")),
    "sampled_product": lambda Y, S, A, B: sampled_sum(Y, S, None, None, None, A, B),
    "sampled_sum": sampled_sum,
    "uniform_on": lambda Y, S, seed, count: (
        f"FOR(i, {S.m}) {elements(S)} {Y('0', 'e')} = "
        f"uniform((uint32_t)i * {S.n}u + (uint32_t){S.column}, (uint32_t){seed()}, (uint32_t){count()});"
    ),
    "uniform": lambda Y, seed, count: each(
        Y,
        f"{Y(*IJ)} = uniform((uint32_t)i * (uint32_t){Y.n} + (uint32_t)j, (uint32_t){seed()}, (uint32_t){count()});",
    ),
    "identity": lambda Y: each(Y, f"{Y(*IJ)} = i == j;"),
    "diag": lambda Y, X: f"FOR(i, {Y.m}) {Y('i', '0')} = {X('i', 'i')};",
    "Diag": lambda Y, x: each(Y, f"{Y(*IJ)} = i == j ? {x('0', 'j') if x.m == '1' else x('j', '0')} : 0;"),
}

HELPERS = {  # functions that are written if they are called; real is the type of numbers, and @ the end of functions
    "mix": """
static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}""",
    "uniform": """
/* numbers from [0, 1), scattered by a hash */
static real uniform(uint32_t position, uint32_t seed, uint32_t count) {
    return (real)(mix(mix(position) ^ mix(mix(count) ^ seed)) >> 8) / (real)16777216;
}""",
    "power": """
static real power(real x, real c) { return c == (real)0.5 ? sqrt@(x) : pow@(x, c); }""",
    "label": """
/* the number of a row, or -1 if there is none */
static int32_t label(real x, int32_t n) { return x >= 0 && x < (real)n && (real)(int32_t)x == x ? (int32_t)x : -1; }""",
}
