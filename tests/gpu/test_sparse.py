"""Sparse products on a GPU: right on hostile supports and in large matrices, always the same, also in graphs."""

from __future__ import annotations

import itertools
import unittest

import numpy as np
import torch

from gpu import DEVICE
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.backends.torch_backend import TorchBackend
from matgrad.engines.cuda.fused import CudaKernels
from matgrad.engines.cuda.index import Index
from matgrad.sparse.support import Support

KERNELS = CudaKernels(TorchBackend())
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-14}  # relative to the largest element, for sums of 100 numbers


def hostile_supports() -> dict[str, Support]:
    """Supports with empty, short and full lines; full ones are cut into segments."""
    rng = np.random.default_rng(0)
    few = rng.random((301, 1203)) < 0.01
    row, column, both = few.copy(), few.T.copy(), few.copy()
    row[7], column[:, 300], both[:, 1202], both[300] = True, True, True, True
    lonely = np.zeros((700, 1300), dtype=bool)
    lonely[699] = True
    masks = {"few": few, "full row": row, "full column": column, "both": both, "only a row": lonely}
    masks |= {"only a column": lonely.T, "nothing": few & False, "everything": ~(few & False)}
    masks |= {"one row": rng.random((1, 5000)) < 0.5, "one column": rng.random((5000, 1)) < 0.5}
    return {name: Support.from_mask(mask) for name, mask in masks.items()}


