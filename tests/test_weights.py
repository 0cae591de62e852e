"""Weights of examples and classes: the weighted losses against torch, and training with them on every engine."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

import matgrad as mg
from cli_support import run, succeed
from matgrad.callbacks import Callback, Matrices
from matgrad.datasets.loader import class_weights, weights_by_class
from matgrad.engines.engine import compile_step
from matgrad.evaluation.measures import measure
from matgrad.specifications.models import create_model
from support import assert_close, to_numpy
from test_loss_functions import CASES, Case

BACKENDS = ("numpy", "torch", "native", "jax", "tensorflow")
D, K, N = 6, 3, 25
RATE, SEED, BATCH = 0.2, 4, 10  # the last batch is smaller


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)), rng.integers(0, K, N), rng.uniform(0, 3, N)


def model(backend: str = "numpy", layers: str = "ReLU;Linear", **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(2)
    return create_model(layers, f"{D};5;{K}", optimizers="GradientDescent", **options).to(backend, dtype="float64")


def parameters(M: mg.MultilayerPerceptron) -> list[np.ndarray]:
    return [to_numpy(getattr(layer, name)) for layer in M.layers for name in ("W", "b")]


def assert_same(M: mg.MultilayerPerceptron, other: mg.MultilayerPerceptron, tolerance: float = 1e-12) -> None:
    for A, B in zip(parameters(M), parameters(other), strict=True):
        np.testing.assert_allclose(A, B, rtol=0, atol=tolerance)


# -- the equations -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.loss))
def test_the_losses_of_the_rows_are_weighted(backend, case: Case):
    rng, n = np.random.default_rng(0), 4
    Y, T, s = rng.dirichlet(np.ones(K), n), rng.dirichlet(np.ones(K), n), np.array([[0.0], [0.5], [1.0], [3.0]])
    Y = {"probability": Y, "log-probability": np.log(Y), "real": rng.normal(size=(n, K))}[case.kind]
    leaf = torch.tensor(Y, requires_grad=True)
    rows = [case.oracle(leaf[i : i + 1], torch.tensor(T[i : i + 1])) for i in range(n)]
    total = sum(w * row for w, row in zip(s[:, 0], rows, strict=True))
    (total / n).backward()

    matrices = [backend.matrix(A) for A in (Y, T, s)]
    divisor = n if case.loss.is_mean else 1
    assert_close(case.loss(*matrices), total.detach().numpy() / divisor)
    assert_close(case.loss.mean_gradient(*matrices), leaf.grad.numpy())


# -- training ------------------------------------------------------------------------------------


def torch_training(s: np.ndarray, epochs: int) -> tuple[list[np.ndarray], list[float]]:
    """The parameters after training with torch's autograd, and the weighted mean loss after each epoch."""
    X, t, _ = data()
    X, t, s = torch.tensor(X), torch.tensor(t), torch.tensor(s)
    W1, b1, W2, b2 = theta = [torch.tensor(A, requires_grad=True) for A in parameters(model())]
    rng, losses = np.random.default_rng(SEED), []

    def loss(rows) -> torch.Tensor:
        Y = torch.relu(X[rows] @ W1.T + b1) @ W2.T + b2
        return (s[rows] * torch.nn.functional.cross_entropy(Y, t[rows], reduction="none")).mean()

    for _ in range(epochs):
        order = rng.permutation(N)
        for start in range(0, N, BATCH):
            gradients = torch.autograd.grad(loss(order[start : start + BATCH]), theta)
            with torch.no_grad():
                for parameter, gradient in zip(theta, gradients, strict=True):
                    parameter -= RATE * gradient
        losses.append(float(loss(np.arange(N)).detach()))
    return [A.detach().numpy() for A in theta], losses


@pytest.mark.few(2)
@pytest.mark.parametrize("targets", ["labels", "rows"])
@pytest.mark.parametrize("compiled", [True, False])
def test_training_with_weights_is_that_of_torch(backend, targets: str, compiled: bool):
    X, t, s = data()
    M, T = model(backend.name), t if targets == "labels" else mg.one_hot(t, K)
    options = {"epochs": 2, "batch_size": BATCH, "learning_rate": RATE, "seed": SEED, "compiled": compiled}
    history = M.fit(X, T, sample_weight=s, loss="SoftmaxCrossEntropy", **options)
    expected, losses = torch_training(s, 2)
    for A, B in zip(parameters(M), expected, strict=True):
        assert_close(A, B)
    np.testing.assert_allclose(history["loss"], losses, rtol=1e-10)


@pytest.mark.backends("numpy", "torch", "native")
def test_class_weights_are_those_of_the_examples(backend):
    X, t, s = data()
    c = [0.5, 2, 3]
    M, other = model(backend.name), model(backend.name)
    options = {"epochs": 2, "batch_size": BATCH, "learning_rate": RATE, "seed": SEED}
    M.fit(X, t, class_weight=dict(enumerate(c)), sample_weight=s, **options)
    other.fit(X, mg.one_hot(t, K), sample_weight=s * np.array(c)[t], loss="SoftmaxCrossEntropy", **options)
    assert_same(M, other)


