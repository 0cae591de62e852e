"""The matrices of a state are held once where they are only read, and never changed where others may have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import matgrad as mg
from matgrad.engines.engine import compile_step, engine_of
from matgrad.layers.state import matrices_of
from matgrad.program.computations import Feedforward
from matgrad.specifications.models import create_model

N, D, K = 6, 12, 3


def model(engine: str) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = create_model("ReLU;ReLU;Linear", [D, 9, 8, K], densities="1;0.5;0.5", dropouts="0.5;0;0")
    return M.to(engine, dtype="float64")


def batch(M: mg.MultilayerPerceptron) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    matrices = rng.normal(size=(N, D)), np.eye(K)[rng.integers(K, size=N)]
    X, T = (M.backend.from_numpy(A) for A in matrices)
    return X, T


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_state_is_given_without_a_copy(engine: str):
    M = model(engine)
    step: Any = compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    step(*batch(M), M.scalar(0.1))
    state = step.state()
    assert all(X is step.matrices[name] for name, X in state.items())


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_an_evaluation_reads_the_matrices_of_the_model(engine: str):
    M = model(engine).eval()
    evaluation: Any = engine_of(M).evaluation(Feedforward(M))
    X, _ = batch(M)
    for _ in range(2):
        np.testing.assert_allclose(evaluation(M.state(), X)["Y"], M.feedforward(X), rtol=1e-12)
        for name, A in matrices_of(M.state()).items():
            assert np.shares_memory(evaluation.matrices[name], A), name
        M.fit(X, np.arange(N) % K, epochs=1)
        M.eval()


@pytest.mark.parametrize("change", [np.asfortranarray, "read-only"])
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_an_evaluation_reads_matrices_of_any_layout(engine: str, change: Any):
    M = model(engine).eval()
    X, _ = batch(M)
    expected = M.feedforward(X)
    W = M.layers[0].W.copy() if change == "read-only" else change(M.layers[0].W)
    W.flags.writeable = change != "read-only"
    M.layers[0].W = W
    found = engine_of(M).evaluation(Feedforward(M))(M.state(), X)["Y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    M.fit(X, np.arange(N) % K, epochs=1)  # also trains from there
