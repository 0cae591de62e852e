"""What users write is computed as written, or refused: purity, sharing, odd arrays, and errors that say where."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.backends import get_backend
from matgrad.evaluation.measures import measure
from matgrad.matrix_operations import elements_sum
from support import spread

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass")
ENGINES = ("numpy", "torch", "native")
LOSS = mg.MeanSquaredErrorLoss()
D, K, N = 3, 2, 8


def batch(engine: str = "numpy") -> tuple:
    rng = np.random.default_rng(0)
    backend = get_backend(engine)
    return backend.from_numpy(rng.normal(size=(N, D))), backend.from_numpy(rng.normal(size=(N, K)))


def model(*layers: mg.Layer, engine: str = "numpy") -> mg.MultilayerPerceptron:
    return mg.MultilayerPerceptron(layers).to(engine, dtype="float64")


def train(M: mg.MultilayerPerceptron, loss: mg.LossFunction = LOSS, *, compiled: bool = True, X=None, T=None) -> None:
    X, T = batch(M.backend.name) if X is None else (X, T)
    mg.stochastic_gradient_descent(M, 2, loss, mg.ConstantScheduler(0.1), [(X, T), (X, T)], compiled=compiled)


# -- purity ------------------------------------------------------------------------------------


class MeddlingLayer(mg.LinearLayer):
    """Writes in its weights, draws numbers and keeps a list."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.log: list[int] = []
        self.rng = np.random.default_rng(1)

    def feedforward(self, X):
        self.log.append(X.shape[0])
        W = self.W
        W *= 0.9
        return self.rng.random() * super().feedforward(X)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_pure_step_changes_neither_the_model_nor_the_state(engine: str):
    M = model(MeddlingLayer(D, K), engine=engine)
    W, state = 1 * M.layers[0].W, M.state()
    bits = M.layers[0].rng.bit_generator.state
    step = mg.make_step(M, LOSS)
    first = step(state, *batch(engine), M.scalar(0.1))
    np.testing.assert_array_equal(np.asarray(M.layers[0].W), np.asarray(W))
    assert M.layers[0].log == []
    assert M.layers[0].rng.bit_generator.state == bits
    assert first["1.W"] is not state["1.W"]


def test_evaluation_does_not_write_in_the_model():
    M = model(MeddlingLayer(D, K))
    W = M.layers[0].W.copy()
    for compiled in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measure(M, [batch()], LOSS, compiled=compiled)
            M.predict(batch()[0])
        np.testing.assert_array_equal(M.layers[0].W, W)


# -- sharing -----------------------------------------------------------------------------------


SHARES = {
    "a matrix": lambda A, B: setattr(B, "W", A.W),
    "a view": lambda A, B: setattr(B, "W", A.W.T),
    "a bias": lambda A, B: setattr(B, "b", A.b),
}


@pytest.mark.parametrize(("share", "engine"), spread(list(SHARES), ENGINES, name=str))
def test_layers_that_share_a_matrix_are_refused(share: str, engine: str):
    A, B = mg.LinearLayer(D, D), mg.LinearLayer(D, D)
    M = model(A, B, mg.LinearLayer(D, K), engine=engine)
    SHARES[share](A, B)
    for compiled in (True, False):
        with pytest.raises(ValueError, match=r"1\.[Wb] and 2\.[Wb] share a matrix"):
            train(M, compiled=compiled)
    with pytest.raises(ValueError, match="share a matrix"):
        mg.MultilayerPerceptron([A, B])


def test_copies_and_parts_of_one_buffer_are_not_shared():
    A, B = mg.LinearLayer(D, D), mg.LinearLayer(D, D)
    M = model(A, B, mg.LinearLayer(D, K))
    both = np.random.default_rng(0).normal(size=(2 * D, D))
    A.W, B.W = both[:D], both[D:]
    train(M)
    assert not np.allclose(A.W, B.W)


# -- odd arrays --------------------------------------------------------------------------------

ODD_ARRAYS = {
    "big-endian": (lambda A: A.astype(">f8"), ">f8"),
    "masked": (lambda A: np.ma.masked_array(A, A > 0), "MaskedArray"),
    "float16": (lambda A: A.astype(np.float16), "float16"),
}


@pytest.mark.parametrize("kind", ODD_ARRAYS)
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_odd_arrays_get_the_same_clear_error_compiled_or_not(kind: str, engine: str):
    change, words = ODD_ARRAYS[kind]
    messages = []
    for compiled in (False, True):
        X, T = batch()
        with pytest.raises((TypeError, ValueError), match=words) as caught:
            train(model(mg.LinearLayer(D, K), engine=engine), compiled=compiled, X=change(X), T=change(T))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# -- messages ----------------------------------------------------------------------------------


class LookingLayer(mg.LinearLayer):
    def feedforward(self, X):
        try:
            c = float(elements_sum(X))  # the line
        except TypeError:
            c = 1.0
        return c * super().feedforward(X)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if text in line)


def test_the_warning_names_class_method_and_line():
    line = line_of("# the " + "line")
    with pytest.warns(UserWarning, match=rf"LookingLayer.feedforward, test_trust.py, line {line}"):
        train(model(LookingLayer(D, K)))


# -- between batches -----------------------------------------------------------------------------


class Decay(mg.Callback):
    """Changes the parameters after every batch."""

    def batch(self, run) -> None:
        run.M.layers[0].W = 0.9 * run.M.layers[0].W
        run.M.layers[0].b += 0.01


class Steeper(mg.Callback):
    """Changes a setting after every batch."""

    def batch(self, run) -> None:
        run.M.layers[0].act.alpha += 0.05


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("callback", [Decay, Steeper])
def test_what_a_callback_changes_between_batches_is_trained_on(callback: type[mg.Callback], engine: str):
    states = []
    for compiled in (False, True):
        mg.manual_seed(0)
        M = model(mg.ActivationLayer(D, D, "LeakyReLU(0.1)"), mg.LinearLayer(D, K), engine=engine)
        loader = [batch(M.backend.name)] * 3
        options = {"compiled": compiled, "callbacks": [callback()]}
        mg.stochastic_gradient_descent(M, 2, LOSS, mg.ConstantScheduler(0.1), loader, **options)
        states.append({name: M.backend.to_numpy(A) for name, A in M.state().items()})
    for name, A in states[0].items():
        np.testing.assert_allclose(states[1][name], A, rtol=1e-9, err_msg=name)