@pytest.mark.few(1)
@pytest.mark.parametrize("loss", ["SoftmaxCrossEntropy", "MeanSquaredError"])
def test_weight_0_is_absent_and_weight_2_is_twice(backend, loss: str):
    """The whole data is one batch, whose number of examples divides the loss: the learning rate makes up for it."""
    X, t, _ = data()
    T, s = mg.one_hot(t, K), np.random.default_rng(5).integers(0, 3, N)
    M, other = model(backend.name), model(backend.name)
    rows = np.repeat(np.arange(N), s)
    options = {"epochs": 3, "loss": loss, "shuffle": False}
    M.fit(X, T, sample_weight=s, batch_size=N, learning_rate=RATE, **options)
    other.fit(X[rows], T[rows], batch_size=len(rows), learning_rate=RATE * len(rows) / N, **options)
    assert_same(M, other)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_core_weighs_the_examples_of_whole_epochs(shuffle: bool):
    from scipy.sparse import csr_array

    X, t, s = data()
    X = np.where(np.abs(X) > 1, X, 0)
    for A in (X, csr_array(X)):
        steps = [compile_step(model("native"), mg.SoftmaxCrossEntropyLoss()) for _ in range(2)]
        loaders = [mg.DataLoader(A, t, BATCH, shuffle=shuffle, seed=SEED, weights=s) for _ in range(2)]
        for step in steps:
            step.load(model().state())
        for _ in range(2):
            steps[0].train(loaders[0], lambda i: RATE)
            for batch in loaders[1]:
                X1, T1, s1 = batch
                steps[1](X1, T1, RATE, s1)
        for name, matrix in steps[0].state().items():
            np.testing.assert_array_equal(matrix, steps[1].state()[name], err_msg=name)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((N, 2)), "s: the array has a different shape or dtype from the program's"),
        (np.ones((N - 1, 1)), "s: the array has a different shape or dtype from the program's"),
        (np.ones((N, 1), "float32"), "s: the array has a different shape or dtype from the program's"),
        (None, "the input s is not bound"),
    ],
)
def test_the_core_refuses_other_weights(weights, message: str):
    X, t, s = data()
    step = compile_step(model("native"), mg.SoftmaxCrossEntropyLoss())
    step.load(model().state())
    loader = mg.DataLoader(X, t, BATCH, weights=s)
    executor = step.prepare(*loader.batch(0))
    arrays = loader.X, loader.T, np.ones(2), None, loader.labels
    with pytest.raises(ValueError, match=message):
        executor.core.train(*arrays, weights)
    executor.core.train(*arrays, loader.weights)
    plain = step.prepare(*loader.batch(0)[:2])
    with pytest.raises(ValueError, match="the program has no input s"):
        plain.core.train(*arrays, loader.weights)


class Watch(Callback):
    """Sees every batch, or some, and the model after it."""

    wants_batches = True

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.weights: list[np.ndarray] = []

    def batch(self, run) -> None:
        if self.interval == 1:
            self.weights.append(to_numpy(run.s[0]))
        assert len(run.sample(np.random.default_rng(0))) == 3


@pytest.mark.few(1)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("interval", [1, 2])
def test_callbacks_between_batches_change_nothing(backend, interval: int, shuffle: bool):
    X, t, s = data()
    options = {"epochs": 2, "batch_size": BATCH, "shuffle": shuffle, "seed": SEED, "sample_weight": s}
    M, watched, watch = model(backend.name), model(backend.name), Watch(interval)
    M.fit(X, t, **options)
    watched.fit(X, t, callbacks=[watch], **options)
    assert_same(M, watched)
    if watch.weights:
        assert sorted(np.concatenate(watch.weights[:3])[:, 0]) == pytest.approx(sorted(s))


@pytest.mark.parametrize("method", ["RigL(every=2)", "SNIP(0.5)"])
def test_sparse_training_looks_at_weighted_gradients(method: str):
    """Examples with weight 0 would otherwise decide where connections grow."""
    from matgrad.callbacks.methods import create_method

    X, t, _ = data()
    s = (np.arange(N) < 12).astype(float)
    supports = []
    for rest in (X[12:], 100 * X[12:]):
        M = model(densities=None if "SNIP" in method else "0.5")
        A = np.vstack([X[:12], rest])
        M.fit(A, t, sample_weight=s, epochs=4, batch_size=N, seed=0, callbacks=[create_method(method)])
        supports.append([layer.W.support.flat() for layer in M.layers])
    for S, R in zip(*supports, strict=True):
        np.testing.assert_array_equal(S, R)


# -- what is measured ----------------------------------------------------------------------------


def test_losses_are_weighted_and_accuracies_are_not(backend):
    X, t, s = data()
    M = model(backend.name)
    history = M.fit(X, t, epochs=1, class_weight="balanced", sample_weight=s, validation=(X[:7], t[:7], s[:7]))
    c = compute_class_weight("balanced", classes=np.arange(K), y=t)
    Y = torch.tensor(M.predict(X))
    losses = torch.nn.functional.cross_entropy(Y, torch.tensor(t), reduction="none").numpy() * c[t] * s
    assert history["loss"] == pytest.approx([losses.mean()])
    assert history["validation_loss"] == pytest.approx([losses[:7].mean()])
    assert history["accuracy"] == pytest.approx([np.mean(Y.numpy().argmax(axis=1) == t)])


