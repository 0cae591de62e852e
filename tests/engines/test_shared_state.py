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

ENGINES = ("numpy", "torch", "native")
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


def values(M: mg.MultilayerPerceptron, state: dict[str, Any]) -> dict[str, np.ndarray]:
    """The matrices as new arrays."""
    return {name: np.array(M.backend.to_numpy(X)) for name, X in matrices_of(state).items()}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, A in expected.items():
        np.testing.assert_array_equal(found[name], A, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_changes_neither_what_it_was_given_nor_what_it_gave(engine: str):
    M = model(engine)
    step, eta = compile_step(M, mg.SoftmaxCrossEntropyLoss()), M.scalar(0.1)
    given = M.state()
    before = values(M, given)
    step.load(given)
    step(*batch(M), eta)
    gave = step.state()
    after = values(M, gave)
    step(*batch(M), eta)  # without loading again
    assert_same(values(M, given), before)
    assert_same(values(M, gave), after)
    assert not np.array_equal(after["2.W"], before["2.W"])
    assert not np.array_equal(values(M, step.state())["2.W"], after["2.W"])


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_with_and_without_a_look_at_the_state_are_the_same(engine: str):
    M = model(engine)
    eta, found = M.scalar(0.1), []
    for looks in (False, True):
        step = compile_step(M, mg.SoftmaxCrossEntropyLoss())
        step.load(M.state())
        for _ in range(3):
            step(*batch(M), eta)
            if looks:
                step.load(step.state())
        found.append(values(M, step.state()))
    assert_same(*found)


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


@pytest.mark.parametrize("change", [np.asfortranarray, lambda A: np.repeat(A, 2, axis=1)[:, ::2], "read-only"])
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
