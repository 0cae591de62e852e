"""Sparse products in Triton against SciPy, on the CPU by Triton's interpreter: `tests/gpu/test_sparse.py` on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import triton_support  # noqa: F401  before what imports Triton
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.backends.torch_backend import TorchBackend
from matgrad.engines.cuda import index
from matgrad.engines.cuda.fused import CudaKernels
from matgrad.engines.cuda.index import Index
from matgrad.program.operations import OPERATIONS
from matgrad.sparse.support import Support
from sparse_support import some_support
from support import TOLERANCE

CPU = torch.device("cpu")
KERNELS = CudaKernels(TorchBackend())


def with_line(S: Support, row: int | None = None, column: int | None = None) -> Support:
    """S, with a full row or a full column."""
    mask = np.zeros(S.shape, dtype=bool)
    mask[S.row_indices(), S.columns] = True
    if row is not None:
        mask[row] = True
    if column is not None:
        mask[:, column] = True
    return Support.from_mask(mask)


FEW = some_support(23, 19, 0.1)
SUPPORTS = {
    "some": FEW,
    "full row": with_line(FEW, row=7),
    "full column": with_line(FEW, column=18),
    "both": with_line(FEW, row=0, column=3),
    "only a row": with_line(Support((9, 21), [0] * 10, []), row=4),
    "only a column": with_line(Support((21, 9), [0] * 22, []), column=8),
    "nothing": Support((5, 4), [0] * 6, []),
    "everything": Support.from_mask(np.ones((8, 11), dtype=bool)),
    "one row": some_support(1, 40, 0.6),
    "one column": some_support(40, 1, 0.6),
    "one element": Support((1, 1), [0, 1], [0]),
}


@pytest.fixture
def cut(monkeypatch) -> None:
    """Long lines are cut into segments: here those with more than 3 elements."""
    monkeypatch.setattr(index, "SHORT", 3)
    monkeypatch.setattr(index, "PARTS", 20)


class Problem:
    """W on a support and dense matrices with N columns, with what SciPy makes of them."""

    def __init__(self, S: Support, N: int, dtype: str = "float64", seed: int = 0) -> None:
        (K, D), rng = S.shape, np.random.default_rng(seed)
        self.S, self.dtype, self.index = S, dtype, Index(S, CPU)
        new = (rng.normal(size=shape).astype(dtype) for shape in ((1, S.nnz), (1, S.nnz), (K, N), (D, N), (D, N)))
        self.w, self.v, self.A, self.B, self.C = new
        self.W = scipy.sparse.csr_array((self.w[0].astype("float64"), S.columns, S.starts), shape=S.shape)

    def matrices(self, names: str) -> list[torch.Tensor]:
        """Some of the matrices as tensors."""
        return [torch.tensor(getattr(self, name)) for name in names]

    def assert_result(self, kernel: str, expected: np.ndarray, *operands, S=None) -> torch.Tensor:
        """The result of a kernel, which writes every element of its output."""
        out = torch.full(expected.shape, np.nan, dtype=getattr(torch, self.dtype))
        getattr(KERNELS, kernel)(out, self.index if S is None else S, *operands)
        self.assert_close(out, expected)
        return out

    def assert_close(self, out: torch.Tensor, expected: np.ndarray) -> None:
        scale = max(1.0, abs(expected).max(initial=0.0))
        np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=20 * TOLERANCE[self.dtype] * scale)

    def sampled(self) -> np.ndarray:
        """(A Bᵀ)_S"""
        return (self.A.astype("float64") @ self.B.T)[self.S.row_indices(), self.S.columns][None]


def assert_products(p: Problem) -> None:
    w, A, B = p.matrices("wAB")
    p.assert_result("sparse_product", p.W @ p.B, w, B)
    p.assert_result("sparse_transposed_product", p.W.T @ p.A, w, A)
    p.assert_result("sampled_product", p.sampled(), A, B)


@pytest.mark.parametrize("name", SUPPORTS)
def test_products_are_those_of_scipy_on_any_support(name: str):
    assert_products(Problem(SUPPORTS[name], 6))


@pytest.mark.parametrize("name", SUPPORTS)
def test_products_are_those_of_scipy_if_long_lines_are_cut(name: str, cut):
    assert_products(Problem(SUPPORTS[name], 5))


@pytest.mark.parametrize("N", [1, 16, 129, 1100])
def test_products_are_those_of_scipy_for_any_number_of_columns(N: int, cut):
    assert_products(Problem(some_support(5, 6, 0.5), N))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["only a row", "nothing"])
def test_sums_are_those_of_scipy_with_factors_on_the_host_and_on_the_device(name: str, dtype: str, cut):
    p = Problem(SUPPORTS[name], 3, dtype)
    w, v, A, B, C = p.matrices("wvABC")
    for beta, alpha in ((0.9, -0.1), (1, torch.tensor(-0.1, dtype=A.dtype)), (torch.tensor(0.9, dtype=A.dtype), 1)):
        b, a = float(beta), float(alpha)
        p.assert_result("transposed_sum", b * p.C + a * (p.W.T @ p.A), beta, C, alpha, w, A)
        p.assert_result("sampled_sum", b * p.v + a * p.sampled(), beta, v, alpha, A, B)
        in_place = C.clone(), v.clone()
        KERNELS.transposed_sum(in_place[0], p.index, beta, in_place[0], alpha, w, A)
        KERNELS.sampled_sum(in_place[1], p.index, beta, in_place[1], alpha, A, B)
        p.assert_close(in_place[0], b * p.C + a * (p.W.T @ p.A))
        p.assert_close(in_place[1], b * p.v + a * p.sampled())


@pytest.mark.parametrize("name", ["both", "nothing", "everything"])
def test_a_support_without_an_index_and_matrices_in_another_order_do_too(name: str):
    p = Problem(SUPPORTS[name], 5)
    w, A, B = p.matrices("wAB")
    p.assert_result("sparse_product", p.W @ p.B, w, B.T.contiguous().T, S=p.S)
    p.assert_result("sampled_product", p.sampled(), A.T.contiguous().T, B.T.contiguous().T, S=p.S)


@pytest.mark.parametrize("N", [3, 70])
@pytest.mark.parametrize("name", ["both", "nothing"])
def test_both_gradients_at_once(name: str, N: int, cut):
    p = Problem(SUPPORTS[name], N)
    w, v, A, B = p.matrices("wvAB")
    for beta, C, alpha in ((0, None, 1), (0.9, v, torch.tensor(-0.1, dtype=v.dtype)), (1, w, -0.1)):
        out, b, a = torch.full(B.shape, np.nan, dtype=B.dtype), float(beta), float(alpha)
        sampled = torch.full_like(w, np.nan) if C is None else C  # in place, even in place of W itself
        expected = p.sampled() if C is None else b * C.numpy() + a * p.sampled()
        KERNELS.sparse_gradients(out, sampled, p.index, w, A, B, beta, C, alpha)
        p.assert_close(out, p.W.T @ p.A)
        p.assert_close(sampled, expected)


@pytest.mark.parametrize("name", ["both", "nothing"])
def test_dense_matrices_and_random_numbers_on_a_support(name: str):
    p = Problem(SUPPORTS[name], 5, "float32")
    p.assert_result("dense", p.W.toarray(), *p.matrices("w"))
    seed, count = 2**33 + 7, torch.tensor(5)
    expected = NumpyBackend().uniform_on(p.S, seed, 5, p.w)
    assert np.array_equal(p.assert_result("uniform_on", expected, seed, count).numpy(), expected)


def test_an_index_goes_on_with_another_support_in_the_same_memory(cut):
    before, after = some_support(9, 12, 0.3, seed=1), with_line(some_support(9, 12, 0.3, seed=2), row=3)
    size = min(before.nnz, after.nnz)
    before, after = (Support.from_flat(S.shape, S.flat()[:size]) for S in (before, after))
    p, q = Problem(before, 7), Problem(after, 7)
    w, A, B = q.matrices("wAB")
    p.assert_result("sparse_product", p.W @ p.B, *p.matrices("wB"))  # p's arrays are on the device now
    p.assert_result("sampled_product", p.sampled(), *p.matrices("AB"))
    tensors = [t for lines in (p.index.by_rows, p.index.by_columns) for t in lines]
    tensors = [t for t in tensors if isinstance(t, torch.Tensor)] + [p.index.row_indices]
    places = [t.data_ptr() for t in tensors]
    p.index.update(after)
    assert [t.data_ptr() for t in tensors] == places
    q.assert_result("sparse_product", q.W @ q.B, w, B, S=p.index)
    q.assert_result("sparse_transposed_product", q.W.T @ q.A, w, A, S=p.index)
    q.assert_result("sampled_product", q.sampled(), A, B, S=p.index)
    q.assert_result("dense", q.W.toarray(), w, S=p.index)


def test_kernels_keep_the_index_of_a_support_of_the_same_size():
    S, like = some_support(6, 5, 0.5, seed=1), torch.zeros(1)
    other = Support.from_flat(S.shape, np.sort(np.random.default_rng(3).choice(30, S.nnz, replace=False)))
    kept = KERNELS.index(S, like)
    assert KERNELS.index(other, like, kept) is kept
    assert KERNELS.index(Support((6, 5), [0] * 7, []), like, kept) is not kept


def test_all_operations_on_sparse_matrices_have_kernels_of_their_own():
    """But those with the constant E of a layer, which PyTorch takes by an index, and adds up in a fixed order."""
    sparse = {name for name, row in OPERATIONS.items() if row.kind == "sparse"}
    assert sparse - vars(CudaKernels).keys() == {"gather", "scatter"}
