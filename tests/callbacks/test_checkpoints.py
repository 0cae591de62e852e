"""Checkpoints: a run that goes on from one ends as if it had never stopped."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from safetensors.numpy import save_file

import matgrad as mg
from matgrad.backends import backend_of
from matgrad.callbacks import ending
from matgrad.foundation.machine import threads
from matgrad.foundation.numbers import generator
from matgrad.layers.state import matrices_of, supports_of
from matgrad.storage.checkpoints import checkpoint_files, find_checkpoint, read_checkpoint
from support import open_folder, unprivileged

BACKENDS = ("numpy", "torch", "native", "jax", "tensorflow")
TIMES = ("seconds", "peak_memory")  # what differs between equal runs

X, t = mg.load_digits()
X, t = X[:300] / 16, t[:300]


class Crash(mg.Callback):
    """Ends a run after some steps, as if it had been killed."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def poll(self, run):
        if run.step >= self.steps:
            raise RuntimeError("crash")


def model(backend, **settings) -> mg.MultilayerPerceptron:
    mg.manual_seed(3)
    options = {"dropouts": "0.2;0;0", "densities": "0.3;0.5;1", "optimizers": "Adam"} | settings
    if str(backend) in ("jax", "tensorflow"):
        options["densities"] = 1
    return mg.create_model("ReLU;BatchNormalization;ReLU;Linear", [64, 24, 16, 10], **options).to(str(backend))


def fit(M: mg.MultilayerPerceptron, *callbacks: mg.Callback, **options) -> dict[str, list]:
    """Train with everything that a checkpoint has to keep: orders without a seed, rates per step, early stopping."""
    settings = {"epochs": 4, "batch_size": 32, "validation": 0.2, "early_stopping": 9, "per_step": True}
    settings |= {"learning_rate": "Exponential(0.01; 0.01)", "callbacks": callbacks}
    return M.fit(X, t, **(settings | options))


def assert_equal(M: mg.MultilayerPerceptron, other: mg.MultilayerPerceptron) -> None:
    a, b = M.state(), other.state()
    for name, A in matrices_of(a).items():
        np.testing.assert_array_equal(*(backend_of(B).to_numpy(B) for B in (A, b[name])), err_msg=name)
    for name, S in supports_of(a).items():
        np.testing.assert_array_equal(S.kept_flat(), b[name].kept_flat(), err_msg=name)


def crashed(folder, M, steps: int, *callbacks, every="1", **options) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(M, *callbacks, mg.Checkpoints(folder, every), Crash(steps), **options)


@pytest.mark.parametrize(("every", "steps"), [("1", 0), ("1", 20), ("3 steps", 17)])
def test_a_run_that_goes_on_ends_as_if_it_had_never_stopped(tmp_path, backend, every, steps):
    is_sparse = str(backend) not in ("jax", "tensorflow")
    if not is_sparse and every == "1":
        pytest.skip("steps are the harder case, and compiling takes long")

    def methods():
        return [mg.RigL(every=4)] if is_sparse else []

    M = model(backend)
    expected = fit(M, *methods())
    crashed(tmp_path, model(backend), steps, *methods(), every=every)
    other = model(backend)
    mg.manual_seed(99)
    found = fit(other, *methods(), mg.Checkpoints(tmp_path, every), resume=tmp_path)

    assert_equal(M, other)
    for name in expected.keys() - {*TIMES}:
        assert found[name] == expected[name], name