def test_held_out_examples_keep_their_weights():
    X, t, s = data()
    history = model().fit(X, t, sample_weight=s, epochs=1, validation=0.4, seed=0)
    doubled = model().fit(X, t, sample_weight=2 * s, epochs=1, validation=0.4, seed=0, learning_rate=0.05 / 2)
    assert doubled["validation_loss"] == pytest.approx([2 * x for x in history["validation_loss"]])


def test_the_loss_of_a_batch_is_weighted():
    X, t, s = data()
    lines: list[str] = []
    M = model()
    loader = mg.DataLoader(X, t, N, weights=s)
    before = measure(M, loader, mg.SoftmaxCrossEntropyLoss()).loss
    M.fit(
        X, t, sample_weight=s, shuffle=False, batch_size=N, epochs=1, compiled=False, callbacks=[Matrices(lines.append)]
    )
    assert lines[-1] == f"batch 1 loss {before:.6g}"


# -- weights of classes --------------------------------------------------------------------------


def test_balanced_weights_are_those_of_scikit_learn():
    _, t, _ = data()
    expected = compute_class_weight("balanced", classes=np.arange(K), y=t)
    np.testing.assert_allclose(class_weights("balanced", t, K), expected)
    np.testing.assert_allclose(class_weights("balanced", mg.one_hot(t, K), K), expected)
    np.testing.assert_allclose(class_weights("balanced", t, K + 1), [*expected, 1])  # class 3 does not occur
    np.testing.assert_allclose(weights_by_class(mg.one_hot(t, K), expected), weights_by_class(t, expected))


def test_one_output_has_the_weights_of_two_classes():
    X, t, _ = data()
    t = (t > 0).astype(int)
    M, other = (create_model("Linear", f"{D};1") for _ in range(2))
    other.load_state(M.state())
    M.fit(X, t, class_weight={1: 3}, epochs=1, seed=0)
    other.fit(X, t, sample_weight=1 + 2 * t, epochs=1, seed=0)
    assert_same(M, other, 1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"sample_weight": np.ones(3)}, r"sample_weight: found shape \(3,\), expected 25 numbers"),
        ({"sample_weight": -np.ones(N)}, r"sample_weight: found -1.0 in row 0, expected numbers from 0"),
        ({"sample_weight": np.zeros(N)}, "sample_weight: all weights are zero"),
        ({"sample_weight": np.full(N, np.nan)}, "sample_weight, row 0, column 0: found nan, expected a finite number"),
        ({"sample_weight": np.full(N, "a")}, "sample_weight: found <U1, expected numbers"),
        ({"class_weight": "even"}, "class weight 1: expected a number, found 'even'"),
        ({"class_weight": [1, 2]}, r"class weights: found shape \(2,\), expected 3 numbers"),
        ({"class_weight": {"a": 2}}, "class weights: found the class 'a', expected classes from 0 to 2"),
    ],
)
def test_wrong_weights_are_refused(weights: dict, message: str):
    X, t, _ = data()
    with pytest.raises(ValueError, match=message):
        model().fit(X, t, **weights)


class PlainLoss(mg.SquaredErrorLoss):
    def __call__(self, Y, T):
        return super().__call__(Y, T)


def test_a_loss_that_takes_no_weights_is_refused():
    X, t, s = data()
    with pytest.raises(ValueError, match=r"PlainLoss takes no weights: expected PlainLoss\.__call__"):
        model().fit(X, mg.one_hot(t, K), loss=PlainLoss(), sample_weight=s)


# -- the command line ----------------------------------------------------------------------------


def test_class_weights_of_a_run_are_in_its_losses():
    options = ("--generate-dataset", "checkerboard(60)", "--layers", "Linear", "--json")
    options = ("train", *options, "--epochs", "2", "--batch-size", "50", "--no-shuffle")
    single, double = (json.loads(succeed(*options, *more)) for more in ((), ("--class-weights", "2;2", *HALF)))
    for a, b in zip(single["epochs"], double["epochs"], strict=True):
        assert b["loss"] == pytest.approx(2 * a["loss"], rel=1e-4)
        assert b["accuracy"] == a["accuracy"]
    assert double["results"]["test_loss"] == pytest.approx(2 * single["results"]["test_loss"], rel=1e-4)
    assert double["configuration"]["class_weights"] == "2;2"


HALF = ("--learning-rate", "0.025")  # of the default


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("even", "class weight 1: expected a number, found 'even'"),
        ("1;2;3", "class weights: found shape (3,), expected 2 numbers"),
        ("1;-2", "class weights: found -2.0 in row 1, expected numbers from 0"),
    ],
)
def test_wrong_class_weights_are_refused_before_training(weights: str, message: str):
    result = run("train", "--generate-dataset", "checkerboard", "--class-weights", weights)
    assert result.exit_code == 2
    assert message in result.output
