"""Whole epochs of a loader in the engine: the same steps as batch by batch, polls in between, and a way to stop."""

import os
import signal
import time
from threading import Thread

import numpy as np
import pytest

import matgrad as mg
from matgrad.datasets import DataLoader
from matgrad.engines.engine import compile_step
from matgrad.engines.native import NativeExecutor, NativeStep
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import create_loss
from matgrad.specifications.models import create_model
from support import to_numpy

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


# -- in the C++ core -----------------------------------------------------------------------------------

LOSS = mg.SoftmaxCrossEntropyLoss()
D, K = 20, 5


def model(densities: str = "1", H: int = 30) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    layers = create_model("ReLU;Linear", f"{D};{H};{K}", densities=f"{densities};1", optimizers="Momentum(0.9)")
    return layers.to("native", dtype="float64")


def data(N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


def states(loader_of, densities: str = "1", epochs: int = 3) -> list[dict[str, np.ndarray]]:
    """The states after some epochs, and after the same epochs with one call a batch."""
    by_epochs, by_calls = (compile_step(model(densities), LOSS) for _ in range(2))
    loaders = loader_of(), loader_of()
    for step in (by_epochs, by_calls):
        step.load(model(densities).state())
    for _ in range(epochs):
        by_epochs.train(loaders[0], rate)
        for i, (X, T) in enumerate(loaders[1]):
            by_calls(X, T, rate(i))
    return [by_epochs.state(), by_calls.state()]


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(to_numpy(a[name]), to_numpy(b[name]), err_msg=name)


LAYOUTS = {
    "by columns": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_examples_may_have_any_layout(layout):
    X, t = data(300)
    loader, other = (mg.DataLoader(X, t, 100, classes=K).to("native") for _ in range(2))
    other.X = LAYOUTS[layout](X)
    assert not (other.X.flags.c_contiguous and other.X.flags.writeable)
    assert_same(states(lambda: other)[0], states(lambda: loader)[0])


def test_a_loader_of_the_user_keeps_its_own_batches():
    class Doubled(mg.DataLoader):
        def __iter__(self):
            for X, T in super().__iter__():
                yield 2 * X, T

    X, t = data(300)
    assert_same(*states(lambda: Doubled(X, t, 100, classes=K).to("native")))


def test_a_profile_counts_the_batches_of_an_epoch():
    M = model()
    with mg.profile(M) as profile:
        M.fit(*data(337), epochs=2, batch_size=50)
    assert profile.batches == 14


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal")
def test_a_user_can_stop_an_epoch(monkeypatch):
    """A signal that comes after the first batch ends the epoch, which would take half a minute."""

    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    def press(executor: NativeExecutor) -> None:
        while executor.runs == 0:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)

    def train(step: NativeStep, loader: DataLoader, *arguments) -> None:
        user = Thread(target=press, args=(step.prepare(*loader.batch(0)),))
        user.start()
        try:
            original(step, loader, *arguments)
        finally:
            user.join()

    original = NativeStep._train
    monkeypatch.setattr(NativeStep, "_train", train)
    M, N = model(H=1000), 100_000
    before = M.state()["1.W"].copy()
    handler = signal.signal(signal.SIGUSR1, stop)
    try:
        with mg.profile(M) as profile, pytest.raises(Stopped):
            M.fit(*data(N), batch_size=1, shuffle=False)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert 0 < profile.batches < N
    state = M.state()
    assert not np.array_equal(state["1.W"], before), "the steps done so far are kept"
    assert all(np.isfinite(A).all() for A in state.values())


def test_a_last_batch_that_cannot_be_compiled_is_trained_by_the_equations(monkeypatch):
    prepare = NativeStep.prepare

    def refusing(step: NativeStep, X: np.ndarray, T: np.ndarray):
        if len(X) == 37:
            raise TypeError("37 is too odd")
        return prepare(step, X, T)

    M, expected = model(), model()
    expected.fit(*data(337), epochs=2, seed=4)
    monkeypatch.setattr(NativeStep, "prepare", refusing)
    with pytest.warns(UserWarning, match="training continues uncompiled: 37 is too odd"):
        M.fit(*data(337), epochs=2, seed=4)
    for name, A in expected.state().items():
        np.testing.assert_allclose(M.state()[name], A, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((200, D + 1))}, "X: the array has a different shape or dtype"),
        ({"X": np.zeros((200, D), np.float32)}, "X: the array has a different shape or dtype"),
        ({"rates": np.zeros((2, 1))}, "eta: the array has a different shape or dtype"),
        ({"rates": np.zeros(3)}, "expected 300 examples, found 200"),
        ({"order": np.arange(100)}, "expected one per row of X"),
        ({"order": np.full(200, 200)}, "X has no row 200"),
        ({"labels": np.full(200, K)}, f"T has no row {K}"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict, message: str):
    step = compile_step(model(), LOSS)
    step.load(model().state())
    arguments = {
        "X": np.zeros((200, D)),
        "T": np.eye(K),
        "rates": np.zeros(2),
        "order": np.arange(200),
        "labels": np.zeros(200, np.int64),
    }
    executor = step.prepare(np.zeros((100, D)), np.zeros((100, K)))
    executor.core.train(**arguments)
    with pytest.raises(ValueError, match=message):
        executor.core.train(**arguments | changes)
