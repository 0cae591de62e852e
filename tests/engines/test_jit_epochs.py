"""Whole epochs of a loader in the engine: the same steps as batch by batch, and polls in between."""

import numpy as np
import pytest

from matgrad.datasets import DataLoader
from matgrad.engines.engine import compile_step
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import create_loss
from matgrad.specifications.models import create_model

BACKENDS = ("numpy", "torch", "native", "jax", "tensorflow")
RNG = np.random.default_rng(7)
X, LABELS, T = RNG.normal(size=(107, 6)), RNG.integers(0, 3, 107), RNG.normal(size=(107, 3))

LOADERS = {
    "classes": lambda: DataLoader(X, LABELS, 5, shuffle=True, seed=1),
    "in order": lambda: DataLoader(X, LABELS, 5),
    "numbers": lambda: DataLoader(X, T, 5, shuffle=True, seed=1),
    "numbers in order": lambda: DataLoader(X, T, 5),
    "weights": lambda: DataLoader(X, LABELS, 5, shuffle=True, seed=1, weights=np.arange(107)),
    "one batch": lambda: DataLoader(X, T, 200),
    "a part": lambda: list(DataLoader(X, LABELS, 5, shuffle=True, seed=1).parts([4, 15]))[1],
}


def step_of(backend, loss="SquaredError"):
    M = create_model("ReLU;BatchNormalization;Linear", "6;5;3", optimizers="Momentum(0.9)", dropouts="0.2;0")
    M.to(backend.name, dtype="float64")
    step = compile_step(M, create_loss(loss))
    step.load(M.state())
    return step


def arrays(backend, step):
    return {name: backend.backend.to_numpy(A) for name, A in matrices_of(step.state()).items()}


def assert_equal(backend, found, expected):
    for name, A in arrays(backend, expected).items():
        np.testing.assert_allclose(arrays(backend, found)[name], A, rtol=1e-10, atol=1e-12, err_msg=name)


def rate(i):
    return 0.01 / (1 + i)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", LOADERS)
def test_an_epoch_is_its_batches(backend, kind):
    together, single = step_of(backend), step_of(backend)
    single.load(together.state())
    loader, same = (LOADERS[kind]().to(backend.name) for _ in range(2))
    done = []
    together.train(loader, rate, done.append, first=2)
    for i, batch in enumerate(same, 2):
        A, B, *s = batch
        single(A, B, backend.matrix(rate(i)), *s)
    assert_equal(backend, together, single)
    assert done == sorted(set(done))
    assert done[-1] == 2 + len(loader)


def test_an_error_of_a_poll_ends_training_there(backend):
    together, single = step_of(backend), step_of(backend)
    single.load(together.state())
    loader = LOADERS["classes"]().to(backend.name)
    done = []

    def poll(i):
        done.append(i)
        raise KeyError

    with pytest.raises(KeyError):
        together.train(loader, rate, poll)
    assert 1 <= done[0] <= len(loader)
    for i, (A, B) in enumerate(LOADERS["classes"]().to(backend.name)):
        if i < done[0]:
            single(A, B, backend.matrix(rate(i)))
    assert_equal(backend, together, single)


def test_batches_before_a_wrong_rate_are_trained_on(backend):
    together, single = step_of(backend), step_of(backend)
    single.load(together.state())

    def until(i):
        if i == 13:
            raise ValueError("no more")
        return rate(i)

    with pytest.raises(ValueError, match="no more"):
        together.train(LOADERS["classes"]().to(backend.name), until)
    for i, (A, B) in enumerate(LOADERS["classes"]().to(backend.name)):
        if i < 13:
            single(A, B, backend.matrix(rate(i)))
    assert_equal(backend, together, single)


def test_jax_makes_few_calls(backend, monkeypatch):
    if backend.name != "jax":
        pytest.skip("of JAX")
    import matgrad.engines.jit as jit

    step, calls = step_of(backend), []
    several = step.several
    step.several = lambda state, examples, etas, start, N: (
        calls.append(len(etas)) or several(state, examples, etas, start, N=N)
    )
    done = []
    step.train(LOADERS["classes"]().to("jax"), rate, done.append)  # 21 batches of 5 examples, and one of 2
    assert (calls, done) == ([21], [21, 22])
    monkeypatch.setattr(jit, "MOST_STEPS", 5)
    step.train(LOADERS["classes"]().to("jax"), rate, done.append)
    assert calls == [21, *[3] * 7]  # of 3, 4 and 5, this leaves no batch over
    monkeypatch.setattr(jit, "MOST_FLOPS", {"cpu": 1, "gpu": 1})
    step.train(LOADERS["classes"]().to("jax"), rate, done.append)
    assert len(calls) == 8
    assert done[-22:] == list(range(1, 23))
