"""What several ranks cannot do is refused: each would train a model of its own instead."""

from __future__ import annotations

import numpy as np
import pytest
from threads import using

import matgrad as mg
from matgrad.backends.base import RecordingError
from matgrad.distributed import Collectives, Group
from matgrad.engines.engine import engine_of
from support import Framework

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

X, T = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2


class Alone(Collectives):
    """A group whose other ranks say what this one says, and compute nothing."""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size

    def start_sum(self, X):
        raise AssertionError

    wait = maximum = broadcast = start_sum

    def _exchange(self, item):
        return [item] * self.size

    def gather(self, X, shapes):
        raise AssertionError


class Unrecordable(mg.LinearLayer):
    """Y = c X Wᵀ + 1_N b, with a c that depends on the numbers in X"""

    def feedforward(self, X):
        return super().feedforward((2.0 if float(X[0, 0]) > 0 else 1.0) * X)


def fit(layer: mg.Layer, backend: Framework, group: Group, **options):
    mg.manual_seed(0)
    M = mg.MultilayerPerceptron([layer, mg.LinearLayer(4, 2)]).to(backend.name)
    with using(group):
        M.fit(X, T, epochs=1, statistics=False, **options)


@pytest.fixture
def alone(backend: Framework, monkeypatch):
    """Lets the backend's engine compile steps on ranks as for one process."""
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)]).to(backend.name)
    kind = type(engine_of(M))
    original = kind.step
    monkeypatch.setattr(kind, "step", lambda engine, step, group: original(engine, step))
    monkeypatch.setattr(kind, "groups", Group)


def test_an_engine_without_training_on_several_processes_says_so(backend: Framework, monkeypatch):
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)]).to(backend.name)
    monkeypatch.setattr(type(engine_of(M)), "groups", None)
    expected = f"^{backend} has no training on several processes; expected jax, native, numpy or torch$"
    with pytest.raises(TypeError, match=expected):
        fit(mg.LinearLayer(3, 4), backend, Alone(2))


def test_a_step_that_cannot_be_compiled_is_refused_on_several_ranks(backend: Framework, alone):
    with pytest.raises(RecordingError, match="training on 2 ranks needs a compiled step: "):
        fit(Unrecordable(3, 4), backend, Alone(2))
    with pytest.warns(UserWarning, match="training continues uncompiled"):
        fit(Unrecordable(3, 4), backend, Alone(1))


def test_equations_one_by_one_are_refused_on_several_ranks(backend: Framework):
    with pytest.raises(RecordingError, match="training on 2 ranks needs a compiled step: compiled is False"):
        fit(mg.LinearLayer(3, 4), backend, Alone(2), compiled=False)
    fit(mg.LinearLayer(3, 4), backend, Alone(1), compiled=False)


def test_an_error_of_the_model_is_told_as_by_one_process(backend: Framework, alone):
    class Wrong(mg.LinearLayer):
        def feedforward(self, X):
            raise ZeroDivisionError("this layer is wrong")

    with pytest.raises(ZeroDivisionError, match="this layer is wrong"):
        fit(Wrong(3, 4), backend, Alone(2))


class Small(Group):
    """A group that exchanges plain values only."""

    rank, size = 0, 1

    def _exchange(self, item):
        return [item]


def test_a_group_that_the_backend_cannot_use_is_refused(backend: Framework):
    if backend.name == "tensorflow":
        pytest.skip("it refuses every group")
    expected = f"models on {backend} train in a group from distributed.start"
    with pytest.raises(TypeError, match=rf"{expected}\(backend='{backend}'\), found Small"):
        fit(mg.LinearLayer(3, 4), backend, Small())
