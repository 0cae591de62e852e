"""Sparse training where something is odd: loaders with batches of their own, callbacks that fail, early stopping."""

from __future__ import annotations

from types import MethodType

import numpy as np
import pytest

import matgrad as mg
from matgrad.callbacks import Callback
from matgrad.datasets import DataLoader
from matgrad.matrix_operations import product_on
from matgrad.training import stochastic_gradient_descent
from support import to_numpy

RNG = np.random.default_rng(0)
X, T = RNG.normal(size=(45, 6)).astype(np.float32), RNG.integers(0, 3, 45)
ENGINES = ["numpy", "torch", "native"]


class Every(Callback):
    """Looks at the model every so many steps."""

    wants_batches = True

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def batch(self, run) -> None:
        assert run.M


def doubled(self, start: int, order: np.ndarray | None = None):
    X, T = DataLoader.batch(self, start, order)
    return 2 * X, T


class OwnBatches(DataLoader):
    batch = doubled


class OwnPass(DataLoader):
    def __iter__(self):
        return (self.batch(start) for start in (30, 0, 40, 10))


def own_method(*arguments, **options) -> DataLoader:
    loader = DataLoader(*arguments, **options)
    loader.batch = MethodType(doubled, loader)
    return loader


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loader", [OwnBatches, OwnPass, own_method])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_forms_its_own_batches_whatever_callbacks_there_are(engine: str, loader, shuffle: bool):
    found = []
    for callbacks in ([], [Every(2)]):
        mg.manual_seed(0)
        M = mg.create_model("ReLU;Linear", [6, 8, 3], densities=0.5).to(engine)
        data = loader(X, T, 10, shuffle=shuffle, seed=1).to(M.backend.name)
        loss = mg.SoftmaxCrossEntropyLoss()
        stochastic_gradient_descent(M, 2, loss, lambda i: 0.1, data, callbacks=callbacks)
        found.append(np.array(to_numpy(M.layers[0].W.values)))
    np.testing.assert_allclose(*found, rtol=1e-5)


class Failing(Callback):
    """Makes a layer sparse, and fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def batch(self, run) -> None:
        if run.step == 3:
            run.M.layers[0].set_support(np.eye(8, 6, dtype=bool))
            raise self.error


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_a_callback_that_fails_leaves_the_model_as_it_was_trained(engine: str, error: type):
    M = mg.create_model("ReLU;Linear", [6, 8, 3], optimizers="Momentum(0.9)").to(engine)
    with pytest.raises(error):
        M.fit(X, T, batch_size=10, callbacks=[Failing(error())])
    assert not M.layers[0].is_sparse
    M.fit(X, T, epochs=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_early_stopping_goes_back_to_a_model_that_was_denser(engine: str):
    """The validation loss only grows, so the dense model of epoch 1 is kept."""
    mg.manual_seed(0)
    M = mg.create_model("ReLU;Linear", [6, 8, 3], optimizers="Momentum(0.9)").to(engine)
    options = {"validation": (X, (T + 1) % 3), "early_stopping": 2, "learning_rate": 0.3}
    history = M.fit(X, T, epochs=8, batch_size=10, callbacks=[mg.GMP(0.3)], **options)
    assert history["density"][-1] < 1
    assert [layer.density for layer in M.layers] == [1, 1]
    assert M.layers[0].optimizer.parts()[0].delta.shape == (8, 6)
    M.fit(X, T, epochs=1)


@pytest.mark.parametrize(("epochs", "every"), [(2, None), (3, None), (2, 8), (2, 4), (3, 6)])
def test_GMP_ends_before_the_last_step_so_that_statistics_are_those_of_the_model(epochs: int, every: int | None):
    """Also if no update comes at the chosen part of the run; the 5 batches of an epoch are not in step with them."""
    mg.manual_seed(0)
    M = mg.create_model("ReLU;Linear", [6, 8, 3])
    history = M.fit(X, T, epochs=epochs, batch_size=10, callbacks=[mg.GMP(0.25, every)])
    assert [layer.nnz for layer in M.layers] == [12, 6]
    assert history["accuracy"][-1] == M.score(X, T)
    Y = M.predict(X).astype(np.float64)
    loss = np.mean(np.log(np.exp(Y).sum(axis=1)) - Y[np.arange(45), T])
    assert history["loss"][-1] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("every", [None, 100])
def test_GMP_warns_if_it_never_prunes(every: int | None):
    M = mg.create_model("ReLU;Linear", [6, 8, 3])
    with pytest.warns(UserWarning, match="GMP: the run of 5 steps was too short"):
        M.fit(X, T, epochs=1, batch_size=10, callbacks=[mg.GMP(0.25, every)])
    assert not M.layers[0].is_sparse


class Projection(mg.Layer):
    """Y = X Vᵀ, with a sparse V"""

    parameters = ("V",)

    def __init__(self) -> None:
        super().__init__(6, 8)
        support = mg.Support.random(8, 6, 12, np.random.default_rng(0))
        self.V = mg.SparseMatrix(support, np.ones((1, 12), dtype=np.float32))
        self.set_optimizer("GradientDescent")

    def feedforward(self, X):
        Y = X @ self.V.T

        self.X = X
        return Y

    def backpropagate(self, Y, DY):
        self.DV, self.DX = product_on(self.V, DY.T, self.X), DY @ self.V


def test_sparse_parameters_of_other_names_are_accounted_for():
    M = mg.MultilayerPerceptron([Projection(), mg.LinearLayer(8, 3)])
    history = M.fit(X, T, epochs=2, batch_size=10, callbacks=[mg.Topology("Magnitude(0.25)", "Random")])
    assert history["nnz"] == [{"1.V": 12, "2": 24}] * 2
    assert history["density"] == [36 / 72] * 2
    assert history["explored"] == pytest.approx([39 / 72] * 2), "three more, after the first epoch"