@pytest.mark.parametrize("method", [lambda: mg.SNIP(0.3), lambda: mg.GMP(0.3, every=4), lambda: mg.SET(every=4)])
def test_methods_of_sparse_training_go_on(tmp_path, method):
    settings = {} if isinstance(method(), mg.SET) else {"densities": 1}
    M, other = model("numpy", **settings), model("numpy", **settings)
    expected = fit(M, method())
    crashed(tmp_path, model("numpy", **settings), 17, method(), every="3s")
    found = fit(other, method(), mg.Checkpoints(tmp_path, "3s"), resume=tmp_path)
    assert_equal(M, other)
    assert found["explored"] == expected["explored"]
    assert found["flops"] == expected["flops"]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_paper_s_function_goes_on_with_any_data(tmp_path, shuffle):
    """A loader, a function of the epoch, and a list of batches."""
    pairs = [(X[i : i + 30].astype(np.float32), mg.one_hot(t[i : i + 30], 10).astype(np.float32)) for i in (0, 30, 60)]
    settings = (4, mg.SoftmaxCrossEntropyLoss(), lambda i: 0.1)
    kinds = {
        "loader": lambda: mg.DataLoader(X.astype(np.float32), t, 64, shuffle=shuffle, seed=5),
        "function": lambda: lambda i: mg.DataLoader(X.astype(np.float32), t, 64, shuffle=shuffle, seed=i),
        "batches": lambda: pairs,
    }
    for kind, data in kinds.items():
        M, other = model("numpy"), model("numpy")
        mg.stochastic_gradient_descent(M, *settings, data())
        folder = tmp_path / kind
        with pytest.raises(RuntimeError, match="crash"):
            mg.stochastic_gradient_descent(
                model("numpy"), *settings, data(), callbacks=[mg.Checkpoints(folder, "2s"), Crash(7)]
            )
        mg.stochastic_gradient_descent(other, *settings, data(), resume=folder)
        assert_equal(M, other)


def test_another_backend_goes_on_up_to_rounding(tmp_path):
    M = model("native").to(dtype="float64")
    fit(M)
    crashed(tmp_path, model("native").to(dtype="float64"), 17, every="3s")
    for backend in ("numpy", "torch"):
        other = model(backend).to(dtype="float64")
        with pytest.warns(UserWarning, match=f"had the engine native, and is resumed with {backend}"):
            fit(other, mg.Checkpoints(tmp_path / backend), resume=tmp_path)
        np.testing.assert_allclose(other.predict(X), M.predict(X), rtol=0, atol=1e-9)


def test_the_newest_and_the_best_are_kept(tmp_path):
    history = fit(model("numpy"), mg.Checkpoints(tmp_path, keep=2), learning_rate=0.3, early_stopping=None)
    best = int(np.argmin(history["validation_loss"])) + 1
    assert [file.name for file in checkpoint_files(tmp_path)] == [f"step-{8 * i:08}.safetensors" for i in (3, 4)]
    assert read_checkpoint(tmp_path / "best.safetensors").run.epoch == best


def test_a_checkpoint_is_a_model_file(tmp_path):
    M = model("numpy", densities=1)
    M.normalization = mg.datasets.Normalization.of("standard", X)
    M.fit(X, t, epochs=2, callbacks=[mg.Checkpoints(tmp_path)])
    loaded = mg.load(checkpoint_files(tmp_path)[-1])
    np.testing.assert_array_equal(loaded.predict(X), M.predict(X))
    assert loaded.information["loss"] == "SoftmaxCrossEntropy"


