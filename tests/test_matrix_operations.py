"""Every operation of the table against its definition in plain loops, on every backend and dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from matgrad import matrix_operations as mo
from matgrad.backends import backend_of
from matgrad.backends.base import DTYPES, Backend
from support import TOLERANCE, Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

SHAPES = [(3, 4), (1, 5), (4, 1)]


def filled(m: int, n: int, element: Callable) -> np.ndarray:
    """The m×n matrix with elements element(i, j)."""
    A = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            A[i, j] = element(i, j)
    return A


def each(f: Callable) -> Callable:
    """The definition of the element-wise operation that applies f."""
    return lambda A: filled(*A.shape, lambda i, j: f(A[i, j]))


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return filled(len(A), len(B.T), lambda i, j: sum(A[i, k] * B[k, j] for k in range(len(B))))


def total(elements) -> np.ndarray:
    return np.array(float(sum(elements)))


@dataclass
class Row:
    """An operation, its definition on float64 arrays, and the sizes of its arguments ("mn" is m×n)."""

    operation: Callable
    definition: Callable
    sizes: tuple[str, ...] = ("mn",)
    positive: bool = False

    def arguments(self, m: int, n: int, seed: int) -> list[np.ndarray]:
        """Multiples of 1/8, whose sums and products are exact in both dtypes."""
        size = {"1": 1, "k": 3, "m": m, "n": n, "4": 4, "K": 9, "M": 3 * m, "N": 3 * n}
        generator = np.random.default_rng(seed)
        low = 1 if self.positive else -24
        return [generator.integers(low, 25, (size[a], size[b])) / 8 for a, b in self.sizes]


CHOSEN = np.array([[2], [-1], [8], [2]])
SELECTION = mo.one_hot(CHOSEN, 9)


def ones_at(places: np.ndarray, n: int) -> np.ndarray:
    """The matrix with elements [x_i = j]."""
    return filled(len(places), n, lambda i, j: float(places[i, 0] == j))


def stacked(A: np.ndarray, P: int) -> Callable:
    """The elements of A, each row cut into P rows."""
    return lambda i, j: A[i // P, i % P * (len(A.T) // P) + j]


def block_diagonal(A: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix of three blocks of rows of A."""
    p, q = len(A) // 3, len(A.T)
    return filled(3 * p, 3 * q, lambda i, j: A[i, j % q] if i // p == j // q else 0)


def diagonal_blocks(A: np.ndarray) -> np.ndarray:
    """The three blocks on the diagonal of A, one below the other."""
    p, q = len(A) // 3, len(A.T) // 3
    return filled(3 * p, q, lambda i, j: A[i, i // p * q + j])


# the name of an operation, and what is special where it has more than one row
TABLE: dict[str, Row] = {
    "zeros": Row(lambda X: mo.zeros(*X.shape, like=X), lambda A: filled(*A.shape, lambda i, j: 0)),
    "zeros column": Row(lambda X: mo.zeros(X.shape[0], like=X), lambda A: filled(len(A), 1, lambda i, j: 0)),
    "ones": Row(lambda X: mo.ones(*X.shape, like=X), lambda A: filled(*A.shape, lambda i, j: 1)),
    "ones column": Row(lambda X: mo.ones(X.shape[0], like=X), lambda A: filled(len(A), 1, lambda i, j: 1)),
    "identity": Row(
        lambda X: mo.identity(X.shape[0], like=X), lambda A: filled(len(A), len(A), lambda i, j: 1 if i == j else 0)
    ),
    "dot columns": Row(mo.dot, lambda a, b: total(a[i, 0] * b[i, 0] for i in range(len(a))), ("m1", "m1")),
    "dot rows": Row(mo.dot, lambda a, b: total(a[0, j] * b[0, j] for j in range(len(a.T))), ("1n", "1n")),
    "hadamard": Row(mo.hadamard, lambda A, B: filled(*A.shape, lambda i, j: A[i, j] * B[i, j]), ("mn", "mn")),
    "diag": Row(mo.diag, lambda A: filled(len(A), 1, lambda i, j: A[i, i]), ("mm",)),
    "Diag column": Row(mo.Diag, lambda a: filled(len(a), len(a), lambda i, j: a[i, 0] if i == j else 0), ("m1",)),
    "Diag row": Row(mo.Diag, lambda a: filled(len(a.T), len(a.T), lambda i, j: a[0, i] if i == j else 0), ("1n",)),
    "elements_sum": Row(mo.elements_sum, lambda A: total(x for row in A.tolist() for x in row)),
    "column_repeat": Row(lambda x: mo.column_repeat(x, 5), lambda a: filled(len(a), 5, lambda i, j: a[i, 0]), ("m1",)),
    "row_repeat": Row(lambda x: mo.row_repeat(x, 5), lambda a: filled(5, len(a.T), lambda i, j: a[0, j]), ("1n",)),
    "columns_sum": Row(mo.columns_sum, lambda A: filled(1, len(A.T), lambda i, j: sum(A[:, j]))),
    "rows_sum": Row(mo.rows_sum, lambda A: filled(len(A), 1, lambda i, j: sum(A[i]))),
    "columns_max": Row(mo.columns_max, lambda A: filled(1, len(A.T), lambda i, j: max(A[:, j]))),
    "rows_max": Row(mo.rows_max, lambda A: filled(len(A), 1, lambda i, j: max(A[i]))),
    "columns_mean": Row(mo.columns_mean, lambda A: filled(1, len(A.T), lambda i, j: sum(A[:, j]) / len(A))),
    "rows_mean": Row(mo.rows_mean, lambda A: filled(len(A), 1, lambda i, j: sum(A[i]) / len(A.T))),
    "apply": Row(lambda X: mo.apply(lambda x: x**3 - 2 * x, X), each(lambda x: x * x * x - 2 * x)),
    "exp": Row(mo.exp, each(math.exp)),
    "log": Row(mo.log, each(math.log), positive=True),
    "reciprocal": Row(mo.reciprocal, each(lambda x: 1 / x), positive=True),
    "sqrt": Row(mo.sqrt, each(math.sqrt), positive=True),
    "inv_sqrt": Row(mo.inv_sqrt, each(lambda x: 1 / math.sqrt(x)), positive=True),
    "inv_sqrt epsilon": Row(lambda X: mo.inv_sqrt(X, 0.1), each(lambda x: 1 / math.sqrt(x + 0.1)), positive=True),
    "log_sigmoid": Row(mo.log_sigmoid, each(lambda x: -math.log(1 + math.exp(-x)))),
    "step": Row(mo.step, each(lambda x: 1 if x >= 0 else 0)),
    "sign": Row(mo.sign, each(lambda x: float(x > 0) - float(x < 0))),
    "clip": Row(lambda X: mo.clip(X, 0.75), each(lambda x: min(max(x, -0.75), 0.75))),
    "tanh": Row(mo.tanh, each(math.tanh)),
    "erf": Row(mo.erf, each(math.erf)),
    "log1p": Row(mo.log1p, each(math.log1p), positive=True),
    "positive": Row(mo.positive, each(lambda x: x)),
    "product_on": Row(mo.product_on, lambda _, A, B: product(A, B), ("mn", "mk", "kn")),
    # blocks
    "stack": Row(lambda X: mo.stack(X, 3), lambda A: filled(3 * len(A), len(A.T) // 3, stacked(A, 3)), ("mN",)),
    "unstack": Row(
        lambda X: mo.unstack(X, 3),
        lambda A: filled(len(A) // 3, 3 * len(A.T), lambda i, j: A[3 * i + j // len(A.T), j % len(A.T)]),
        ("Mn",),
    ),
    "diag blocks": Row(lambda X: mo.diag(X, np.shape(X)[0] // 3), lambda A: diagonal_blocks(A), ("MN",)),
    "diag_product": Row(
        lambda A, B: mo.diag_product(A, B, np.shape(A)[0] // 3),
        lambda A, B: diagonal_blocks(product(A, B)),
        ("Mk", "kN"),
    ),
    "Diag blocks": Row(
        lambda A, B: mo.Diag(A, np.shape(A)[0] // 3) @ B, lambda A, B: product(block_diagonal(A), B), ("Mk", "Kn")
    ),
    "Diag blocks right": Row(
        lambda A, B: B @ mo.Diag(A, np.shape(A)[0] // 3), lambda A, B: product(B, block_diagonal(A)), ("Mk", "nM")
    ),
    "Diag blocks transposed": Row(
        lambda A, B: mo.Diag(A, np.shape(A)[0] // 3).T @ B, lambda A, B: product(block_diagonal(A).T, B), ("Mk", "Mn")
    ),
    "one_hot": Row(lambda x, W: mo.one_hot(x, 3) @ W, lambda a, W: product(ones_at(a, 3), W), ("m1", "kn")),
    "one_hot right": Row(lambda x, X: X @ mo.one_hot(x, 3), lambda a, A: product(A, ones_at(a, 3)), ("m1", "nm")),
    "one_hot transposed": Row(
        lambda x, G: mo.one_hot(x, 4).T @ G, lambda a, G: product(ones_at(a, 4).T, G), ("m1", "mn")
    ),
    "one_hot transposed right": Row(
        lambda x, X: X @ mo.one_hot(x, np.shape(X)[1]).T, lambda a, A: product(A, ones_at(a, len(A.T)).T), ("m1", "nk")
    ),
    **{
        f"one_hot fixed{name}": Row(operation, definition, sizes)
        for name, operation, definition, sizes in (
            (" X Eᵀ", lambda X: X @ SELECTION.T, lambda A: product(A, ones_at(CHOSEN, 9).T), ("mK",)),
            (" U E", lambda U: U @ SELECTION, lambda A: product(A, ones_at(CHOSEN, 9)), ("m4",)),
            (" E W", lambda W: SELECTION @ W, lambda A: product(ones_at(CHOSEN, 9), A), ("Kn",)),
            (" Eᵀ G", lambda G: SELECTION.T @ G, lambda A: product(ones_at(CHOSEN, 9).T, A), ("4n",)),
        )
    },
    "uniform": Row(
        lambda X: mo.uniform(*X.shape, seed=7, count=3, like=X),
        lambda A: filled(*A.shape, lambda i, j: hashed(7, 3, i * len(A.T) + j)),
    ),
    # the operators
    ".T": Row(lambda X: X.T, lambda A: filled(*reversed(A.shape), lambda i, j: A[j, i])),
    "@": Row(lambda X, Y: X @ Y, product, ("mk", "kn")),
    "+": Row(lambda X, Y: X + Y, lambda A, B: filled(*A.shape, lambda i, j: A[i, j] + B[i, j]), ("mn", "mn")),
    "-": Row(lambda X, Y: X - Y, lambda A, B: filled(*A.shape, lambda i, j: A[i, j] - B[i, j]), ("mn", "mn")),
    "-X": Row(lambda X: -X, each(lambda x: -x)),
    "int * X": Row(lambda X: 3 * X, each(lambda x: 3 * x)),
    "float * X": Row(lambda X: 0.1 * X, each(lambda x: 0.1 * x)),
    "0-d * X": Row(lambda X: backend_of(X).scalar(0.1, X) * X, each(lambda x: 0.1 * x)),
    "X / int": Row(lambda X: X / 3, each(lambda x: x / 3)),
    "X / float": Row(lambda X: X / 0.7, each(lambda x: x / 0.7)),
    "X / 0-d": Row(lambda X: X / backend_of(X).scalar(0.7, X), each(lambda x: x / 0.7)),
}


def hashed(seed: int, count: int, position: int) -> float:
    """The number of dropout's hash (seed, count, position), in Python's integers."""

    def lowbias32(x: int) -> int:  # as published: nullprogram.com/blog/2018/07/31
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        return x ^ x >> 16

    key = lowbias32(lowbias32(count) ^ seed)
    return (lowbias32(lowbias32(position) ^ key) >> 8) / 2**24


def check_row(name: str, backend: Framework, dtype: str, m: int, n: int, seed: int) -> None:
    row = TABLE[name]
    arguments = row.arguments(m, n, seed)
    matrices = [backend.matrix(A, dtype) for A in arguments]
    context = f"{name} on {backend}, {m} × {n}, {dtype}, seed {seed}"

    Y = backend.compiled(row.operation)(*matrices)

    assert backend_of(Y).name == backend.name, context
    assert_close(Y, row.definition(*arguments), dtype=dtype, context=context)
    for X, A in zip(matrices, arguments, strict=True):
        assert_close(X, A, tolerance=0, dtype=dtype, context=f"{context}: an argument was changed")


def test_every_operation_has_a_row():
    assert set(mo.__all__) <= {name.split()[0] for name in TABLE}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TABLE)
def test_operation_is_its_definition(backend, name, dtype):
    for seed, (m, n) in enumerate(SHAPES):
        check_row(name, backend, dtype, m, n, seed)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("name", TABLE)
def test_operation_is_its_definition_for_any_shape(framework, name):
    backend = Framework(framework)
    sizes = st.integers(1, 7)

    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(m=sizes, n=sizes, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 999))
    @example(m=1, n=6, dtype="float32", seed=0)
    @example(m=6, n=1, dtype="float32", seed=0)
    def check(m, n, dtype, seed):
        check_row(name, backend, dtype, m, n, seed)

    check()


# -- derived operations ------------------------------------------------------------------------

DERIVED = [name for name in mo.__all__ if name in vars(Backend) and name not in Backend.__abstractmethods__]


def overridden(backend: Framework) -> list[str]:
    return [name for name in DERIVED if getattr(type(backend.backend), name) is not getattr(Backend, name)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_override_equals_the_derived_definition(backend, dtype, monkeypatch):
    rows = {name: row for name, row in TABLE.items() if name.split()[0] in overridden(backend)}
    assert ("log_sigmoid" in rows) == (backend.name != "numpy"), f"{backend} overrides {list(rows)}"
    for name, row in rows.items():
        matrices = [backend.matrix(A, dtype) for A in row.arguments(3, 4, seed=0)]
        override = backend.compiled(lambda *Xs, f=row.operation: f(*Xs))(*matrices)
        with monkeypatch.context() as patch:
            patch.setattr(type(backend.backend), name.split()[0], getattr(Backend, name.split()[0]))
            definition = backend.compiled(lambda *Xs, f=row.operation: f(*Xs))(*matrices)
        assert_close(override, to_numpy(definition), dtype=dtype, context=f"{name} on {backend}, 3 × 4, seed 0")


# -- extreme values ----------------------------------------------------------------------------

EXTREMES = [-1e4, -745, -100, -88, -30, -5, -1e-3, -1e-30, 0, 1e-30, 1e-3, 5, 30, 88, 100, 745, 1e4]


def assert_elements_close(Y, expected, dtype: str, context: str) -> None:
    """Every element of Y is right relative to itself, but for numbers below the normal ones."""
    A = to_numpy(Y)
    assert A.dtype == dtype, context
    np.testing.assert_allclose(A, expected, rtol=TOLERANCE[dtype], atol=np.finfo(dtype).tiny, err_msg=context)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", ["table", "definition"])
def test_log_sigmoid_of_extreme_values(backend, dtype, which):
    X = np.array([EXTREMES], dtype)
    expected = [[float(-mpmath.log1p(mpmath.exp(-mpmath.mpf(x)))) for x in X[0].tolist()]]
    f = mo.log_sigmoid if which == "table" else lambda X: Backend.log_sigmoid(backend.backend, X)
    assert_elements_close(backend.compiled(f)(backend.matrix(X, dtype)), expected, dtype, f"{which} of {backend}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["tanh", "erf", "log1p", "exp"])
def test_small_values_keep_their_relative_precision(backend, dtype, name):
    X = np.array([[1e-30, -1e-12, 1e-7, -1e-4, 3e-3, -0.1]], dtype)
    expected = [[float(getattr(mpmath, name)(mpmath.mpf(x))) for x in X[0].tolist()]]
    Y = backend.compiled(getattr(mo, name))(backend.matrix(X, dtype))
    assert_elements_close(Y, expected, dtype, f"{name} on {backend}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("exp", 1e4, math.inf),
        ("exp", -1e4, 0.0),
        ("log", 0.0, -math.inf),
        ("log1p", -1.0, -math.inf),
        ("reciprocal", 0.0, math.inf),
        ("sqrt", 0.0, 0.0),
        ("tanh", -1e4, -1.0),
        ("tanh", 1e4, 1.0),
        ("erf", -1e4, -1.0),
        ("erf", 1e4, 1.0),
        ("step", -0.0, 1.0),
        ("step", -1e-37, 0.0),
    ],
)
def test_limits_come_without_a_warning(backend, dtype, name, x, y):
    Y = backend.compiled(getattr(mo, name))(backend.matrix([[x]], dtype))
    assert_close(Y, [[y]], tolerance=0, dtype=dtype, context=f"{name}({x}) on {backend}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_positive_changes_only_zeros(backend, dtype):
    tiny = float(np.finfo(dtype).tiny)
    Y = backend.compiled(mo.positive)(backend.matrix([[0, 1, 0.3, 1e-20]], dtype))
    expected = np.array([[tiny, 1, 0.3, 1e-20]], dtype)
    np.testing.assert_array_equal(to_numpy(Y), expected, err_msg=f"{backend}", strict=True)


# -- creation ----------------------------------------------------------------------------------


# -- uniform -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("seed", "count"), [(0, 0), (1, 2), (2**32 - 1, 2**31 - 1)])
def test_uniform_equals_numpys_bit_for_bit(backend, dtype, seed, count):
    like = backend.matrix([[0]], dtype)
    U = backend.compiled(lambda like: mo.uniform(3, 4, seed=seed, count=count, like=like))(like)
    expected = mo.uniform(3, 4, seed=seed, count=count, like=np.zeros((1, 1), dtype))
    np.testing.assert_array_equal(to_numpy(U), expected, err_msg=f"{backend}, {seed}, {count}", strict=True)
    assert expected[1, 2] == hashed(seed, count, 6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["int32", "int64", "float32", "float64"])
def test_the_count_of_uniform_may_be_an_array_of_the_framework(backend, dtype, kind):
    like, count = backend.matrix([[0]], dtype), backend.matrix(5, kind)
    U = backend.compiled(lambda like, count: mo.uniform(3, 4, seed=1, count=count, like=like))(like, count)
    expected = filled(3, 4, lambda i, j: hashed(1, 5, 4 * i + j)).astype(dtype)
    np.testing.assert_array_equal(to_numpy(U), expected, err_msg=f"{backend}, count {kind}", strict=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("seed", "count"), [(0, 0), (0, 1), (1, 0), (12345, 99), (2**32 - 1, 1)])
def test_uniform_numbers_are_uniform(dtype, seed, count):
    U = mo.uniform(200, 300, seed=seed, count=count, like=np.zeros((1, 1), dtype))
    assert U.min() >= 0
    assert U.max() < 1
    assert stats.kstest(U.reshape(-1), "uniform").pvalue > 0.01


def draws(seed: int, count: int) -> np.ndarray:
    return mo.uniform(200, 200, seed=seed, count=count, like=np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("U", "V"),
    [
        (draws(0, 0), draws(1, 0)),
        (draws(0, 0), draws(0, 1)),
        (draws(0, 1), draws(1, 0)),
        (draws(3, 5), draws(5, 3)),
        (draws(7, 1), draws(7 + 2**16, 1)),
        (draws(0, 0)[:, 1:], draws(0, 0)[:, :-1]),
        (draws(0, 0)[1:], draws(0, 0)[:-1]),
    ],
    ids=["seeds", "counts", "seed and count", "swapped", "high bits", "columns", "rows"],
)
def test_uniform_numbers_are_uncorrelated(U, V):
    deviation = 1 / math.sqrt(U.size)
    assert abs(np.corrcoef(U.reshape(-1), V.reshape(-1))[0, 1]) < 4 * deviation
    assert abs(np.mean((U < 0.5) == (V < 0.5)) - 0.5) < 2 * deviation


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "sizes", "message"),
    [
        (mo.hadamard, [(2, 3), (3, 2)], "hadamard: expected equal sizes, found 2 × 3 and 3 × 2"),
        (mo.hadamard, [(2, 3), (1, 3)], "hadamard: expected equal sizes, found 2 × 3 and 1 × 3"),
        (mo.dot, [(2, 1), (3, 1)], "dot: expected equal sizes, found 2 × 1 and 3 × 1"),
        (mo.dot, [(2, 1), (1, 2)], "dot: expected equal sizes, found 2 × 1 and 1 × 2"),
        (mo.dot, [(2, 3), (2, 3)], "dot: expected two row or two column vectors, found 2 × 3"),
        (mo.diag, [(2, 3)], "diag: expected a square matrix, found 2 × 3"),
        (mo.Diag, [(2, 3)], "Diag: expected a row or a column vector, found 2 × 3"),
        (lambda x: mo.column_repeat(x, 4), [(2, 3)], "column_repeat: expected a column vector, found 2 × 3"),
        (lambda x: mo.column_repeat(x, 4), [(1, 3)], "column_repeat: expected a column vector, found 1 × 3"),
        (lambda x: mo.row_repeat(x, 4), [(2, 3)], "row_repeat: expected a row vector, found 2 × 3"),
        (lambda x: mo.row_repeat(x, 4), [(3, 1)], "row_repeat: expected a row vector, found 3 × 1"),
    ],
)
def test_wrong_sizes_are_named(backend, operation, sizes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        operation(*(backend.matrix(np.ones(size)) for size in sizes))


NOT_A_MATRIX = "list is not a matrix type of matgrad; expected a 2-D array of one of: numpy"
CREATIONS = {
    "zeros": lambda like: mo.zeros(1, 1, like=like),
    "ones": lambda like: mo.ones(1, 1, like=like),
    "identity": lambda like: mo.identity(1, like=like),
    "uniform": lambda like: mo.uniform(1, 1, seed=0, count=0, like=like),
}


@pytest.mark.parametrize("name", [name for name in TABLE if name.split()[0] in set(mo.__all__) - set(CREATIONS)])
def test_a_list_is_not_a_matrix(name):
    row = TABLE[name]
    with pytest.raises(TypeError, match=NOT_A_MATRIX):
        row.operation(*(A.tolist() for A in row.arguments(1, 1, seed=0)))


@pytest.mark.parametrize(
    "operation",
    [
        mo.hadamard,
        mo.dot,
        lambda X, Y: mo.product_on(X, X, Y),
        lambda X, Y: mo.product_on(X, Y, X),
        lambda X, Y: mo.product_on(X, Y, Y),
    ],
)
def test_mixed_backends_are_named(backend, operation):
    other = Framework("torch" if backend.name == "numpy" else "numpy")
    X, Y = (b.matrix([[1.0]]) for b in (backend, other))
    with pytest.raises(TypeError, match=rf"mixed backends: {backend} and {other}; .*M\.to"):
        operation(X, Y)
    with pytest.raises(TypeError, match=rf"mixed backends: {other} and {backend}; .*loader\.to"):
        operation(Y, X)
