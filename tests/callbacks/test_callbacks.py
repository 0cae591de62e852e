"""Callbacks: when they are called, what they see, and how they stop, interrupt or end a run."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import matgrad as mg
from matgrad.callbacks import Callback, GradientCheck, Matrices
from matgrad.engines.native import NativeExecutor, NativeStep
from support import AfterEpoch

D, K, N = 6, 3, 70
ENGINES = ("numpy", "torch", "native")


def model(name: str = "numpy") -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(D, 8, "ReLU"), mg.LinearLayer(8, K)])
    M.set_optimizer("Momentum(0.9)")
    return M.to(name, dtype="float64")


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


class Diary(Callback):
    """Writes down what is called, and when."""

    def __init__(self, wants_batches: bool = False) -> None:
        self.wants_batches = wants_batches
        self.lines: list[str] = []

    def start(self, run) -> None:
        self.lines.append(f"start {run.epoch} of {run.epochs}")

    def batch(self, run) -> None:
        self.lines.append(f"batch {run.batch} of {run.batches}, step {run.step}, {len(run.X)} examples")

    def epoch(self, run) -> None:
        self.lines.append(f"epoch {run.epoch}: {', '.join(run.row)}")

    def end(self, run) -> None:
        self.lines.append("end")


def test_callbacks_are_called_in_order():
    diary = Diary(wants_batches=True)
    model().fit(*data(), epochs=2, batch_size=40, callbacks=[diary])
    row = "epoch, learning_rate, seconds, loss, accuracy"
    assert diary.lines == [
        "start 0 of 2",
        "batch 1 of 2, step 1, 40 examples",
        "batch 2 of 2, step 2, 30 examples",
        f"epoch 1: {row}",
        "batch 1 of 2, step 3, 40 examples",
        "batch 2 of 2, step 4, 30 examples",
        f"epoch 2: {row}",
        "end",
    ]


@pytest.fixture
def core(monkeypatch):
    """How many batches the core ran by itself, and how many one by one."""
    counts = {"epochs": 0, "calls": 0}
    train, execute = NativeStep._train, NativeExecutor.execute

    def counting_train(self, loader, order, rates, poll):
        counts["epochs"] += len(rates)
        return train(self, loader, order, rates, poll)

    def counting_execute(self, **inputs):
        counts["calls"] += "eta" in inputs
        return execute(self, **inputs)

    monkeypatch.setattr(NativeStep, "_train", counting_train)
    monkeypatch.setattr(NativeExecutor, "execute", counting_execute)
    return counts


@pytest.mark.parametrize("wants_batches", [False, True])
def test_the_core_trains_whole_epochs_unless_a_callback_wants_batches(core, wants_batches: bool):
    M = model("native")
    M.fit(*data(), epochs=3, batch_size=20, seed=0, validation=0.2, callbacks=[Diary(wants_batches)])
    assert core == ({"epochs": 0, "calls": 9} if wants_batches else {"epochs": 6, "calls": 3})  # of 56 examples
    other = model("native")
    other.fit(*data(), epochs=3, batch_size=20, seed=0, validation=0.2)
    for name, X in M.state().items():
        np.testing.assert_array_equal(X, other.state()[name])


def test_statistics_are_those_of_the_model():
    M, (X, t) = model(), data()
    history = M.fit(X, t, epochs=3, validation=(X[:30], t[:30]))
    Y = M.predict(X)
    P = np.exp(Y) / np.exp(Y).sum(axis=1, keepdims=True)
    losses = -np.log(P[np.arange(N), t])
    assert history["loss"][-1] == pytest.approx(losses.mean(), rel=1e-12)
    assert history["validation_loss"][-1] == pytest.approx(losses[:30].mean(), rel=1e-12)
    assert history["accuracy"][-1] == M.score(X, t) == np.mean(Y.argmax(axis=1) == t)


def test_early_stopping_keeps_the_best_model():
    states, losses = {}, []

    def keep(run) -> None:
        states[run.epoch] = run.M.state()
        losses.append(run.row["validation_loss"])

    M = model()
    M.fit(
        *data(), epochs=200, learning_rate=0.3, validation=0.3, early_stopping=4, seed=3, callbacks=[AfterEpoch(keep)]
    )
    best = int(np.argmin(losses)) + 1
    assert len(losses) == best + 4 < 200
    for name, X in M.state().items():
        np.testing.assert_array_equal(X, states[best][name])


def then_diverge(i: int) -> float:
    """A good rate for three epochs, then one that no model survives."""
    return 0.01 if i < 3 else 1e300


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statistics", [False, True])
def test_a_diverging_run_ends_in_the_same_words_everywhere(engine: str, statistics: bool):
    what = "the loss is" if statistics else r"\d\.\w+(\.delta)? has elements that are not finite"
    M = model(engine)
    with pytest.raises(FloatingPointError, match=rf"^{what}.* after epoch 4: a smaller learning rate or clipping may"):
        M.fit(*data(), loss="SquaredError", learning_rate=then_diverge, epochs=9, statistics=statistics)
    assert M.history["epoch"] == [1, 2, 3, 4]

    X, t = data()
    loader = mg.DataLoader(X, t, 50).to(M.backend.name)
    with pytest.raises(FloatingPointError, match=r"has elements that are not finite after epoch 1: a smaller"):
        mg.stochastic_gradient_descent(model(engine), 5, mg.SquaredErrorLoss(), lambda i: 1e300, loader)


@pytest.mark.parametrize("engine", ENGINES)
def test_early_stopping_that_meets_divergence_keeps_the_best_model(engine: str):
    states, losses = {}, []

    def keep(run) -> None:
        states[run.epoch] = run.M.state()
        losses.append(run.row["validation_loss"])

    M, options = model(engine), {"validation": 0.3, "early_stopping": 5, "seed": 3, "callbacks": [AfterEpoch(keep)]}
    with pytest.warns(UserWarning, match=r"the loss is .* after epoch 4: .*; kept the model of epoch (\d), with val"):
        history = M.fit(*data(), loss="SquaredError", learning_rate=then_diverge, epochs=9, **options)
    best = int(np.argmin(losses[:3])) + 1
    assert history["epoch"] == [1, 2, 3, 4]
    for name, X in M.state().items():
        np.testing.assert_array_equal(X, states[best][name])
    assert np.isfinite(M.predict(data()[0])).all()


class StopAfter(Callback):
    """Stops training when so many batches are done, or presses Ctrl-C then."""

    wants_batches = True

    def __init__(self, steps: int, action) -> None:
        self.steps, self.action = steps, action

    def batch(self, run) -> None:
        if run.step == self.steps:
            self.action(run)


def after_batches(engine: str, batches: int) -> dict[str, np.ndarray]:
    """The state after so many batches in the order of the data."""
    X, t = data()
    M = model(engine)
    M.fit(X[: 20 * batches], t[: 20 * batches], epochs=1, batch_size=20, shuffle=False)
    return M.state()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_may_stop_training_in_the_middle_of_an_epoch(engine: str):
    M = model(engine)
    history = M.fit(*data(), batch_size=20, shuffle=False, callbacks=[StopAfter(2, lambda run: run.stop())])
    assert history == {}
    for name, X in M.state().items():
        np.testing.assert_allclose(X, after_batches(engine, 2)[name], rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_control_c_ends_training_between_two_batches(engine: str):
    M, before = model(engine), signal.getsignal(signal.SIGINT)
    diary, press = Diary(), StopAfter(3, lambda run: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        M.fit(*data(), batch_size=20, shuffle=False, callbacks=[diary, press])
    assert diary.lines == ["start 0 of 20", "end"]
    assert signal.getsignal(signal.SIGINT) is before
    for name, X in M.state().items():
        np.testing.assert_allclose(X, after_batches(engine, 3)[name], rtol=1e-12)


def test_callbacks_end_also_if_another_one_fails():
    ended = []

    class Ending(Callback):
        def end(self, run) -> None:
            ended.append("ending")

    class Failing(Callback):
        def end(self, run) -> None:
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model().fit(*data(), epochs=1, callbacks=[Ending(), Failing()])
    assert ended == ["ending"]


def test_the_history_is_kept_where_training_is_interrupted_or_fails():
    def fail(run) -> None:
        raise ZeroDivisionError

    press = StopAfter(7, lambda run: signal.raise_signal(signal.SIGINT))  # in the second epoch of four batches
    for error, callback in ((KeyboardInterrupt, press), (ZeroDivisionError, StopAfter(7, fail))):
        M = model()
        with pytest.raises(error):
            M.fit(*data(), batch_size=20, callbacks=[callback])
        assert M.history["epoch"] == [1]
        assert len(M.history["loss"]) == 1
    assert M.fit(*data(), epochs=2) == M.history
    assert model().history == {}


def test_seconds_are_those_of_training_without_callbacks(monkeypatch):
    """A clock that goes on by 1 for each batch, and by 1000 in each callback."""
    clock = [0.0]
    monkeypatch.setattr("matgrad.training.run.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    class Slow(Callback):
        def pass_time(self, run) -> None:
            clock[0] += 1000

        start = batch = poll = epoch = end = pass_time

    X, t = data()

    def batches():
        for batch in mg.DataLoader(X, t, 20):
            clock[0] += 1
            yield batch

    loss = mg.SoftmaxCrossEntropyLoss()
    history = mg.stochastic_gradient_descent(model(), 3, loss, lambda i: 0.1, lambda i: batches(), callbacks=[Slow()])
    assert history["seconds"] == [4, 4, 4]


class PressingPoll(Callback):
    """Presses Ctrl-C the first time that it is asked, which in the core is in the middle of an epoch or at its end."""

    def poll(self, run) -> None:
        if run.step == run.batch:
            signal.raise_signal(signal.SIGINT)
            self.poll = lambda run: None


def test_control_c_reaches_the_core_in_whole_epochs(core):
    M = model("native")
    with pytest.raises(KeyboardInterrupt):
        M.fit(*data(), epochs=100_000, batch_size=10, callbacks=[PressingPoll()])
    assert core["epochs"] == 7, "one epoch was begun"


def test_a_second_control_c_ends_at_once():
    def press_twice(run) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one was not heard")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        model().fit(*data(), callbacks=[StopAfter(1, press_twice)])
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_in_a_thread_that_gets_no_signals():
    results = []
    thread = threading.Thread(target=lambda: results.append(model().fit(*data(), epochs=2)))
    thread.start()
    thread.join()
    assert len(results[0]["loss"]) == 2


def test_end_is_called_where_training_fails():
    def fail(run) -> None:
        raise ZeroDivisionError("on purpose")

    diary = Diary()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        model().fit(*data(), callbacks=[diary, AfterEpoch(fail)])
    assert diary.lines[-1] == "end"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_sees_the_parameters_of_now_after_update(engine: str):
    seen = []

    def look(run) -> None:
        seen.append(np.array(run.M.backend.to_numpy(run.M.layers[0].W)))
        run.stop()

    model(engine).fit(*data(), batch_size=20, shuffle=False, callbacks=[StopAfter(2, look)])
    np.testing.assert_allclose(seen[0], after_batches(engine, 2)["1.W"], rtol=1e-12)


class HalfLayer(mg.LinearLayer):
    """A linear layer with a wrong gradient."""

    def backpropagate(self, Y, DY) -> None:
        super().backpropagate(Y, DY)
        self.DW = self.DW / 2


@pytest.mark.parametrize("layer", [mg.LinearLayer, HalfLayer])
def test_gradients_are_checked_while_training(layer):
    lines: list[str] = []
    M = mg.MultilayerPerceptron([layer(D, K)])
    if layer is HalfLayer:
        with pytest.raises(ArithmeticError, match=r"layer 1 HalfLayer\.DW is wrong"):
            M.fit(*data(), epochs=2, callbacks=[GradientCheck(say=lines.append)])
    else:
        M.fit(*data(), epochs=2, callbacks=[GradientCheck(say=lines.append)])
        assert len(lines) == 2


def printed(lines: list[str]) -> dict[str, np.ndarray]:
    """The printed matrices and losses, by what is said of them."""
    found = {}
    for line in lines:
        name, _, matrix = line.partition("\n")
        if matrix:
            found[name] = np.array([row.strip("[] ").split() for row in matrix.split("\n")], dtype=float)
        else:
            name, _, number = name.rpartition(" ")
            found[name] = np.array(float(number))
    return found


def test_matrices_are_those_of_one_step_before_its_update():
    lines: list[str] = []
    X, t = data()
    M = model()
    M.set_optimizer("GradientDescent")
    with np.printoptions(precision=17, threshold=10**6, linewidth=10**6):
        M.fit(
            X, t, epochs=2, batch_size=40, seed=0, learning_rate=0.5, compiled=False, callbacks=[Matrices(lines.append)]
        )
    half = len(lines) // 4  # batches of 40 and 30 in two epochs
    steps = [printed(lines[i * half : (i + 1) * half]) for i in range(4)]
    for i, step in enumerate(steps):
        A = {name.split(" ", 2)[2]: value for name, value in step.items()}
        X1, W1, b1, Z1, Y1, DY1, DZ1, DX1 = (
            A[f"layer 1 {name}"] for name in ["X", "W", "b", "Z", "Y", "DY", "DZ", "DX"]
        )
        X2, W2, b2, Y2, DY2, DW2, DX2 = (A[f"layer 2 {name}"] for name in ["X", "W", "b", "Y", "DY", "DW", "DX"])
        T = A["T"]
        P = np.exp(Y2) / np.exp(Y2).sum(axis=1, keepdims=True)
        for found, expected in (
            (Z1, X1 @ W1.T + b1), (Y1, np.maximum(Z1, 0)), (X2, Y1), (Y2, X2 @ W2.T + b2),
            (A["loss"], -np.sum(T * np.log(P)) / len(T)), (DY2, (P - T) / len(T)), (DW2, DY2.T @ X2),
            (DX2, DY2 @ W2), (DY1, DX2), (DZ1, DY1 * (Z1 >= 0)), (DX1, DZ1 @ W1),
        ):  # fmt: skip
            np.testing.assert_allclose(found, expected, rtol=1e-5 if found.ndim == 0 else 1e-12, atol=1e-15)
        if i:
            before = steps[i - 1]
            W, DW = (before[f"batch {2 - i % 2} layer 2 {name}"] for name in ("W", "DW"))
            np.testing.assert_allclose(W2, W - 0.5 * DW, rtol=1e-12)


def test_the_paper_listing_takes_callbacks_and_returns_the_history():
    X, t = data()
    diary = Diary()
    history = mg.stochastic_gradient_descent(
        model(), 2, mg.SoftmaxCrossEntropyLoss(), mg.ConstantScheduler(0.1), mg.DataLoader(X, t), callbacks=[diary]
    )
    assert history["epoch"] == [1, 2]
    assert diary.lines[0] == "start 0 of 2"
