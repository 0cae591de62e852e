"""Supports and sparse matrices: invariants, random supports, products against SciPy and dense NumPy, the table."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from matgrad.backends import backend_of
from matgrad.matrix_operations import exp, hadamard, ones, product_on, rows_sum, step, uniform, zeros
from matgrad.sparse.matrix import SparseMatrix, restricted
from matgrad.sparse.support import Support
from sparse_support import BACKENDS, mask_of, some_support
from support import Framework, assert_close, to_numpy

# K, D, density; with empty rows and columns, with nothing, and with everything
SHAPES = [(1, 1, 1.0), (1, 7, 0.5), (6, 1, 0.5), (5, 8, 0.3), (9, 4, 0.1), (12, 11, 1.0), (4, 3, 0.0), (40, 60, 0.05)]


@pytest.fixture(params=BACKENDS)
def framework(request) -> Framework:
    return Framework(request.param)


def random_matrix(framework: Framework, S: Support, dtype: str = "float64", seed: int = 1) -> SparseMatrix:
    values = np.random.default_rng(seed).normal(size=(1, S.nnz))
    return SparseMatrix(S, framework.matrix(values, dtype))


def dense(W: SparseMatrix) -> np.ndarray:
    """W as a dense NumPy array, by SciPy."""
    S = W.support
    return scipy.sparse.csr_array((to_numpy(W.values)[0], S.columns, S.starts), shape=S.shape).toarray()


# -- supports ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "starts", "columns", "message"),
    [
        ((2,), [0, 1], [0], r"shape: expected two integers from 1 to 2147483647, found \(2,\)"),
        ((2, 2**31), [0, 0, 0], [], "shape: expected two integers"),
        ((2, 3), [0, 1], [0], "starts: expected 3 numbers for 2 rows, found 2"),
        ((2, 3), [1, 1, 2], [0, 1], "starts: expected the first to be 0 and the last 2, found 1 and 2"),
        ((3, 3), [0, 2, 1, 2], [0, 1], "starts: row 1 ends before it begins"),
        ((2, 3), [0, 1, 2], [0, 3], "columns: expected numbers from 0 to 2, found 3"),
        ((2, 3), [0, 2, 3], [1, 1, 0], "columns: row 0 has column 1 twice"),
        ((2, 3), [0, 1, 3], [1, 2, 0], "columns: row 1 has column 0 after column 2"),
        ((2, 3), [0.0, 1.0, 2.0], [0, 1], "starts: expected a vector of integers, found float64"),
        ((2, 3), [0, 1, 2], [[0, 1]], r"columns: expected a vector of integers, found int64 of shape \(1, 2\)"),
    ],
)
def test_every_broken_invariant_is_refused(shape, starts, columns, message):
    with pytest.raises(ValueError, match=message):
        Support(shape, starts, columns)


def test_a_support_cannot_be_changed_and_copies_of_it_are_itself():
    starts = np.array([0, 1, 2])
    S = Support((2, 3), starts, [2, 0])
    starts[1] = 2
    assert S.starts.tolist() == [0, 1, 2]
    for name in ("starts", "columns", "column_starts", "rows", "positions"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(S, name)[0] = 1
    assert copy.deepcopy(S) is copy.copy(S) is S
    assert repr(S) == "Support(2 × 3, nnz=2, density=0.3333)"
    assert S.is_same(Support((2, 3), [0, 1, 2], [2, 0]))
    assert not S.is_same(Support((2, 3), [0, 1, 2], [2, 1]))
    assert not S.is_same(Support((2, 4), [0, 1, 2], [2, 0]))


# -- random supports ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (20, 50), (50, 3)], ids=str)
def test_random_supports_have_exactly_as_many_elements(shape):
    K, D = shape
    for nnz in {0, 1, K * D // 10, K * D // 2, K * D - 1, K * D}:
        S = Support.random(K, D, nnz, np.random.default_rng(nnz))
        assert (S.shape, S.nnz, mask_of(S).sum()) == ((K, D), nnz, nnz)


@pytest.mark.parametrize(("K", "D", "nnz"), [(2, 3, 2), (2, 3, 4), (4, 4, 2)])
def test_all_random_supports_are_equally_likely(K: int, D: int, nnz: int):
    """All sets of nnz of the K·D positions: a chi-square test with a fixed seed, in both ways to draw them."""
    rng = np.random.default_rng(3)
    counts = dict.fromkeys(itertools.combinations(range(K * D), nnz), 0)
    for _ in range(25 * len(counts)):
        counts[tuple(Support.random(K, D, nnz, rng).flat().tolist())] += 1
    assert len(counts) == math.comb(K * D, nnz)
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.01


def test_a_large_random_support_takes_little_memory():
    """65,536 × 65,536 at density 0.0005: a dense mask would have 4 GiB."""
    import tracemalloc

    n = 65_536
    nnz = round(0.0005 * n * n)
    tracemalloc.start()
    S = Support.random(n, n, nnz, np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert S.nnz == nnz
    assert peak < 120 * nnz
    counts = np.diff(S.starts)
    assert abs(counts.mean() - nnz / n) < 1e-9
    assert abs(counts.var() / counts.mean() - 1) < 0.05  # nearly a Poisson distribution


@pytest.mark.parametrize("nnz", [-1, 13])
def test_impossible_numbers_of_elements_are_refused(nnz: int):
    with pytest.raises(ValueError, match=f"nnz: expected a number from 0 to 12, found {nnz}"):
        Support.random(3, 4, nnz, np.random.default_rng(0))


# -- products ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("N", [1, 5, 33])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(framework: Framework, shape, N: int, dtype: str):
    K, D, density = shape
    W = random_matrix(framework, some_support(K, D, density), dtype)
    rng = np.random.default_rng(2)
    X, DZ = rng.normal(size=(N, D)).astype(dtype), rng.normal(size=(N, K)).astype(dtype)
    A, x, dz = dense(W).astype("float64"), framework.matrix(X, dtype), framework.matrix(DZ, dtype)
    where = f"{framework}, {shape}, N = {N}, {dtype}"

    products = {
        "X Wᵀ": (x @ W.T, X @ A.T),
        "DZ W": (dz @ W, DZ @ A),
        "W Xᵀ": (W @ x.T, A @ X.T),
        "Wᵀ DZᵀ": (W.T @ dz.T, A.T @ DZ.T),
    }
    for name, (found, expected) in products.items():
        assert_close(
            found, expected.astype(dtype), context=f"{name} on {where}", noise=1e-6 if dtype == "float32" else 0
        )
    DW = product_on(W, dz.T, x)
    mask = mask_of(W.support)
    assert DW.support is W.support
    expected = (DZ.T.astype("float64") @ X)[mask][None].astype(dtype)
    assert_close(DW.values, expected, context=f"DW on {where}", noise=1e-5 if dtype == "float32" else 1e-13)


def test_sampled_products_in_many_chunks(framework: Framework, monkeypatch):
    monkeypatch.setattr("matgrad.sparse.support.CHUNK", 20)
    W = random_matrix(framework, some_support(13, 9, 0.5))
    A, B = np.random.default_rng(0).normal(size=(2, 20, 7))
    a, b = framework.matrix(A[:13]), framework.matrix(B[:9].T)
    assert len(list(W.support.chunks(7))) > 10
    assert_close(product_on(W, a, b).values, (A[:13] @ B[:9].T)[mask_of(W.support)][None], context=str(framework))


def test_products_of_wrong_sizes_are_refused(framework: Framework):
    W = random_matrix(framework, some_support(4, 3, 0.5))
    X = framework.matrix(np.ones((2, 5)))
    for product in (lambda: X @ W.T, lambda: X @ W, lambda: W @ X.T, lambda: W.T @ X.T):
        with pytest.raises(ValueError, match=r"a sparse . × . matrix times one of size 5 × 2: the inner sizes differ"):
            product()
    with pytest.raises(ValueError, match=r"product_on: expected 4 × N and N × 3 matrices .* found 5 × 2 and 2 × 5"):
        product_on(W, X.T, X)


def test_mixed_backends_are_refused():
    numpy, torch = (Framework(name) for name in BACKENDS)
    S = some_support(4, 3, 0.5)
    W, V = random_matrix(numpy, S), random_matrix(torch, S)
    X = torch.matrix(np.ones((2, 3)))
    for mixture in (lambda: X @ W.T, lambda: W + V, lambda: hadamard(W, V), lambda: product_on(W, X.T, X)):
        with pytest.raises(TypeError, match=r"mixed backends: (numpy and torch|torch and numpy)"):
            mixture()
    with pytest.raises(TypeError, match="mixed backends: sparse and numpy"):
        hadamard(W, np.ones((4, 3)))


# -- conversions -------------------------------------------------------------------------------


def test_scipy_matrices_come_and_go_with_their_zeros():
    A = scipy.sparse.csr_array(([1.5, 0.0, -2.0], [2, 0, 1], [0, 1, 3]), shape=(2, 3), dtype=np.float32)
    W = SparseMatrix.from_scipy(A)
    assert (W.support.nnz, W.values.dtype, W.shape) == (3, np.float32, (2, 3))
    assert W.values.tolist() == [[1.5, 0.0, -2.0]]
    assert Support.from_scipy(A).is_same(W.support)
    B = W.to_scipy()
    assert B.nnz == 3
    assert B.dtype == np.float32
    np.testing.assert_array_equal(B.toarray(), A.toarray())


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr"])
def test_all_formats_of_scipy_are_read(form: str):
    A = scipy.sparse.random_array((6, 5), density=0.4, rng=np.random.default_rng(0)).asformat(form)
    np.testing.assert_array_equal(dense(SparseMatrix.from_scipy(A)), A.toarray())


def test_unordered_columns_are_sorted_and_duplicates_refused():
    A = scipy.sparse.csr_array(([1.0, 2.0], [2, 0], [0, 2]), shape=(1, 3))
    assert SparseMatrix.from_scipy(A).values.tolist() == [[2.0, 1.0]]
    for B in (
        scipy.sparse.csr_array(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 3)),
        scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 3)),
    ):
        with pytest.raises(ValueError, match="row 0 has column 1 twice"):
            SparseMatrix.from_scipy(B)
    with pytest.raises(ValueError, match="dtype: expected one of float32, float64, found int64"):
        SparseMatrix.from_scipy(scipy.sparse.csr_array(np.eye(2, dtype=np.int64)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dense_matrices_come_and_go(framework: Framework, dtype: str):
    A = np.where(np.random.default_rng(0).random((5, 4)) < 0.5, 0.0, np.arange(20.0).reshape(5, 4)).astype(dtype)
    W = SparseMatrix.from_dense(framework.matrix(A, dtype))
    assert W.support.nnz == np.count_nonzero(A)
    assert_close(W.to_dense(), A, tolerance=0.0, context=str(framework))
    np.testing.assert_array_equal(to_numpy(W), A)
    S = some_support(5, 4, 0.5)
    assert_close(
        SparseMatrix.from_dense(framework.matrix(A, dtype), S).to_dense(), A * mask_of(S), tolerance=0.0, dtype=dtype
    )
    with pytest.raises(ValueError, match="expected a support of size 5 × 4"):
        SparseMatrix.from_dense(framework.matrix(A, dtype), some_support(4, 5, 0.5))


def test_a_matrix_on_another_support(framework: Framework):
    """What both supports have is kept, the rest is 0."""
    old, new = some_support(9, 8, 0.4, seed=1), some_support(9, 8, 0.4, seed=2)
    W = random_matrix(framework, old)
    assert 0 < (mask_of(old) & mask_of(new)).sum() < min(old.nnz, new.nnz)
    for V in (restricted(W, new), restricted(W.to_dense(), new)):
        assert V.support is new
        assert_close(V.to_dense(), dense(W) * mask_of(new), tolerance=0.0, context=str(framework))
    with pytest.raises(ValueError, match="expected a support of size 9 × 8"):
        restricted(W, some_support(8, 9, 0.4))


# -- element by element ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arithmetic_is_that_of_dense_matrices(framework: Framework, dtype: str):
    S = some_support(6, 5, 0.4)
    W, V = (random_matrix(framework, S, dtype, seed) for seed in (1, 2))
    A, B = dense(W), dense(V)
    half = framework.matrix(0.5, dtype)
    cases = {
        "W + V": (W + V, A + B),
        "W - V": (W - V, A - B),
        "-W": (-W, -A),
        "3 * W": (3 * W, 3 * A),
        "W * 3": (W * 3, 3 * A),
        "float64 * W": (np.float64(0.5) * W, 0.5 * A),
        "0-d * W": (half * W, 0.5 * A),
        "W / 4": (W / 4, A / 4),
        "W / 0-d": (W / half, A / 0.5),
        "hadamard": (hadamard(W, V), A * B),
        "step": (step(W), (A > 0).astype(dtype)),
        "ones": (ones(6, 5, like=W), mask_of(S).astype(dtype)),
        "zeros": (zeros(6, 5, like=W), np.zeros((6, 5), dtype)),
    }
    for name, (found, expected) in cases.items():
        assert found.support is S, name
        assert_close(found.to_dense(), expected.astype(dtype), context=f"{name} on {framework}, {dtype}")
    assert backend_of(W).dtype(W) == dtype


def test_uniform_numbers_are_those_of_the_dense_matrix(framework: Framework):
    S = some_support(7, 9, 0.5)
    W = random_matrix(framework, S, "float32")
    U = uniform(7, 9, seed=5, count=2, like=W)
    expected = uniform(7, 9, seed=5, count=2, like=np.zeros((1, 1), np.float32))
    assert_close(U.values, expected[mask_of(S)][None], tolerance=0.0, context=str(framework))


def test_what_sparse_matrices_do_not_have_is_refused():
    W = random_matrix(Framework("numpy"), some_support(4, 3, 0.5))
    for operation in (lambda: exp(W), lambda: rows_sum(W)):
        with pytest.raises(TypeError, match="a sparse matrix has no such operation"):
            operation()
    for operation in (lambda: np.asarray(W), lambda: np.ones((4, 3)) + W, lambda: W + np.ones((4, 3))):
        with pytest.raises(TypeError):
            operation()
    for operation in (lambda: W * W, lambda: W * np.ones((4, 3)), lambda: W / np.ones(3)):
        with pytest.raises(TypeError, match="expected a scalar as factor of a sparse matrix"):
            operation()
    with pytest.raises(ValueError, match="expected matrices on the same support"):
        W + random_matrix(Framework("numpy"), some_support(4, 3, 0.5, seed=9))
    with pytest.raises(ValueError, match="like: expected size 3 × 4, found SparseMatrix"):
        ones(3, 4, like=W)
    assert repr(W).startswith("SparseMatrix(4 × 3, nnz=")
