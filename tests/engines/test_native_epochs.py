"""Epochs in the C++ core: they give what one call a batch gives, take what a loader takes, and can be stopped."""

from __future__ import annotations

import os
import signal
import time
from threading import Thread

import numpy as np
import pytest

import matgrad as mg
from matgrad.engines.engine import compile_step
from matgrad.engines.native import NativeExecutor, NativeStep
from matgrad.specifications.models import create_model
from support import to_numpy

LOSS = mg.SoftmaxCrossEntropyLoss()
D, K = 20, 5


def model(densities: str = "1", H: int = 30) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    layers = create_model("ReLU;Linear", f"{D};{H};{K}", densities=f"{densities};1", optimizers="Momentum(0.9)")
    return layers.to("native", dtype="float64")


def data(N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


def rate(i: int) -> float:
    return 0.1 / (1 + i)


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


def assert_equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(to_numpy(a[name]), to_numpy(b[name]), err_msg=name)


@pytest.mark.parametrize("densities", ["1", "0.2"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("N", [300, 337, 40])
def test_an_epoch_is_a_call_a_batch(densities: str, shuffle: bool, has_labels: bool, N: int):
    X, t = data(N)
    T = t if has_labels else np.eye(K)[t] * 0.9 + 0.02
    a, b = states(lambda: mg.DataLoader(X, T, 100, shuffle=shuffle, seed=3, classes=K).to("native"), densities)
    assert_equal(a, b)
    assert not np.array_equal(a["1.W"], model(densities).state()["1.W"])


@pytest.mark.parametrize("as_given", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2]])
def test_examples_need_not_be_contiguous(as_given):
    X, t = data(300)
    loader = mg.DataLoader(X, t, 100, classes=K).to("native")
    other = mg.DataLoader(X, t, 100, classes=K).to("native")
    other.X = as_given(X)
    assert not other.X.flags.c_contiguous
    a, b = states(lambda: other)[0], states(lambda: loader)[0]
    assert_equal(a, b)


def test_a_loader_of_the_user_keeps_its_own_batches():
    class Doubled(mg.DataLoader):
        def __iter__(self):
            for X, T in super().__iter__():
                yield 2 * X, T

    X, t = data(300)
    assert_equal(*states(lambda: Doubled(X, t, 100, classes=K).to("native")))


def test_training_takes_whole_epochs():
    """`fit` gives on the core what it gives on NumPy, whose step is called for every batch."""
    X, t = data(337)
    histories = []
    for backend in ("numpy", "native"):
        M = model("0.2").to(backend)
        history = M.fit(X, t, epochs=3, batch_size=50, seed=4, learning_rate=rate, per_step=True)
        histories.append(history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-9)


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

    def train(executor: NativeExecutor, *arguments) -> None:
        user = Thread(target=press, args=(executor,))
        user.start()
        try:
            original(executor, *arguments)
        finally:
            user.join()

    original = NativeExecutor.train
    monkeypatch.setattr(NativeExecutor, "train", train)
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


def test_a_schedule_may_end_the_training():
    def stops(i: int) -> float:
        if i == 2:
            raise StopAsyncIteration
        return 0.1

    X, t = data(300)
    M, expected = model(), model()
    with pytest.raises(StopAsyncIteration):
        M.fit(X, t, learning_rate=stops, per_step=True, shuffle=False, batch_size=100)
    expected.fit(X[:200], t[:200], learning_rate=0.1, epochs=1, shuffle=False, batch_size=100)
    assert_equal(M.state(), expected.state())


def test_examples_may_be_read_only(tmp_path):
    X, t = data(337)
    np.save(tmp_path / "X.npy", X)
    mapped = mg.DataLoader(np.load(tmp_path / "X.npy", mmap_mode="r"), t, 100, classes=K)
    assert not mapped.X.flags.writeable
    assert_equal(states(lambda: mapped)[0], states(lambda: mg.DataLoader(X, t, 100, classes=K))[0])


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
        ({"X": np.zeros(200)}, "X: the array has a different shape or dtype"),
        ({"T": np.zeros((K, K + 1))}, "T: the array has a different shape or dtype"),
        ({"rates": np.zeros((2, 1))}, "eta: the array has a different shape or dtype"),
        ({"rates": np.zeros(3)}, "expected 300 examples, found 200"),
        ({"order": np.arange(100)}, "expected one per row of X"),
        ({"order": np.full(200, 200)}, "X has no row 200"),
        ({"order": np.full(200, -1)}, "X has no row -1"),
        ({"labels": np.full(200, K)}, f"T has no row {K}"),
        ({"labels": np.zeros(10, np.int64)}, "expected one per row of X"),
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
    executor.train(**arguments)
    with pytest.raises(ValueError, match=message):
        executor.train(**arguments | changes)
