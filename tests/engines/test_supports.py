"""Supports are part of the state and inputs of a program: others take their place without a new recording."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.engines import program as engine
from matgrad.engines.fallback import TrainingStep, evaluation_of
from matgrad.program.computations import make_step
from matgrad.program.recorder import record_computation
from matgrad.sparse.support import Support
from support import AfterEpoch

D, K, N = 9, 4, 25
LOSS = mg.SoftmaxCrossEntropyLoss()
ENGINES = ("numpy", "torch", "native")


def support(seed: int, nnz: int = 30) -> Support:
    return Support.random(8, D, nnz, np.random.default_rng(seed))


def model(S: Support, name: str = "numpy", optimizer: str = "Momentum(0.9)") -> mg.MultilayerPerceptron:
    mg.manual_seed(3)
    M = mg.MultilayerPerceptron([mg.ActivationDropoutLayer(D, 8, "ReLU", support=S, dropout=0.2), mg.LinearLayer(8, K)])
    M.set_optimizer(optimizer)
    return M.to(name, dtype="float64")


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


@pytest.fixture
def recordings(monkeypatch) -> list[object]:
    """One entry for every recording."""
    found: list[object] = []

    def counting(*arguments):
        found.append(arguments)
        return record_computation(*arguments)

    monkeypatch.setattr(engine, "record_computation", counting)
    return found


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("optimizer", "nnz"), [("Momentum(0.9)", 30), ("Adam", 17), ("Adam", 55)])
def test_another_support_between_epochs_needs_no_recording_if_it_has_the_size(
    recordings, name: str, optimizer: str, nnz: int
):
    """Of the same size or of another one, compiled training stays what the equations compute."""

    def train(compiled: bool) -> mg.MultilayerPerceptron:
        M = model(support(0), name, optimizer)

        def change(run) -> None:
            if run.epoch == 2:
                run.M.layers[0].set_support(support(7, nnz))

        options = {"epochs": 4, "batch_size": 10, "seed": 0, "learning_rate": 0.1, "compiled": compiled}
        M.fit(*data(), statistics=False, callbacks=[AfterEpoch(change)], **options)
        return M

    expected = train(compiled=False).state()
    assert not recordings
    M = train(compiled=True)
    assert len(recordings) == (2 if nnz == 30 else 4), "one for batches of 10 and one for the last, of 5"
    for key, X in expected.items():
        if key == "1.W.support":
            assert M.state()[key].is_same(X)
        else:
            np.testing.assert_allclose(M.state()[key], X, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", ENGINES)
def test_predictions_follow_the_support(recordings, name: str):
    M, X = model(support(0), name), np.tile(data()[0], (50, 1))
    M.predict(X)
    for S, count in ((support(5), 2), (support(6, 12), 4), (support(5), 6)):
        M.layers[0].set_support(S)
        expected = M.eval().feedforward(M.backend.from_numpy(X))
        np.testing.assert_allclose(M.predict(X), M.backend.to_numpy(expected), rtol=1e-12)
        assert len(recordings) == count, "for each size, one for batches of 1000 and one for the last, of 250"


@pytest.mark.parametrize("name", ENGINES)
def test_a_step_takes_any_state_of_the_model(name: str):
    """Loaded before or after it was prepared, with supports of several sizes."""
    X, t = data()
    batch = next(iter(mg.DataLoader(X, t, N, classes=K).to(name)))
    pure = make_step(model(support(0), name), LOSS)
    step = TrainingStep(model(support(0), name), LOSS)
    for S in (support(1), support(2, 40), support(3, 40), support(4, 8)):
        state = model(S, name).state()
        step.load(state)
        step(*batch, 0.1)
        expected = pure(state, *batch, 0.1)
        assert step.state()["1.W.support"] is S
        for key, A in expected.items():
            if key != "1.W.support":
                np.testing.assert_allclose(step.state()[key], A, rtol=1e-10, atol=1e-13, err_msg=key)


def test_a_state_without_its_supports_is_refused():
    """Values of one support on another would be a model that looks right and is not."""
    state = model(support(0)).state()
    del state["1.W.support"]
    with pytest.raises(ValueError, match=r"1.W is \(1, \d+\), expected \(\d+, \d+\)"):
        model(support(1)).load_state(state)


def test_a_state_brings_its_support_along():
    M, other = model(support(0)), model(support(1, 20))
    X, t = data()
    M.fit(X, t, epochs=3)
    other.load_state(M.state())
    np.testing.assert_array_equal(other.predict(X), M.predict(X))
    assert other.layers[0].W.support is M.layers[0].W.support


def test_values_must_fit_the_support_of_the_state():
    M = model(support(0))
    state = M.state() | {"1.W.support": support(1, 20)}
    with pytest.raises(ValueError, match=r"1\.W is \(1, 30\), expected \(1, 20\)"):
        M.load_state(state)
    with pytest.raises(ValueError, match=r"1\.W\.support is \(9, 8\), expected \(8, 9\)"):
        M.load_state(M.state() | {"1.W.support": Support.random(D, 8, 30, np.random.default_rng(0))})


def test_a_dense_state_makes_a_model_dense_and_not_the_other_way():
    dense = mg.MultilayerPerceptron([mg.ActivationLayer(D, 8, "ReLU"), mg.LinearLayer(8, K)])
    sparse = mg.MultilayerPerceptron([mg.ActivationLayer(D, 8, "ReLU", support=support(0)), mg.LinearLayer(8, K)])
    with pytest.raises(ValueError, match=r"unknown \['1.W.support'\]"):
        dense.load_state(sparse.state())
    sparse.load_state(dense.state())
    assert not sparse.layers[0].is_sparse
    assert sparse.layers[0].W is dense.layers[0].W


def test_a_program_names_its_supports_and_their_sizes():
    M = model(support(0))
    program = record_computation(make_step(M, LOSS), M.state(), *(np.zeros((5, n)) for n in (D, K)))
    assert {name: value.support for name, value in program.supports.items()} == {"1.W.support": None}
    assert "W1 1×nnz(W1)" in str(program)
    assert "_S1" in str(program)


def test_evaluations_are_kept_for_a_model(recordings):
    M, (X, t) = model(support(0)), data()
    assert evaluation_of(M) is evaluation_of(M)
    M.fit(X, t, epochs=3, batch_size=N)
    assert len(recordings) == 2, "the step, and its evaluation with the loss"
    M.layers[0].dropout = 0.5
    assert evaluation_of(M) is not evaluation_of(model(support(0)))
