"""Compiled training and evaluation follow every change of a model: nothing stale is used."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import matgrad as mg
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import measure
from matgrad.matrix_operations import hadamard
from matgrad.sparse.support import Support
from support import AfterEpoch, to_numpy

D, K, N = 6, 3, 1500  # more than one batch of an evaluation: a single one is not compiled
LOSS = mg.SoftmaxCrossEntropyLoss()
ENGINES = ("numpy", "torch", "native")


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


def by_equations(M: mg.MultilayerPerceptron, X: np.ndarray) -> np.ndarray:
    return to_numpy(M.clone().eval().feedforward(M.backend.from_numpy(X)))


def assert_fresh(M: mg.MultilayerPerceptron, X: np.ndarray) -> None:
    for rows in (X, X[:1]):
        np.testing.assert_allclose(M.predict(rows), by_equations(M, rows), rtol=1e-10, atol=1e-12)
    loader = DataLoader(X, np.eye(K)[np.arange(len(X)) % K], 1000).to(M.backend.name)
    np.testing.assert_allclose(measure(M, loader, LOSS).Y, by_equations(M, X), rtol=1e-10, atol=1e-12)


def model(layer: mg.Layer, engine: str) -> mg.MultilayerPerceptron:
    return mg.MultilayerPerceptron([layer, mg.LinearLayer(5, K)]).to(engine, dtype="float64")


class ScaledModel(mg.MultilayerPerceptron):
    temperature = 1.0

    def feedforward(self, X):
        return self.temperature * super().feedforward(X)


def test_predictions_follow_a_model_of_ones_own():
    M, (X, _) = ScaledModel([mg.LinearLayer(D, K)]).to(dtype="float64"), data()
    assert_fresh(M, X)
    M.temperature = 5.0
    assert_fresh(M, X)


CHANGES = {
    "a new matrix": lambda M: setattr(M.layers[-1], "W", 2 * M.layers[-1].W),
    "a matrix in place": lambda M: M.layers[-1].W.__imul__(3),
    "a matrix of a part": lambda M: setattr(M.layers[0].parts()[0], "W", 2 * M.layers[0].parts()[0].W),
    "a state": lambda M: M.load_state({name: X + 1 for name, X in M.state().items()}),
    "an activation function": lambda M: setattr(M.layers[1], "act", mg.SigmoidActivation()),
    "a setting of it": lambda M: setattr(M.layers[1].act, "alpha", 0.9),
    "a layer": lambda M: M.layers.__setitem__(-1, mg.LinearLayer(4, K)),
    "a layer less": lambda M: M.layers.pop(),
    "weights": lambda M: M.set_weights("He"),
    "training": lambda M: M.fit(*data(), epochs=1, statistics=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_single_prediction_follows(change: str):
    inner = mg.ResidualLayer(mg.LinearLayer(D, D))
    M = mg.MultilayerPerceptron([inner, mg.ActivationLayer(D, 4, "LeakyReLU(0.1)"), mg.LinearLayer(4, K)])
    M, X = M.to(dtype="float64"), data()[0][:1]
    before = M.predict(X).copy()
    CHANGES[change](M.train())
    M.to(dtype="float64")
    np.testing.assert_allclose(found := M.predict(X), by_equations(M, X), rtol=1e-12)
    assert found.shape != before.shape or np.abs(found - before).max() > 1e-6


class MaskLayer(mg.Layer):
    """Y = X ⊙ C for a constant array C: it cannot be recorded."""

    keeps_size = True

    def __init__(self, size: int) -> None:
        super().__init__(size, size)
        self.mask = np.ones((1, size))

    def feedforward(self, X):
        return hadamard(X, np.repeat(self.mask, len(X), axis=0))


def test_equations_that_run_one_by_one_are_those_of_the_model_now():
    M, (X, _) = mg.MultilayerPerceptron([mg.LinearLayer(D, K), MaskLayer(K)]).to(dtype="float64"), data()
    with pytest.warns(UserWarning, match="uncompiled"):
        M.predict(X)
    M.layers[1].mask[:] = 0
    assert not M.predict(X).any()


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_threads_that_share_a_model_get_their_own_predictions(engine: str):
    M, wrong = model(mg.ActivationLayer(D, 5, "ReLU"), engine), []

    def work(seed: int) -> None:
        X, _ = data(seed)
        expected = by_equations(M, X)
        wrong.extend(1 for _ in range(30) if not np.allclose(M.predict(X), expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class DensityLayer(mg.LinearLayer):
    """A linear layer that divides by its density, a number that depends on the support."""

    def feedforward(self, X):
        return super().feedforward((1 / self.density) * X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)
        self.DW, self.DX = (1 / self.density) * self.DW, (1 / self.density) * self.DX


class CountingOptimizer(mg.GradientDescentOptimizer):
    """x' = x - n·η·Dx, where n is the number of elements."""

    def update(self, eta):
        _, n = self.x.shape
        self.x = self.x - n * (eta * self.Dx)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["layer", "optimizer"])
