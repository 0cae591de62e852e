"""Sums over a million rows: as precise as short ones, since errors are not added up one after another."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matgrad._native")

from engine_support import ENGINES, program_of, runner

import matgrad as mg
from matgrad.backends import get_backend
from matgrad.loss_functions import SquaredErrorLoss
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model
from support import to_numpy

N = 10**6
LIMIT = 3e-6  # of the relative error in float32

# random numbers, and equal ones, whose errors all have the same sign
COLUMNS = {"random": np.random.default_rng(1).random((N, 3), np.float32), "equal": np.full((N, 3), 0.1, np.float32)}
SUMS = {
    "columns_sum": (lambda X: X, (1, 3), lambda X: X.sum(axis=0, keepdims=True)),
    "rows_sum": (lambda X: X.T, (3, 1), lambda X: X.sum(axis=1, keepdims=True)),
    "elements_sum": (lambda X: X, (), lambda X: X.sum()),
}


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    return float(np.max(np.abs(actual / expected - 1)))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_in_programs(engine: str, name: str):
    """Of a matrix, and of one that is stored by columns."""
    arrange, result, exact = SUMS[name]
    for order, numbers in (("C", "random"), ("F", "equal")):
        X = np.asarray(arrange(COLUMNS[numbers]), order=order)
        expected = np.asarray(exact(X.astype(np.float64)))
        program = program_of(name, [X.shape], result, [X], "float32")
        assert relative_error(runner(engine, program)({"x0": X}), expected) < LIMIT


@pytest.mark.parametrize("numbers", COLUMNS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_in_the_table(backend, name: str, numbers: str):
    arrange, _, exact = SUMS[name]
    X = backend.matrix(COLUMNS[numbers], "float32")
    for A in (arrange(X), arrange(X) + arrange(X)):  # a view, and a matrix of its own
        total = backend.backend.to_numpy(getattr(backend.backend, name)(A))
        expected = np.asarray(exact(backend.backend.to_numpy(A).astype(np.float64)))
        assert relative_error(np.asarray(total), expected) < LIMIT


@pytest.mark.parametrize("numbers", COLUMNS)
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "torch"])  # its products are less precise
def test_products_over_many_examples(engine: str, numbers: str):
    """DW = DZᵀ X, in which a few hundred products are added up one after another, and the same on a support."""
    X = COLUMNS[numbers]
    A = np.ascontiguousarray(X[:, :2].T)
    limit = LIMIT if numbers == "random" else 20 * LIMIT
    expected = A.astype(np.float64) @ X.astype(np.float64)
    dense = program_of("matmul", [A.shape, X.shape], (2, 3), [A, X], "float32")
    assert relative_error(runner(engine, dense)({"x0": A, "x1": X}), expected) < limit

    S, B = Support((2, 3), [0, 2, 3], [0, 2, 1]), np.ascontiguousarray(X.T)
    sampled = program_of("sampled_product", [(2, 3, 3), A.shape, B.shape], (1, 3), [S, A, B], "float32")
    values = expected.reshape(-1)[S.flat()][None]
    assert relative_error(runner(engine, sampled)({"x1": A, "x2": B}), values) < 2 * LIMIT


@pytest.mark.parametrize("backend_name", ["numpy", "torch", "native"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("density", [1.0, 0.9])
def test_gradients_over_many_examples(backend_name: str, compiled: bool, density: float):
    """One step with rate 1 from W = 0 and b = 0, where Y = 0: b = -Db, and for the first inputs W = -DW."""
    M = create_model("Linear", [3, 2], densities=[density]).to(backend_name)
    M.layers[0].set_weights("Zero")
    X, T = COLUMNS["random"], np.tile(np.array([[0.05, -0.35]], np.float32), (N, 1))
    step = mg.compile_step(M, SquaredErrorLoss()) if compiled else mg.make_step(M, SquaredErrorLoss())
    backend = get_backend(backend_name)
    batch = backend.from_numpy(X), backend.from_numpy(T), M.scalar(1.0)
    if compiled:
        step.load(M.state())
        step(*batch)
        state = step.state()
    else:
        state = step(M.state(), *batch)
    DY = 2 * T[:1].astype(np.float64)
    assert relative_error(to_numpy(state["1.b"]), DY) < LIMIT
    if backend_name != "torch" and density < 1:
        S, DW = state["1.W.support"], DY.T @ X.mean(axis=0, dtype=np.float64, keepdims=True)
        assert relative_error(to_numpy(state["1.W"]), DW.reshape(-1)[S.flat()][None]) < 2 * LIMIT
