"""Whatever a callback changes between two batches counts from the next batch on, compiled as in equations one by one.

The callback may know the model from `run.M` or from elsewhere, and want every batch or every second one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import matgrad as mg
from matgrad.matrix_operations import elements_sum, hadamard
from matgrad.sparse.support import Support
from support import spread

BACKENDS = ("jax", "tensorflow")
ENGINES = ("numpy", "torch", "native")
D, H, K, N = 3, 4, 2, 20
RATE = 0.01


class KeepingLayer(mg.LinearLayer):
    """A linear layer of c·X, where c follows from dictionaries, lists, an array, its class and a cached property."""

    rate = 1.0

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.table: dict[str, Any] = {"x": [0.5], "y": {"z": 1.0}}
        self.numbers: list[Any] = [0.5, [0.25]]
        self.array = np.array([0.5])

    @cached_property
    def two(self) -> float:
        return 2.0

    def feedforward(self, X):
        c = self.table["x"][0] + self.table["y"]["z"] + self.numbers[0] + self.numbers[1][0] + self.array[0]
        return super().feedforward(self.two * self.rate * float(c) * X)


class ScaledLoss(mg.LossFunction):
    """c·‖Y - T‖²"""

    accepts = {"real"}  # noqa: RUF012

    def __init__(self) -> None:
        self.c = 1.0

    def __call__(self, Y, T):
        return self.c * elements_sum(hadamard(Y - T, Y - T))

    def gradient(self, Y, T):
        return self.c * (Y - T)


def support(seed: int, nnz: int = 8) -> Support:
    return Support.random(H, D, nnz, np.random.default_rng(seed))


Change = Callable[[Any, mg.MultilayerPerceptron, Any], object]  # of the run, the model and the loss
CHANGES: dict[str, Change] = {
    "a number of the loss": lambda run, M, loss: setattr(loss, "delta", 0.1),
    "a number of a loss of users": lambda run, M, loss: setattr(loss, "c", 0.1),
    "another loss": lambda run, M, loss: setattr(run, "loss", mg.SquaredErrorLoss()),
    "the clip norm": lambda run, M, loss: setattr(run, "clip_norm", 0.01),
    "the learning rate": lambda run, M, loss: setattr(run, "learning_rate", 0.001),
    "a number of an activation": lambda run, M, loss: setattr(M.layers[0].act, "alpha", 0.7),
    "another activation": lambda run, M, loss: setattr(M.layers[0], "act", mg.HyperbolicTangentActivation()),
    "a number of an optimizer": lambda run, M, loss: setattr(M.layers[0]._optimizers["W"], "mu", 0.2),
    "another optimizer": lambda run, M, loss: M.layers[0].set_optimizer("Adam"),
    "an optimizer without a state": lambda run, M, loss: M.layers[0].set_optimizer("GradientDescent"),
    "a number of a layer": lambda run, M, loss: setattr(M.layers[1], "momentum", 0.5),
    "the rate of dropout": lambda run, M, loss: setattr(M.layers[3], "dropout", 0.0),
    "weights": lambda run, M, loss: setattr(M.layers[0], "W", 0.5 * M.layers[0].W),
    "a buffer": lambda run, M, loss: setattr(M.layers[1], "running_mean", 0 * M.layers[1].running_mean),
    "the mode of the model": lambda run, M, loss: M.eval(),
    "the mode of a layer": lambda run, M, loss: setattr(M.layers[3], "training", False),
    "what a library adds": lambda run, M, loss: vars(M.layers[0]).update(__cache__=object()),
    "a weak reference": lambda run, M, loss: setattr(M.layers[0], "note", weakref.ref(M)),
}
OF_SPARSE: dict[str, Change] = {
    "a support": lambda run, M, loss: M.layers[0].set_support(support(3)),
    "a larger support": lambda run, M, loss: M.layers[0].set_support(support(3, 10)),
}
OF_USERS: dict[str, Change] = {
    "a list in a dictionary": lambda run, M, loss: M.layers[2].table["x"].__setitem__(0, 0.9),
    "a dictionary in a dictionary": lambda run, M, loss: M.layers[2].table["y"].update(z=0.3),
    "a list in a list": lambda run, M, loss: M.layers[2].numbers[1].__setitem__(0, 0.7),
    "an array in place": lambda run, M, loss: M.layers[2].array.__setitem__(0, 0.7),
    "an attribute of a class": lambda run, M, loss: setattr(type(M.layers[2]), "rate", 0.3),
}
NEUTRAL = ("the mode of the model", "the mode of a layer", "what a library adds", "a weak reference")  # no effect
ALL = CHANGES | OF_SPARSE | OF_USERS


class Changing(mg.Callback):
    """Makes a change after step 2."""

    def __init__(self, change: Change, known: tuple[Any, Any] | None, interval: int) -> None:
        self.change, self.known, self.interval = change, known, interval

    def batch(self, run) -> None:
        if run.step == 2:
            self.change(run, *(self.known or (run.M, run.loss)))


def trained(
    name: str, engine: str, *, is_known: bool = False, interval: int = 1, compiled: bool = False, changes: bool = True
) -> dict[str, np.ndarray]:
    """The state after two epochs, in the first of which the change is made."""
    mg.manual_seed(0)
    KeepingLayer.rate = 1.0
    layers: list[mg.Layer] = [
        mg.ActivationLayer(D, H, "LeakyReLU(0.1)", support=support(0) if name in OF_SPARSE else None),
        mg.BatchNormalizationLayer(H),
        (KeepingLayer if name in OF_USERS else mg.LinearLayer)(H, H),
        mg.LinearDropoutLayer(H, K, dropout=0.3),
    ]
    M = mg.MultilayerPerceptron(layers)
    M.set_optimizer("Momentum(0.9)")
    M.to(engine, dtype="float64" if engine in ENGINES else "float32")
    loss = ScaledLoss() if name == "a number of a loss of users" else mg.HuberLoss(1.0)
    rng = np.random.default_rng(0)
    data = mg.DataLoader(rng.normal(size=(N, D)), rng.normal(size=(N, K)), 4).to(M.backend.name, dtype=M.dtype)
    change = ALL[name] if changes else lambda run, M, loss: None
    callback = Changing(change, (M, loss) if is_known else None, interval)
    mg.stochastic_gradient_descent(M, 2, loss, lambda i: RATE, data, compiled=compiled, callbacks=[callback])
    return {key: A.flat() if isinstance(A, Support) else M.backend.to_numpy(A) for key, A in M.state().items()}


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], **tolerances: float) -> None:
    assert found.keys() == expected.keys()
    for key, A in expected.items():
        np.testing.assert_allclose(found[key], A, err_msg=key, **tolerances)


@pytest.mark.parametrize("is_known", [False, True], ids=["of the run", "known before"])
@pytest.mark.parametrize(("name", "engine"), spread(list(ALL), ENGINES, name=str))
def test_a_change_counts_from_the_next_batch_on(name: str, engine: str, is_known: bool):
    without = trained(name, engine, changes=False)
    for interval in (1, 2):
        options = {"is_known": is_known, "interval": interval}
        expected, found = (trained(name, engine, compiled=compiled, **options) for compiled in (False, True))
        assert_equal(found, expected, rtol=1e-8, atol=1e-11)
        is_changed = found.keys() != without.keys() or any(not np.array_equal(A, found[k]) for k, A in without.items())
        assert is_changed or name in NEUTRAL, "the change has no effect"


OF_TRACES = ("a number of the loss", "another loss", "a list in a dictionary", "an attribute of a class", "weights")


@pytest.mark.parametrize("name", OF_TRACES)
def test_a_traced_step_follows_changes(backend: str, name: str):
    options = {"is_known": True, "interval": 1}
    expected, found = (trained(name, backend.name, compiled=compiled, **options) for compiled in (False, True))
    assert_equal(found, expected, rtol=2e-4, atol=1e-5)


# -- polls only look ---------------------------------------------------------------------------------

POLLED: dict[str, Change] = {
    key: CHANGES[key] for key in ("a number of the loss", "another loss", "the learning rate", "weights")
} | {"the mode of the model": CHANGES["the mode of the model"]}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", POLLED)
def test_a_poll_that_changes_the_run_is_refused(name: str, compiled: bool):
    class Polling(mg.Callback):
        def poll(self, run) -> None:
            POLLED[name](run, run.M, run.loss)

    M = mg.MultilayerPerceptron([mg.ActivationLayer(D, H, "ReLU"), mg.LinearLayer(H, K)]).to("native", dtype="float64")
    data = [(np.ones((4, D)), np.ones((4, K)))] * 3
    options = {"compiled": compiled, "callbacks": [Polling()]}
    with pytest.raises(RuntimeError, match=r"Polling\.poll has changed the run"):
        mg.stochastic_gradient_descent(M, 1, mg.HuberLoss(1.0), lambda i: RATE, data, **options)


def test_a_poll_may_look(monkeypatch):
    seen = []

    class Polling(mg.Callback):
        def poll(self, run) -> None:
            seen.append((run.step, run.loss, len(run.M.state())))

    M = mg.MultilayerPerceptron([mg.LinearDropoutLayer(D, K, dropout=0.5)]).to("numpy", dtype="float64")
    M.fit(np.ones((12, D)), np.ones((12, K)), epochs=2, batch_size=4, callbacks=[Polling()], statistics=False)
    assert [step for step, *_ in seen] == [1, 2, 3, 4, 5, 6]


# -- recording leaves what a layer keeps as it is ------------------------------------------------------


class LoggingLayer(mg.LinearLayer):
    """Keeps the size of the last batch in a list that others have too and, if it is told to, counts in a list."""

    def __init__(self, *sizes: int, log: list[int], counts: bool) -> None:
        super().__init__(*sizes)
        self.log, self.table, self.counts = log, {"sizes": log, "all": [[]]}, counts

    def feedforward(self, X):
        self.log[:] = [X.shape[0]]
        if self.counts:
            self.table["all"][0].append(1)
        return super().feedforward((1 / self.table["sizes"][0]) * X)


@pytest.mark.parametrize("counts", [False, True])
def test_recording_changes_nothing_that_a_layer_keeps(counts: bool):
    log = [7]
    M = mg.MultilayerPerceptron([LoggingLayer(D, H, log=log, counts=counts), mg.LinearLayer(H, K)])
    if counts:
        with pytest.raises(TypeError, match=r"a layer keeps LoggingLayer\.table from step to step"):
            M.program()
    else:
        assert "0.25·X" in str(M.program(batch_size=4))
    assert (log, M.layers[0].log, M.layers[0].table) == ([7], [7], {"sizes": [7], "all": [[]]})