@pytest.mark.parametrize("damage", ["cut", "empty", "changed weight", "changed header", "not a checkpoint"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    M, other = model("numpy"), model("numpy")
    fit(M)
    crashed(tmp_path, model("numpy"), 20, every="3s")
    *_, good, bad = checkpoint_files(tmp_path)
    content = bytearray(bad.read_bytes())
    if damage == "changed weight":
        content[-20] ^= 1
    if damage == "changed header":
        content[:] = content.replace(b'\\"step\\": 18', b'\\"step\\": 17')
        assert content != bad.read_bytes()
    bad.write_bytes({"cut": content[: len(content) // 2], "empty": b""}.get(damage, bytes(content)))
    if damage == "not a checkpoint":
        save_file({"a": np.zeros(3)}, bad)
    with pytest.warns(UserWarning, match=rf"{bad.name}: .*; the one before it is used"):
        assert find_checkpoint(tmp_path).path == good
    with pytest.warns(UserWarning, match="the one before it is used"):
        fit(other, mg.Checkpoints(tmp_path, "3s"), resume=tmp_path)
    assert_equal(M, other)


def test_what_does_not_fit_is_refused(tmp_path):
    crashed(tmp_path, model("numpy"), 17, every="3s")
    before = {file.name: file.read_bytes() for file in checkpoint_files(tmp_path)}
    small = mg.create_model("ReLU;Linear", [64, 8, 10])
    start = small.layers[0].W.copy()
    with pytest.raises(ValueError, match=r"its model has layers .*, but this one has layers ReLU;Linear"):
        fit(small, resume=tmp_path)
    np.testing.assert_array_equal(small.layers[0].W, start)
    with pytest.raises(ValueError, match=r"the state does not fit the model: missing .*delta"):
        fit(model("numpy", optimizers="Momentum(0.9)"), resume=tmp_path)
    with pytest.raises(ValueError, match="the checkpoint is of data with 8 batches, found 5"):
        fit(model("numpy"), resume=tmp_path, batch_size=50)
    for options, change in (
        ({"loss": "MultiMargin"}, "had the loss SoftmaxCrossEntropy, and is resumed with MultiMargin"),
        ({"clip_norm": 2}, "had the clip norm none, and is resumed with 2"),
    ):
        with pytest.warns(UserWarning, match=change):
            fit(model("numpy"), resume=tmp_path, **options)
    with pytest.warns(UserWarning, match=r"had the optimizers Adam, and is resumed with Adam\(beta1=0\.8\)"):
        fit(model("numpy", optimizers="Adam(0.8)"), resume=tmp_path)
    with pytest.warns(UserWarning, match="has a callback EarlyStopping, and is resumed without it"):
        fit(model("numpy"), resume=tmp_path, early_stopping=None)
    with pytest.raises(ValueError, match=r"has step-00000015.safetensors of another run"):
        fit(model("numpy"), mg.Checkpoints(tmp_path))
    (tmp_path / "empty").mkdir()
    for path, problem in (
        (tmp_path / "empty", "expected a folder with checkpoints"),
        (tmp_path / "no", "no such file"),
    ):
        with pytest.raises(ValueError, match=problem):
            fit(model("numpy"), resume=path)
    for every in (0, -1, "x", "1.5", "5 minutes", True, None):
        with pytest.raises(ValueError, match="every: expected a number of epochs such as 5"):
            mg.Checkpoints(tmp_path, every)
    assert {file.name: file.read_bytes() for file in checkpoint_files(tmp_path)} == before


def test_a_new_run_removes_what_a_killed_one_has_left(tmp_path):
    (tmp_path / ".matgrad-left").touch()
    fit(model("numpy"), mg.Checkpoints(tmp_path), epochs=1)
    assert not (tmp_path / ".matgrad-left").exists()


def test_what_cannot_be_written_is_told_and_training_goes_on():
    with open_folder() as folder, unprivileged():

        class Protect(mg.Callback):
            def epoch(self, run):
                os.chmod(folder / "checkpoints", 0o500 if run.epoch in (2, 3) else 0o700)

        writer = mg.Checkpoints(folder / "checkpoints")
        with pytest.warns(UserWarning, match=r"after step (16|24): .*Permission denied.*; training continues"):
            fit(model("numpy"), Protect(), writer, epochs=3)
        assert isinstance(writer.failure, PermissionError)
        assert find_checkpoint(folder / "checkpoints").run.epoch == 1
        os.chmod(folder / "checkpoints", 0o700)


def test_ctrl_c_writes_a_checkpoint(tmp_path):
    class CtrlC(mg.Callback):
        def poll(self, run):
            if run.step == 11:
                run.interrupt()

    M, other = model("numpy"), model("numpy")
    fit(M)
    with pytest.raises(KeyboardInterrupt):
        fit(model("numpy"), mg.Checkpoints(tmp_path, 100), CtrlC())
    assert find_checkpoint(tmp_path).run.step == 11
    fit(other, resume=tmp_path)
    assert_equal(M, other)


@pytest.mark.parametrize("backend_name", ["numpy", "native"])
@pytest.mark.parametrize("step", [9, 10])
def test_an_interruption_where_an_update_is_due_loses_no_update(tmp_path, backend_name, step):
    """Ctrl-C, when the engine trains on the batches between two updates by itself."""

    class CtrlC(mg.Callback):
        def poll(self, run):
            if run.step >= step and run.resumed_from is None:
                run.interrupt()

    M, other = model(backend_name), model(backend_name)
    whole, rest = mg.RigL(every=5), mg.RigL(every=5)
    fit(M, whole)
    with pytest.raises(KeyboardInterrupt):
        fit(model(backend_name), mg.RigL(every=5), CtrlC(), mg.Checkpoints(tmp_path, 100))
    fit(other, rest, resume=tmp_path)
    assert whole.updates == rest.updates
    assert_equal(M, other)


def test_the_best_is_not_lost_between_two_files(tmp_path, monkeypatch):
    """Killed after the first file of an epoch: the epoch is trained again."""
    calls = []

    def crash_in_the_third_epoch(path, M, run, record):
        write(path, M, run, record)
        calls.append(path.name)
        if run.epoch == 3:
            raise RuntimeError("crash")

    write = ending.write_checkpoint
    monkeypatch.setattr(ending, "write_checkpoint", crash_in_the_third_epoch)
    with pytest.raises(RuntimeError, match="crash"):
        fit(model("numpy"), mg.Checkpoints(tmp_path))
    monkeypatch.undo()
    history = fit(model("numpy"), mg.Checkpoints(tmp_path), resume=tmp_path)
    best = int(np.argmin(history["validation_loss"])) + 1
    assert read_checkpoint(tmp_path / "best.safetensors").run.epoch == best


def test_a_loader_of_ones_own_goes_on(tmp_path):
    """With an order and other things that come from the generator of the package."""

    class Mine(mg.DataLoader):
        pass

    class Draws(mg.Callback):
        state_names = ("drawn",)

        def start(self, run):
            self.drawn = []

        def batch(self, run):
            self.drawn.append(float(generator().random()))

    def train(*callbacks, **options):
        M, draws = model("numpy"), Draws()
        data = Mine(X.astype(np.float32), t, 64, shuffle=True)
        settings = (4, mg.SoftmaxCrossEntropyLoss(), lambda i: 0.1, data)
        mg.stochastic_gradient_descent(M, *settings, callbacks=[draws, *callbacks], **options)
        return M, draws.drawn

    M, drawn = train()
    with pytest.raises(RuntimeError, match="crash"):
        train(mg.Checkpoints(tmp_path, "2s"), Crash(7))
    other, again = train(resume=tmp_path)
    assert_equal(M, other)
    assert again == drawn


def test_a_run_that_a_callback_stops_has_a_last_checkpoint(tmp_path):
    class Stop(mg.Callback):
        def batch(self, run):
            if run.step == 11:
                run.stop()

    fit(model("numpy"), Stop(), mg.Checkpoints(tmp_path))
    assert find_checkpoint(tmp_path).run.step == 11


def test_early_stopping_stays_stopped(tmp_path):
    """A run that was killed after its last epoch, and before it was saved."""
    M, other = model("numpy"), model("numpy")
    expected = fit(M, mg.Checkpoints(tmp_path), early_stopping=1, learning_rate=1.0, epochs=30)
    assert len(expected["loss"]) < 30
    assert fit(other, early_stopping=1, learning_rate=1.0, epochs=30, resume=tmp_path)["loss"] == expected["loss"]
    assert_equal(M, other)


def test_a_run_that_diverges_keeps_its_best_checkpoint(tmp_path):
    writer = mg.Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match="kept the model of epoch"):
        fit(
            mg.create_model("Linear", [64, 10]),
            writer,
            loss="SquaredError",
            learning_rate=lambda i: 1e-4 if i < 8 else 1e30,
            epochs=9,
        )
    assert writer.failure is None
    assert read_checkpoint(tmp_path / "best.safetensors").run.epoch == 1


def test_a_users_callback_keeps_its_state(tmp_path):
    class Counter(mg.Callback):
        state_names = ("count", "sums")

        def start(self, run):
            self.count, self.sums = 0, {"inputs": np.zeros((1, 64))}

        def batch(self, run):
            self.count += 1
            self.sums["inputs"] = self.sums["inputs"] + run.X.sum(axis=0)

    whole, first, second = Counter(), Counter(), Counter()
    fit(model("numpy"), whole)
    crashed(tmp_path, model("numpy"), 17, first, every="3s")
    fit(model("numpy"), second, resume=tmp_path)
    assert second.count == whole.count == 32
    np.testing.assert_array_equal(second.sums["inputs"], whole.sums["inputs"])

    class Odd(mg.Callback):
        state_names = ("thing",)
        thing = object()

    with pytest.raises(TypeError, match=r"callbacks\.\d\.1\.thing: expected plain values and matrices, found object"):
        fit(model("numpy"), Odd(), mg.Checkpoints(tmp_path / "odd"))


# -- what a checkpoint cannot have is announced -------------------------------------------------------


class KeepingLayer(mg.LinearLayer):
    """Divides X by the number of calls so far, or by what else it keeps, which is no part of the state."""

    def __init__(self, *sizes: int, kind: str) -> None:
        super().__init__(*sizes)
        self.kind, self.count, self.counts, self.table = kind, 0, [0], {"n": 0}
        self.array, self.rng, self.last = np.zeros(1), np.random.default_rng(0), None

    def feedforward(self, X):
        c = 1.0
        if self.kind == "number":
            self.count += 1
            c = 1 / self.count
        elif self.kind == "list":
            self.counts[0] += 1
            c = 1 / self.counts[0]
        elif self.kind == "dictionary":
            self.table["n"] += 1
            c = 1 / self.table["n"]
        elif self.kind == "array":
            self.array += 1
            c = 1 / float(self.array[0])
        elif self.kind == "generator":
            c = self.rng.random()
        elif self.kind == "matrix":
            X, self.last = X if self.last is None else X + 0.1 * self.last, X
        return super().feedforward(c * X)


def keeping(kind: str) -> mg.MultilayerPerceptron:
    mg.manual_seed(0)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(X.shape[1], 4, "ReLU"), KeepingLayer(4, 10, kind=kind)])
    return M.to("numpy", dtype="float64")


@pytest.mark.filterwarnings("ignore:training continues uncompiled")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", ["nothing", "number", "list", "dictionary", "array", "generator", "matrix"])
def test_a_resumed_run_ends_with_the_same_bits_or_says_that_it_may_not(tmp_path, kind: str, compiled: bool):
    def trained(epochs: int, **options) -> mg.MultilayerPerceptron:
        M = keeping(kind)
        M.fit(X, t, epochs=epochs, batch_size=10, seed=0, compiled=compiled, statistics=False, **options)
        return M

    expected = trained(4).state()
    trained(2, callbacks=[mg.Checkpoints(tmp_path)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trained(4, callbacks=[mg.Checkpoints(tmp_path)], resume=tmp_path).state()
    said = [str(w.message) for w in caught]
    if kind == "nothing":
        assert not said
        for name, A in expected.items():
            np.testing.assert_array_equal(found[name], A, err_msg=name)
    else:
        kept = {"number": "count", "list": "counts", "dictionary": "table", "generator": "rng", "matrix": "last"}
        assert any(f"had KeepingLayer.{kept.get(kind, kind)} " in text for text in said), said
        assert any("training continues uncompiled: a layer keeps" in text for text in said) == compiled, said


def test_other_conditions_of_a_resumed_run_are_announced(tmp_path, monkeypatch):
    crashed(tmp_path, model("numpy"), 17, every="3s")
    monkeypatch.setattr("matgrad.training.resuming.threads", lambda: 77)
    monkeypatch.setattr("matgrad.training.resuming.versions", lambda: {"matgrad": "0.0.1"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model("numpy"), mg.Checkpoints(tmp_path), resume=tmp_path, compiled=False)
    said = [str(w.message) for w in caught]
    for what in (
        "its equations compiled, and is resumed with one by one",
        f"the number of threads {threads()}, and is resumed with 77",
        f"the version of matgrad {mg.__version__}, and is resumed with 0.0.1",
    ):
        assert f"the run in the checkpoint had {what}" in said
