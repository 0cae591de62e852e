"""Whole runs on several ranks, as threads: what callbacks see and do is what they see and do in one process."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Attention, numbers
from threads import on_ranks

import matgrad as mg
from matgrad.callbacks import Callback, Checkpoints
from matgrad.distributed import current
from matgrad.distributed.group import Disagreement
from matgrad.specifications.models import create_model

ENGINES = ("numpy", "torch", "native")
X = np.random.default_rng(0).normal(size=(60, 8))
T = (X @ np.random.default_rng(1).normal(size=(8, 3))).argmax(axis=1)


def model(engine: str, densities: str = "1;1;1", layers: str = "ReLU;BatchNormalization;ReLU;Linear"):
    mg.manual_seed(0)
    return create_model(layers, "8;12;10;3", densities=densities, optimizers="Momentum(0.9)").to(
        engine, dtype="float64"
    )


def run_alone(engine: str, fit, **options):
    M = model(engine, **options)
    return M, fit(M)


def run_on_ranks(engine: str, fit, ranks: int = 2, **options):
    """The models of all ranks, and what `fit` returns on each."""
    models = [model(engine, **options) for _ in range(ranks)]
    results = on_ranks(ranks, lambda rank: fit(models[rank]))
    return list(zip(models, results, strict=True))


def check_equal(alone, ranks, tolerance: float = 1e-12) -> None:
    """Every rank has the model and the history of one process; ranks agree in every bit."""
    M, history = alone
    for N, found in ranks:
        for name, A in numbers(M).items():
            np.testing.assert_allclose(numbers(N)[name], A, rtol=0, atol=tolerance, err_msg=name)
            np.testing.assert_array_equal(numbers(N)[name], numbers(ranks[0][0])[name], err_msg=name)
        for name, values in history.items():
            if name.endswith(("loss", "accuracy", "rmse")):
                np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_statistics_are_those_of_one_process(engine):
    def fit(M):
        return M.fit(X, T, epochs=3, batch_size=7, seed=1, validation=0.25)

    alone, ranks = run_alone(engine, fit), run_on_ranks(engine, fit, 3)
    assert {"loss", "accuracy", "validation_loss"} <= alone[1].keys()
    check_equal(alone, ranks)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_regression_and_class_weights(engine):
    Y = np.stack([X[:, 0], X[:, 1] * X[:, 2], X[:, 3] ** 2], axis=1)

    def regression(M):
        return M.fit(X, Y, epochs=2, batch_size=8, seed=1)

    def weighted(M):
        return M.fit(X, T, epochs=2, batch_size=8, seed=1, class_weight="balanced", sample_weight=np.linspace(0, 2, 60))

    for fit in (regression, weighted):
        check_equal(run_alone(engine, fit), run_on_ranks(engine, fit))


@pytest.mark.parametrize("engine", ENGINES)
def test_early_stopping_after_the_same_epoch(engine):
    def fit(M):
        return M.fit(X, T, epochs=60, batch_size=10, seed=1, learning_rate=0.5, validation=0.3, early_stopping=2)

    alone, ranks = run_alone(engine, fit), run_on_ranks(engine, fit)
    assert 2 < len(alone[1]["loss"]) < 60
    check_equal(alone, ranks, 1e-9)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [mg.SET(0.3), mg.SET(0.3, every=5), mg.RigL(0.3, every=4)])
def test_supports_change_as_in_one_process(engine, method):
    def fit(M):
        mg.manual_seed(5)
        return M.fit(X, T, epochs=4, batch_size=9, seed=1, callbacks=[type(method)(0.3, every=method.every, seed=3)])

    options = {"densities": "0.4;0.5;1", "layers": "ReLU;ReLU;Linear"}
    alone, ranks = run_alone(engine, fit, **options), run_on_ranks(engine, fit, **options)
    expected = [layer.W.support.flat() for layer in alone[0].layers[:2]]
    for M, _ in ranks:
        for layer, flat in zip(M.layers, expected, strict=False):
            np.testing.assert_array_equal(layer.W.support.flat(), flat)
    check_equal(alone, ranks)


class StopAt(Callback):
    """Asks to stop at a step, on one rank only, between two batches."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank, self.steps = step, rank, 0

    def poll(self, run):
        if run.step >= self.step and (run.group.size == 1 or run.group.rank == self.rank):
            run.interrupt()

    def end(self, run):
        self.steps = run.step


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rank", [0, 2])
def test_all_ranks_stop_after_the_same_step_when_one_is_interrupted(engine, rank):
    callbacks = [StopAt(13, rank) for _ in range(3)]

    def fit(M):
        with pytest.raises(KeyboardInterrupt):
            M.fit(X, T, epochs=5000, batch_size=6, seed=1, callbacks=[callbacks[current().rank]], statistics=False)
        return {}

    ranks = run_on_ranks(engine, fit, 3)
    steps = {callback.steps for callback in callbacks}
    if engine == "native":  # which looks at callbacks ten times per second
        assert len(steps) == 1
        assert 13 <= steps.pop() < 50_000
    else:
        assert steps == {14}  # with the message of the next step
    for M, _ in ranks:
        for name, A in numbers(M).items():
            np.testing.assert_array_equal(A, numbers(ranks[0][0])[name], err_msg=name)