def test_numbers_that_depend_on_the_support_follow_it(engine: str, kind: str):
    X, t = data()
    states = []
    for compiled in (False, True):
        mg.manual_seed(1)
        S = Support.random(5, D, 10, np.random.default_rng(0))
        layer = DensityLayer(D, 5, support=S) if kind == "layer" else mg.LinearLayer(D, 5, support=S)
        M = model(layer, engine)
        if kind == "optimizer":
            M.layers[0].optimizer = CountingOptimizer(M.layers[0].W, None)

        def grow(run) -> None:
            run.M.layers[0].set_support(Support.random(5, D, 10 + 5 * run.epoch, np.random.default_rng(run.epoch)))

        options = {"epochs": 3, "batch_size": 500, "seed": 0, "learning_rate": 0.01, "statistics": False}
        M.fit(X, t, compiled=compiled, callbacks=[AfterEpoch(grow)], **options)
        assert_fresh(M, X)
        states.append(M.state())
    for name, A in states[0].items():
        np.testing.assert_allclose(to_numpy(states[1][name]), to_numpy(A), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_number_is_not_hidden(engine: str):
    M, (X, t) = model(mg.ActivationLayer(D, 5, "ReLU"), engine), data()
    M.layers[0].W[0, 0] = np.nan
    assert np.isnan(M.predict(X)).any()
    with pytest.raises(FloatingPointError, match="the loss is nan"):
        M.fit(X, t, epochs=1)


def test_a_model_that_moves_between_epochs_trains_where_it_is():
    M, (X, t) = model(mg.ActivationLayer(D, 5, "ReLU"), "numpy"), data()

    def move(run) -> None:
        run.M.to("torch")

    def batches(epoch: int) -> DataLoader:
        return DataLoader(X, t, 500, classes=K).to(M.backend.name)

    mg.stochastic_gradient_descent(M, 2, LOSS, mg.ConstantScheduler(0.1), batches, callbacks=[AfterEpoch(move)])
    assert M.engine == "torch"


def test_a_profile_counts_batches_before_and_after_a_support_grows():
    M, (X, t) = (
        model(mg.ActivationLayer(D, 5, "ReLU", support=Support.random(5, D, 9, np.random.default_rng(0))), "numpy"),
        data(),
    )

    def grow(run) -> None:
        run.M.layers[0].set_support(Support.random(5, D, 9 + run.epoch, np.random.default_rng(1)))

    with mg.profile(M) as p:
        M.fit(X, t, epochs=3, batch_size=500, statistics=False, callbacks=[AfterEpoch(grow)])
    assert p.batches == 9


def test_early_stopping_keeps_copies():
    M, (X, t) = model(mg.ActivationLayer(D, 5, "ReLU"), "numpy"), data()
    kept = {}

    def prune(run) -> None:
        kept.setdefault("W", run.M.layers[0].W.copy())
        run.M.layers[0].W[...] *= -100

    M.fit(X, t, epochs=3, validation=0.2, early_stopping=1, learning_rate=0.0, callbacks=[AfterEpoch(prune)])
    np.testing.assert_array_equal(M.layers[0].W, kept["W"])


def test_an_epoch_without_batches_is_refused():
    M = model(mg.ActivationLayer(D, 5, "ReLU"), "numpy")
    with pytest.raises(ValueError, match="there are no batches to train on"):
        mg.stochastic_gradient_descent(M, 2, LOSS, mg.ConstantScheduler(0.1), iter(()))