def new(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random numbers on the device."""
    return torch.tensor(np.random.default_rng(seed).normal(size=shape), dtype=dtype, device=DEVICE)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A matrix on the device with no number that a kernel leaves as it is."""
    return torch.full(shape, torch.nan, dtype=dtype, device=DEVICE)


def double(X: torch.Tensor) -> np.ndarray:
    """X in float64 on the host."""
    return X.cpu().double().numpy()


def assert_close(out: torch.Tensor, expected: np.ndarray, case: str) -> None:
    bound = 10 * TOLERANCE[out.dtype] * max(1.0, abs(expected).max(initial=0.0))
    difference = abs(double(out) - expected).max(initial=0.0)
    assert difference <= bound, f"{case}: differs by {difference:.1e}, expected at most {bound:.1e}"


def results(S: Support | Index, w: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> dict[str, torch.Tensor]:
    """W B, Wᵀ A, (A Bᵀ)_S and two sums with a factor on the host and one on the device."""
    (K, D), N, eta = S.shape, B.shape[1], torch.full((), -0.3, dtype=w.dtype, device=DEVICE)
    shapes = {"W B": (K, N), "WT A": (D, N), "sample": w.shape, "sample sum": w.shape, "sum": (D, N)}
    found = {name: poisoned(shape, w.dtype) for name, shape in shapes.items()}
    KERNELS.sparse_product(found["W B"], S, w, B)
    KERNELS.sparse_transposed_product(found["WT A"], S, w, A)
    KERNELS.sampled_product(found["sample"], S, A, B)
    KERNELS.sampled_sum(found["sample sum"], S, 0.9, w, eta, A, B)
    KERNELS.transposed_sum(found["sum"], S, 0.9, B, eta, w, A)
    return found


def expected_results(S: Support, w: torch.Tensor, A: torch.Tensor, B: torch.Tensor) -> dict[str, np.ndarray]:
    """The same by dense products in float64."""
    at, W = (S.row_indices(), S.columns), np.zeros(S.shape)
    v, A, B = double(w), double(A), double(B)
    W[at] = v[0]
    sample = (A @ B.T)[at][None]
    sums = {"sample sum": 0.9 * v - 0.3 * sample, "sum": 0.9 * B - 0.3 * (W.T @ A)}
    return {"W B": W @ B, "WT A": W.T @ A, "sample": sample} | sums


def test_products_on_hostile_supports_are_those_of_dense_matrices():
    for (name, S), N, dtype in itertools.product(hostile_supports().items(), (1, 7, 100, 600), TOLERANCE):
        (K, D) = S.shape
        matrices = new((1, S.nnz), dtype), new((K, N), dtype, 1), new((D, N), dtype, 2)
        found, expected = results(S, *matrices), expected_results(S, *matrices)
        for key, out in found.items():
            assert_close(out, expected[key], f"{name}, {N} columns, {dtype}, {key}")


def test_results_are_the_same_bit_by_bit_every_time():
    S, dtype = hostile_supports()["both"], torch.float32
    (K, D) = S.shape
    matrices = new((1, S.nnz), dtype), new((K, 600), dtype, 1), new((D, 600), dtype, 2)
    first = results(S, *matrices)
    for _ in range(20):
        again = results(S, *matrices)
        assert all(torch.equal(first[key], again[key]) for key in first)


def test_random_numbers_and_dense_matrices_are_those_of_the_host():
    for name, S in hostile_supports().items():
        w = new((1, S.nnz), torch.float32)
        U, W, count = poisoned(w.shape, w.dtype), poisoned(S.shape, w.dtype), torch.tensor(3, device=DEVICE)
        KERNELS.uniform_on(U, S, 2**40 + 5, count)
        KERNELS.dense(W, S, w)
        assert np.array_equal(U.cpu().numpy(), NumpyBackend().uniform_on(S, 2**40 + 5, 3, w.cpu().numpy())), name
        assert np.array_equal(W.cpu().numpy()[S.row_indices(), S.columns], w.cpu().numpy()[0]), name
        assert W.count_nonzero().item() == w.count_nonzero().item(), name


def test_the_equations_one_by_one_use_the_same_kernels():
    S, dtype = hostile_supports()["both"], torch.float32
    w, A, B = new((1, S.nnz), dtype), new((S.shape[0], 40), dtype, 1), new((S.shape[1], 40), dtype, 2)
    found, expected, backend = results(S, w, A, B), expected_results(S, w, A, B), TorchBackend()
    eager = {
        "W B": backend.sparse_product(S, w, B.T.contiguous().T),
        "WT A": backend.sparse_transposed_product(S, w, A),
    }
    for key, out in (eager | {"sample": backend.sampled_product(S, A, B)}).items():
        assert_close(out, expected[key], key)
        assert DEVICE == "cpu" or torch.equal(out, found[key]), key


def test_a_captured_graph_goes_on_with_another_support():
    if DEVICE == "cpu":
        raise unittest.SkipTest("no graphs")
    before, other = hostile_supports()["few"], hostile_supports()["full row"]
    size = before.nnz
    after = Support.from_flat(other.shape, np.sort(np.random.default_rng(5).choice(other.flat(), size, replace=False)))
    (K, D), dtype = before.shape, torch.float32
    matrices = new((1, size), dtype), new((K, 100), dtype, 1), new((D, 100), dtype, 2)
    index, graph = Index(before, torch.device(DEVICE, torch.cuda.current_device())), torch.cuda.CUDAGraph()
    results(index, *matrices)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        found = results(index, *matrices)
    for S in (before, after, before):
        index.update(S)
        graph.replay()
        expected = expected_results(S, *matrices)
        for key, out in found.items():
            assert_close(out, expected[key], f"after an update, {key}")


def test_dense_matrices_may_have_more_than_2_to_the_31_elements():
    if DEVICE == "cpu":
        raise unittest.SkipTest("takes 40 GB")
    n, N = 3_000_000, 800
    tall = Support((n, 3), range(n + 1), np.arange(n) % 3)  # an element per row
    w = new((1, n), torch.float32)
    B = new((3, N), torch.float32, 1)
    A = torch.empty((n, N), device=DEVICE)
    KERNELS.sparse_product(A, tall, w, B)
    last = slice(n - 6, n)
    expected = double(w)[0, last, None] * double(B)[np.arange(n)[last] % 3]
    assert_close(A[last], expected, "W B")
    sample = torch.empty_like(w)
    KERNELS.sampled_product(sample, tall, A, B)  # w_i |b_i|²
    squares = (double(B) ** 2).sum(axis=1)
    relative = double(sample)[0] / (double(w)[0] * squares[np.arange(n) % 3])
    assert abs(relative - 1).max() < 1e-4, "sample"
    small = torch.empty_like(B)
    KERNELS.sparse_transposed_product(small, tall, w, A)  # b_j Σ w_i²
    sums = np.array([(double(w)[0, j::3] ** 2).sum() for j in range(3)])
    assert abs(double(small) / (sums[:, None] * double(B)) - 1).max() < 1e-4, "WT A"
    wide = torch.empty((n, N), device=DEVICE)
    flat = Support((3, n), [0, n // 3, 2 * n // 3, n], [*range(0, n, 3), *range(1, n, 3), *range(2, n, 3)])
    KERNELS.sparse_transposed_product(wide, flat, w, B)
    rows = np.arange(n)[last]
    assert_close(wide[last], double(w)[0, rows % 3 * (n // 3) + rows // 3, None] * double(B)[rows % 3], "tall WT A")