class StopInBatch(Callback):
    """Stops after a step, in `batch`."""

    def batch(self, run):
        if run.step == 7:
            run.stop()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_that_stops_in_a_batch_stops_there(engine):
    def fit(M):
        return M.fit(X, T, epochs=3, batch_size=6, seed=1, callbacks=[StopInBatch()])

    check_equal(run_alone(engine, fit), run_on_ranks(engine, fit))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_goes_on_from_a_checkpoint_with_another_number_of_ranks(engine, tmp_path):
    options = {"batch_size": 7, "seed": 1}

    def whole(M):
        return M.fit(X, T, epochs=4, **options)

    def half(M):
        return M.fit(X, T, epochs=2, callbacks=[Checkpoints(tmp_path)] if current().is_first else [], **options)

    def rest(M):
        return M.fit(X, T, epochs=4, resume=tmp_path, **options)

    alone = run_alone(engine, whole)
    run_on_ranks(engine, half, 3)
    check_equal(alone, run_on_ranks(engine, rest, 2))
    check_equal(alone, [run_alone(engine, rest)])


def test_steps_of_different_models_are_told_apart():
    """Where a step is used without a run, which compares everything."""
    models = [model("numpy"), create_model("ReLU;ReLU;Linear", "8;12;10;3").to("numpy", dtype="float64")]

    def step(M):
        step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
        step.load(M.state())
        return step

    with pytest.raises(Disagreement, match=r"^rank 1 differs from rank 0 in .*2\.gamma \(none, expected \(1, 12\)\)"):
        on_ranks(2, lambda rank: step(models[rank]))
    others = [create_model(f"{name};Linear", "8;12;3").to(dtype="float64") for name in ("ReLU", "Sigmoid")]
    Y = np.eye(3)[T]
    with pytest.raises(Disagreement, match=r"^rank 1 differs from rank 0 in what it computes \(sha256 "):
        on_ranks(2, lambda rank: step(others[rank])(X, Y, 0.1))


def test_statistics_of_a_layer_that_looks_at_several_examples_are_those_of_one_process():
    def made():
        mg.manual_seed(0)
        return mg.MultilayerPerceptron([Attention(8, 5), mg.LinearLayer(5, 3)]).to(dtype="float64")

    alone, models = made(), [made() for _ in range(2)]
    options = {"epochs": 2, "batch_size": 10, "seed": 1, "validation": 0.3}
    expected = alone.fit(X, T, **options)
    found = on_ranks(2, lambda rank: models[rank].fit(X, T, **options))
    check_equal((alone, expected), list(zip(models, found, strict=True)))


@pytest.mark.parametrize(
    ("of_rank_1", "told"),
    [
        ({"shuffle": False}, "the order (that of the data, expected shuffled)"),
        ({"per_step": True}, "the learning rate (changes every step, expected changes every epoch)"),
        ({"learning_rate": lambda i: 0.05 if i == 0 else 0.1}, "the learning rate (0.1, expected 0.05)"),
        ({"validation": (X[:9], T[:9])}, "the validation data (sha256 "),
        ({"early_stopping": 3}, "the callbacks (Statistics, EarlyStopping(patience=3"),
    ],
)
def test_what_would_make_ranks_train_different_things_is_told(of_rank_1, told):
    models = [model("numpy") for _ in range(2)]
    options = {"epochs": 3, "batch_size": 10, "seed": 1, "validation": (X[:8], T[:8])}
    with pytest.raises(Disagreement) as error:
        on_ranks(2, lambda rank: models[rank].fit(X, T, **options | (of_rank_1 if rank else {})))
    assert told in str(error.value)


def test_ranks_with_other_versions_of_a_plugin_are_told_apart(tmp_path):
    (tmp_path / "mine.py").write_text("import matgrad as mg\nclass Mine(mg.Callback):\n    pass\n")
    versions = [mg.load_plugin(tmp_path / "mine.py").Mine]
    (tmp_path / "mine.py").write_text("import matgrad as mg\nclass Mine(mg.Callback):\n    place = 1\n")
    versions.append(mg.load_plugin(tmp_path / "mine.py").Mine)
    models = [model("numpy") for _ in range(2)]
    with pytest.raises(Disagreement, match=r"in the callbacks \(.*Mine with the SHA-256 [0-9a-f]{16}.* expected "):
        on_ranks(2, lambda rank: models[rank].fit(X, T, epochs=1, seed=1, callbacks=[versions[rank]()]))


def test_ranks_with_batches_of_their_own_are_told_apart():
    models = [model("numpy") for _ in range(2)]

    def train(rank: int, count: int = 5):
        batches = [(X[i : i + 10], np.eye(3)[T[i : i + 10]]) for i in range(0, 10 * count, 10)][:: 1 - 2 * rank]
        rate = mg.ConstantScheduler(0.1)
        mg.stochastic_gradient_descent(models[rank], 1, mg.SoftmaxCrossEntropyLoss(), rate, batches)

    with pytest.raises(Disagreement, match=r"^rank 1 differs from rank 0 in the first batch \(sha256 "):
        on_ranks(2, train)
    with pytest.raises(Disagreement, match=r"in the number of batches \(4, expected 5\)$"):
        on_ranks(2, lambda rank: train(rank, 5 - rank))


def test_ranks_at_different_points_are_told_apart():
    models = [model("numpy") for _ in range(2)]

    def twice(rank: int):
        for _ in range(1 + rank):
            models[rank].fit(X, T, epochs=1, seed=1)
        current().exchange("closed", "the end of the group")

    with pytest.raises(Disagreement, match=r"^rank 1 is at the start of a run, rank 0 is at the end of the group$"):
        on_ranks(2, twice)
