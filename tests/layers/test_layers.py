"""Layers against torch.nn and torch autograd: outputs, all gradients, statistics, dropout and state.

The loss of every comparison is Σ G⊙Y with a random G, which has no symmetry that could hide a term.
The oracle computes in float64 from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import matgrad as mg
from matgrad.backends import get_backend
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.specifications.models import LAYERS
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

DTYPES = ("float32", "float64")
NUMPY = Framework("numpy")
LAYER_CLASSES = LAYERS.values()
SHAPES = ((5, 3, 4), (1, 3, 2))  # N, D, K
TOLERANCE = {"float32": 5e-6, "float64": 1e-13}  # of whole layers, relative to the largest element


class Case(NamedTuple):
    """A linear-type layer and what it does with Z, in torch; p are its parameters."""

    make: Callable
    function: Callable


def maker(cls: type[mg.LinearLayer], *arguments, **settings) -> Callable:
    """make(D, K), which makes the layer that drops weights if it is given a rate of dropout."""

    def make(D: int, K: int, **options) -> mg.LinearLayer:
        kind = DROPOUT_LAYERS[cls] if "dropout" in options else cls
        return kind(D, K, *arguments, **settings, **options)

    return make


def activation(act, function) -> Case:
    return Case(maker(mg.ActivationLayer, act), lambda Z, p: function(Z))


def torch_srelu(Z, p):
    al, tl, ar, tr = (p[name] for name in ("al", "tl", "ar", "tr"))
    return torch.where(Z <= tl, al * (Z - tl) + tl, torch.where(Z >= tr, ar * (Z - tr) + tr, Z))


CASES = {
    "Linear": Case(maker(mg.LinearLayer), lambda Z, p: Z),
    "ReLU": activation(mg.ReLUActivation(), F.relu),
    "LeakyReLU": activation(mg.LeakyReLUActivation(0.1), lambda Z: F.leaky_relu(Z, 0.1)),
    "AllReLU": activation(mg.AllReLUActivation(-0.3), lambda Z: torch.where(Z < 0, -0.3 * Z, Z)),
    "TReLU": activation(mg.TReLUActivation(0.2), lambda Z: F.threshold(Z, 0.2, 0.0)),
    "HyperbolicTangent": activation(mg.HyperbolicTangentActivation(), torch.tanh),
    "Sigmoid": activation(mg.SigmoidActivation(), torch.sigmoid),
    "GELU": activation(mg.GELUActivation(), F.gelu),
    "SiLU": activation(mg.SiLUActivation(), F.silu),
    "ELU": activation(mg.ELUActivation(0.7), lambda Z: F.elu(Z, 0.7)),
    "Softplus": activation(mg.SoftplusActivation(), F.softplus),
    "Softmax": Case(maker(mg.SoftmaxLayer), lambda Z, p: torch.softmax(Z, dim=1)),
    "LogSoftmax": Case(maker(mg.LogSoftmaxLayer), lambda Z, p: torch.log_softmax(Z, dim=1)),
    "SReLU": Case(maker(mg.SReLULayer), torch_srelu),
    "SReLU-shared": Case(maker(mg.SReLULayer, shared=True), torch_srelu),
}
WITH_DROPOUT = ("Linear", "HyperbolicTangent", "Softmax", "LogSoftmax", "SReLU", "SReLU-shared")


# -- helpers -----------------------------------------------------------------------------------


def context(backend, name, *details) -> str:
    return f"{name} on {backend}, " + ", ".join(map(str, details))


def random_parameters(layer, rng, dtype) -> dict[str, np.ndarray]:
    """Random values for every parameter; SReLU's thresholds are such that all three pieces occur."""
    p = {name: rng.normal(size=getattr(layer, name).shape) for name in layer.parameters}
    if "tl" in p:
        p["tl"], p["tr"] = -0.3 - 0.3 * np.abs(p["tl"]), 0.3 + 0.3 * np.abs(p["tr"])
    return {name: A.astype(dtype) for name, A in p.items()}


def place(layer, backend, parameters, dtype):
    """Give the layer these parameters, and move it to the framework under test."""
    layer.load_state(parameters)
    layer.to(backend.backend, dtype)
    return layer


def results(layer, Y) -> dict:
    """The output and all that feedforward and backpropagate leave in the layer."""
    names = (*layer.intermediates, "DX", *(f"D{name}" for name in layer.parameters))
    return {"Y": Y} | {name: getattr(layer, name) for name in names}


def run(backend, layer, X, G) -> dict:
    """`results` of a batch X with upstream gradient G; compiled, so the layer itself stays untouched."""

    def f(state, X, G):
        twin = layer.clone()
        twin.load_state(state)
        Y = twin.feedforward(X)
        twin.backpropagate(Y, G)
        return results(twin, Y)

    return backend.compiled(f)(layer.state(), X, G)


def run_steps(backend, layer, batches, eta) -> dict[str, np.ndarray]:
    """The layer's state after one optimization step for each (X, G), as NumPy arrays."""

    def f(state, X, G, eta):
        twin = layer.clone()
        twin.load_state(state)
        twin.backpropagate(twin.feedforward(X), G)
        twin.optimize(eta)
        return twin.state()

    step, state = backend.compiled(f), layer.state()
    for X, G in batches:
        state = step(state, X, G, eta)
    return {name: to_numpy(A) for name, A in state.items()}


def leaf(A) -> torch.Tensor:
    return torch.tensor(np.asarray(A, dtype="float64"), requires_grad=True)


def oracle(case: Case, parameters, X, G, R=None) -> dict[str, np.ndarray]:
    """The same results by torch autograd in float64; R is a dropout matrix."""
    p = {name: leaf(A) for name, A in parameters.items()}
    X, G = leaf(X), torch.tensor(np.asarray(G, dtype="float64"))
    W = p["W"] if R is None else p["W"] * torch.tensor(np.asarray(R, dtype="float64"))
    Z = F.linear(X, W, p["b"][0])
    Z.retain_grad()
    Y = case.function(Z, p)
    torch.sum(G * Y).backward()
    gradients = {"DX": X.grad, "DZ": Z.grad} | {f"D{name}": A.grad for name, A in p.items()}
    return {name: A.detach().numpy() for name, A in ({"Y": Y, "Z": Z} | gradients).items()}


def assert_results(actual, expected, dtype, where):
    """Everything that `actual` holds is as expected; R, which no oracle knows, is left out."""
    assert {name for name in actual if name != "R"} <= expected.keys(), where
    for name in actual.keys() & expected.keys():
        assert_close(actual[name], expected[name], dtype=dtype, tolerance=TOLERANCE[dtype], context=f"{where}: {name}")


def snapshot(layer) -> dict[str, np.ndarray]:
    return {name: np.array(to_numpy(A)) for name, A in layer.state().items()}


def assert_same(actual: dict, expected: dict, where: str):
    """Two states are bitwise equal."""
    assert actual.keys() == expected.keys(), where
    for name, A in actual.items():
        np.testing.assert_array_equal(A, expected[name], err_msg=f"{where}: {name}")


# -- linear-type layers ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_output_and_gradients(backend, name, shape, dtype):
    N, D, K = shape
    rng = np.random.default_rng(1)
    layer = CASES[name].make(D, K)
    parameters = random_parameters(layer, rng, dtype)
    X, G = rng.normal(size=(N, D)).astype(dtype), rng.normal(size=(N, K)).astype(dtype)
    place(layer, backend, parameters, dtype)

    actual = run(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))

    expected = oracle(CASES[name], parameters, X, G)
    assert actual.get("R") is None
    assert_results(actual, expected, dtype, context(backend, name, shape, dtype, "seed 1"))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_of_large_numbers_is_finite(backend, name):
    """Z near ±1000 neither overflows nor loses the gradient."""
    layer = CASES[name].make(2, 3)
    parameters = {"W": np.array([[300.0, 1.0], [-300.0, 2.0], [301.0, -1.0]]), "b": np.zeros((1, 3))}
    X, G = np.array([[3.0, 0.5], [-3.0, 1.0], [0.1, 2.0]]), np.arange(9.0).reshape(3, 3) - 4
    place(layer, backend, parameters, "float64")
    actual = run(backend, layer, backend.matrix(X), backend.matrix(G))
    assert_results(actual, oracle(CASES[name], parameters, X, G), "float64", context(backend, name, "large Z"))


@pytest.mark.parametrize("make", [mg.LinearLayer, mg.SoftmaxLayer, mg.SReLULayer])
@pytest.mark.parametrize("sizes", [(0, 2), (2, -1), (2.0, 3), (True, 2)], ids=str)
def test_bad_sizes_are_refused(make, sizes):
    with pytest.raises(ValueError, match=r"(in|out)put_size must be a positive integer"):
        make(*sizes)


# -- batch normalization -----------------------------------------------------------------------

BATCH_NORM_SHAPES = ((5, 3), (4, 2))  # N, D


def batch_norm(backend, rng, D, dtype, **options):
    """A layer with random parameters, and its torch.nn counterpart in float64."""
    layer = mg.BatchNormalizationLayer(D, **options)
    parameters = random_parameters(layer, rng, dtype)
    place(layer, backend, parameters, dtype)
    native = torch.nn.BatchNorm1d(D, eps=options.get("epsilon", 1e-5), momentum=options.get("momentum", 0.1)).double()
    with torch.no_grad():
        native.weight.copy_(torch.tensor(parameters["gamma"][0]))
        native.bias.copy_(torch.tensor(parameters["beta"][0]))
    return layer, native


def native_batch_norm(native, X, G) -> dict[str, np.ndarray]:
    """Output and gradients of torch.nn.BatchNorm1d; Z and DZ from one without γ and β."""
    plain = torch.nn.BatchNorm1d(native.num_features, eps=native.eps, affine=False).double().train(native.training)
    plain.running_mean.copy_(native.running_mean)
    plain.running_var.copy_(native.running_var)
    G = torch.tensor(np.asarray(G, dtype="float64"))
    Z = plain(torch.tensor(np.asarray(X, dtype="float64"))).requires_grad_()
    torch.sum(G * (native.weight.detach() * Z + native.bias.detach())).backward()
    native.zero_grad()
    X = leaf(X)
    Y = native(X)
    torch.sum(G * Y).backward()
    found = {"Y": Y, "Z": Z, "DZ": Z.grad, "DX": X.grad}
    found |= {"Dgamma": native.weight.grad[None], "Dbeta": native.bias.grad[None]}
    return {name: A.detach().numpy() for name, A in found.items()}


def run_batch_norm(backend, layer, X, G) -> dict:
    """`results` without the inverse deviation, which torch keeps to itself; statistics go to the layer."""

    def f(state, X, G):
        twin = layer.clone()
        twin.load_state(state)
        Y = twin.feedforward(X)
        twin.backpropagate(Y, G)
        return results(twin, Y), twin.state()

    found, state = backend.compiled(f)(layer.state(), X, G)
    layer.load_state(state)
    found.pop("inv_sqrt_Sigma")
    return found


@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", BATCH_NORM_SHAPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"epsilon": 0.05, "momentum": 0.3}], ids=["default", "options"])
def test_batch_normalization(backend, shape, options, dtype):
    """Four batches in training mode, with their running statistics, then one in evaluation mode."""
    N, D = shape
    rng = np.random.default_rng(2)
    layer, native = batch_norm(backend, rng, D, dtype, **options)
    for i in range(5):
        where = context(backend, "BatchNormalization", shape, dtype, options, f"seed 2, batch {i}")
        layer.training = i < 4
        native.train(layer.training)
        X, G = (2 + 3 * rng.normal(size=(N, D))).astype(dtype), rng.normal(size=(N, D)).astype(dtype)

        actual = run_batch_norm(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))

        assert_results(actual, native_batch_norm(native, X, G), dtype, where)
        for name, expected in (("running_mean", native.running_mean), ("running_variance", native.running_var)):
            assert_close(getattr(layer, name), expected[None].numpy(), dtype=dtype, context=f"{where}: {name}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_normalization_of_one_example(backend, dtype):
    """Training gives β, no gradient for X and γ, and keeps the statistics; evaluation is as in torch."""
    D = 3
    rng = np.random.default_rng(3)
    layer, native = batch_norm(backend, rng, D, dtype)
    mean, variance = rng.normal(size=(1, D)).astype(dtype), rng.uniform(0.5, 2, (1, D)).astype(dtype)
    layer.load_state({"running_mean": backend.matrix(mean, dtype), "running_variance": backend.matrix(variance, dtype)})
    native.running_mean.copy_(torch.tensor(mean[0]))
    native.running_var.copy_(torch.tensor(variance[0]))
    X, G = rng.normal(size=(1, D)).astype(dtype), rng.normal(size=(1, D)).astype(dtype)
    before = snapshot(layer)
    where = context(backend, "BatchNormalization", (1, D), dtype, "seed 3")

    actual = run_batch_norm(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))

    zero = np.zeros((1, D))
    expected = {"Y": before["beta"], "Z": zero, "DX": zero, "Dgamma": zero, "Dbeta": G, "DZ": G * before["gamma"]}
    assert_results(actual, expected, dtype, where)
    assert_same(snapshot(layer), before, where)

    layer.training = False
    actual = run_batch_norm(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))
    assert_results(actual, native_batch_norm(native.eval(), X, G), dtype, f"{where}, evaluation")
    assert_same(snapshot(layer), before, f"{where}, evaluation")


@pytest.mark.parametrize("cls", [cls for cls in LAYER_CLASSES if cls.keeps_size])
def test_a_layer_that_keeps_its_size_refuses_two(cls):
    with pytest.raises(ValueError, match=rf"^{cls.__name__}: input and output size must be equal, found 3 and 4$"):
        cls(3, 4)


# -- layer normalization and RMS normalization -------------------------------------------------

ROW_NORMS = {
    "LayerNormalization": (mg.LayerNormalizationLayer, torch.nn.LayerNorm),
    "RMSNormalization": (mg.RMSNormalizationLayer, torch.nn.RMSNorm),
}
ROW_NORM_SHAPES = ((5, 3), (1, 4), (3, 2), (4, 1), (3, 50))  # N, D


def native_row_norm(native, p, X, G, epsilon) -> dict[str, np.ndarray]:
    """Output and gradients of a module of torch.nn in float64; Z and DZ from one without γ and β."""
    D = X.shape[1]
    module, plain = (native(D, eps=epsilon, elementwise_affine=affine).double() for affine in (True, False))
    names = {"gamma": "weight", "beta": "bias"}
    p = {name: torch.tensor(np.asarray(A[0], dtype="float64")) for name, A in p.items()}
    module.load_state_dict({names[name]: A for name, A in p.items()})
    G, X = torch.tensor(np.asarray(G, dtype="float64")), leaf(X)
    Z = plain(X.detach()).requires_grad_()
    torch.sum(G * p["gamma"] * Z).backward()
    Y = module(X)
    torch.sum(G * Y).backward()
    found = {"Y": Y, "Z": Z, "DZ": Z.grad, "DX": X.grad}
    found |= {f"D{name}": getattr(module, names[name]).grad[None] for name in p}
    return {name: A.detach().numpy() for name, A in found.items()}


@pytest.mark.few(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ROW_NORM_SHAPES, ids=str)
@pytest.mark.parametrize("epsilon", [1e-5, 0.05])
@pytest.mark.parametrize("name", ROW_NORMS)
def test_layers_that_normalize_rows(backend, name, epsilon, shape, dtype):
    """One batch in training mode, and the same in evaluation mode."""
    cls, native = ROW_NORMS[name]
    N, D = shape
    rng = np.random.default_rng(2)
    layer = cls(D, epsilon=epsilon)
    parameters = random_parameters(layer, rng, dtype)
    place(layer, backend, parameters, dtype)
    X, G = (2 + 3 * rng.normal(size=(N, D))).astype(dtype), rng.normal(size=(N, D)).astype(dtype)
    expected = native_row_norm(native, parameters, X, G, epsilon)
    # with two columns, or one, there are small differences of large numbers
    noise = np.finfo(dtype).eps * np.abs(X).max() * np.abs(G).max() / np.sqrt(X.var(axis=1).min() + epsilon)
    for layer.training in (True, False):
        where = context(backend, name, shape, dtype, epsilon, "seed 2", f"training {layer.training}")

        actual = run(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))

        assert actual.keys() - expected.keys() == {"inv_sqrt_Sigma"}, where  # which torch keeps to itself
        for key, E in expected.items():
            options = {"dtype": dtype, "tolerance": TOLERANCE[dtype], "noise": noise}
            assert_close(actual[key], E, **options, context=f"{where}: {key}")


@pytest.mark.parametrize("name", ROW_NORMS)
def test_a_row_is_normalized_by_itself(backend, name):
    """What the other examples are changes nothing, and a row of equal elements gives no nan."""
    layer = place(ROW_NORMS[name][0](4), backend, {}, "float64")
    X = np.random.default_rng(3).normal(size=(3, 4))
    X[1] = 0
    G = np.ones((3, 4))
    together = run(backend, layer, backend.matrix(X), backend.matrix(G))
    for i in range(3):
        alone = run(backend, layer, backend.matrix(X[i : i + 1]), backend.matrix(G[i : i + 1]))
        for key in ("Y", "DX"):
            where = context(backend, name, f"seed 3, row {i}: {key}")
            assert_close(to_numpy(together[key])[i : i + 1], to_numpy(alone[key]), noise=1e-12, context=where)
            assert np.isfinite(to_numpy(alone[key])).all(), where


@pytest.mark.parametrize("cls", [mg.BatchNormalizationLayer, *(cls for cls, _ in ROW_NORMS.values())])
def test_bad_numbers_of_a_normalization_are_refused(cls):
    for epsilon in (-1, float("nan"), np.float32(-0.5)):
        with pytest.raises(
            ValueError, match=rf"^{cls.__name__}: epsilon: expected a finite number of 0 or more, found"
        ):
            cls(3, epsilon=epsilon)
    assert type(cls(3, epsilon=np.float32(0.5)).epsilon) is float


# -- dropout -----------------------------------------------------------------------------------


def dropout_layer(name, D, K, p=0.3, renew="step", seed=4):
    mg.manual_seed(seed)
    return CASES[name].make(D, K, dropout=p, renew=renew)


def dropout_matrix(layer) -> np.ndarray:
    """R of the next feedforward, on NumPy."""
    layer.feedforward(np.zeros((1, layer.input_size), dtype=layer.W.dtype))
    return layer.R


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_output_and_gradients(backend, name, dtype):
    """W ⊙ R in place of W, with R as on NumPy; evaluation mode uses W."""
    N, D, K = SHAPES[0]
    rng = np.random.default_rng(5)
    layer = dropout_layer(name, D, K)
    parameters = random_parameters(layer, rng, dtype)
    X, G = rng.normal(size=(N, D)).astype(dtype), rng.normal(size=(N, K)).astype(dtype)
    layer.to(get_backend("numpy"), dtype)
    R = dropout_matrix(layer)
    assert 0 < np.sum(R == 0) < R.size
    place(layer, backend, parameters, dtype)
    where = context(backend, name, SHAPES[0], dtype, "dropout 0.3, seeds 4 and 5")

    for layer.training in (True, False):
        actual = run(backend, layer, backend.matrix(X, dtype), backend.matrix(G, dtype))
        expected = oracle(CASES[name], parameters, X, G, R if layer.training else None)
        assert_results(actual, expected, dtype, f"{where}, training {layer.training}")
        if layer.training:
            assert_close(actual["R"], R, tolerance=2e-7, context=f"{where}: R")
            np.testing.assert_array_equal(to_numpy(actual["R"]) == 0, R == 0, err_msg=where)
        else:
            assert actual["R"] is None, where


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("renew", ["step", "epoch"])
def test_dropout_is_renewed(backend, renew, dtype):
    """After every step or after every epoch, not by feedforward; and equally on every backend."""
    N, D, K = 2, 20, 30
    layer = dropout_layer("Linear", D, K, renew=renew)
    layer.to(backend.backend, dtype)

    def f(state, X, G, eta):
        twin = layer.clone()
        twin.load_state(state)
        found = []
        for after in (lambda: None, lambda: twin.optimize(eta), twin.end_epoch, lambda: None):
            twin.backpropagate(twin.feedforward(X), G)
            found.append(twin.R)
            after()
        return found

    X, G, eta = (backend.matrix(np.ones(size), dtype) for size in ((N, D), (N, K), ()))
    first, same, after_step, after_epoch = (to_numpy(R) for R in backend.compiled(f)(layer.state(), X, G, eta))

    where = context(backend, "Linear", (K, D), dtype, renew, "seed 4")
    np.testing.assert_array_equal(first, same, err_msg=where)
    assert np.array_equal(first, after_step) == (renew == "epoch"), where
    assert np.array_equal(after_step, after_epoch) == (renew == "step"), where
    numpy_layer = dropout_layer("Linear", D, K)
    numpy_layer.to(get_backend("numpy"), dtype)
    for count, R in ((0, first), (1, after_epoch)):
        numpy_layer.renewals = np.array(count, dtype=np.int32)
        expected = dropout_matrix(numpy_layer)
        np.testing.assert_array_equal(R == 0, expected == 0, err_msg=where)
        assert_close(R, expected, tolerance=2e-7, context=where)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropout_fraction(p):
    """R is 0 or 1/(1-p), a fraction p of it is 0 in all parts, and rows, columns and renewals differ."""
    layer = dropout_layer("Linear", 300, 200, p)
    R = dropout_matrix(layer)
    layer.renewals = layer.renewals + 1
    next_R = dropout_matrix(layer)
    deviation = np.sqrt(p * (1 - p))

    assert R.dtype == np.float32
    np.testing.assert_allclose(np.unique(R), [0, 1 / (1 - p)], rtol=1e-6)
    assert abs(np.mean(R == 0) - p) < 5 * deviation / np.sqrt(R.size)
    for axis in (0, 1):
        assert np.abs(np.mean(R == 0, axis=axis) - p).max() < 5 * deviation / np.sqrt(R.shape[axis])
    for other in (next_R, np.roll(R, 1, axis=0), np.roll(R, 1, axis=1)):
        correlation = np.corrcoef((R == 0).ravel(), (other == 0).ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(R.size)


# -- attributes, modes and state ---------------------------------------------------------------

ALL_LAYERS = {
    "Linear": lambda: mg.LinearDropoutLayer(3, 4, dropout=0.3),
    "Activation": lambda: mg.ActivationLayer(3, 4, mg.HyperbolicTangentActivation()),
    "SReLU": lambda: mg.SReLULayer(3, 4, shared=True),
    "BatchNormalization": lambda: mg.BatchNormalizationLayer(3),
    "LayerNormalization": lambda: mg.LayerNormalizationLayer(3),
    "RMSNormalization": lambda: mg.RMSNormalizationLayer(3),
}


def made(name, seed=7):
    mg.manual_seed(seed)
    return ALL_LAYERS[name]()


def batches(backend, layer, dtype, count=3):
    rng = np.random.default_rng(8)
    sizes = ((5, layer.input_size), (5, layer.output_size))
    return [tuple(backend.matrix(rng.normal(size=size), dtype) for size in sizes) for _ in range(count)]


def test_attributes_are_set_and_forgotten():
    """A student finds the intermediates and the gradients in the layer after an eager run."""
    layer = mg.SReLUDropoutLayer(3, 4, dropout=0.3)
    names = ("X", "DX", "R", "Z", "DZ", "DW", "Db", "Dal", "Dtl", "Dar", "Dtr")
    assert all(getattr(layer, name) is None for name in names)
    X = np.ones((5, 3), dtype="float32")
    layer.backpropagate(layer.feedforward(X), np.ones((5, 4), dtype="float32"))
    assert layer.X is X
    assert all(getattr(layer, name).dtype == np.float32 for name in names)
    layer.forget()
    assert all(getattr(layer, name) is None for name in names)


class DoublingLayer(mg.Layer):
    """Y = 2 tanh X, with an attribute Y of its own that is not its output."""

    keeps_size = True

    def feedforward(self, X):
        Y = np.tanh(X)
        self.X, self.Y = X, Y
        return 2 * Y

    def backpropagate(self, Y, DY):
        self.DX = 2 * DY * (1 - self.Y * self.Y)


def test_a_model_leaves_the_output_and_its_gradient_in_its_layers():
    """They are the matrices of the neighbours, not copies; a layer with a Y of its own keeps it."""
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 4), DoublingLayer(4, 4), mg.BatchNormalizationLayer(4)])
    first, second, last = M.layers
    M.to(dtype="float64")
    rng, names = np.random.default_rng(9), set(M.state())
    X, DY = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    assert first.Y is first.DY is None

    Y = M.feedforward(X)
    M.backpropagate(Y, DY)

    assert last.Y is Y
    assert last.DY is DY
    assert first.Y is second.X
    assert first.DY is second.DX
    assert second.DY is last.DX
    np.testing.assert_array_equal(second.Y, np.tanh(first.Y))
    np.testing.assert_allclose(second.DX, 2 * last.DX * (1 - np.tanh(second.X) ** 2))
    assert set(M.state()) == names
    assert first.clone().Y is None
    M.forget()
    assert first.Y is first.DY is last.Y is last.DY is None


@pytest.mark.few(12)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_LAYERS)
def test_steps_change_the_state_as_on_numpy(backend, name, dtype):
    """Three steps with Adam: all names, shapes and dtypes of the state stay, and values agree."""
    states = []
    for framework in (NUMPY, backend):
        layer = made(name)
        layer.set_optimizer("Adam")
        layer.to(framework.backend, dtype)
        before = snapshot(layer)
        eta = framework.matrix(0.1, dtype)
        states.append(run_steps(framework, layer, batches(framework, layer, dtype), eta))
        assert {key: (A.shape, A.dtype) for key, A in states[-1].items()} == {
            key: (A.shape, A.dtype) for key, A in before.items()
        }, context(framework, name, dtype)
    expected, actual = states
    for key in actual:
        where = context(backend, name, key, dtype, "seeds 7 and 8")
        if key == "renewals":
            assert actual[key] == expected[key] == 3, where
        else:
            assert_close(
                actual[key], expected[key], tolerance={"float32": 2e-5, "float64": 1e-12}[dtype], context=where
            )


@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("optimizer", ["Momentum(0.9)", "Adam"])
@pytest.mark.parametrize("name", ALL_LAYERS)
def test_state_round_trip(backend, name, optimizer, dtype):
    """A new layer with the state of a trained one, which passes through NumPy, goes on exactly as that one."""
    layer, twin = made(name), made(name)
    for A in (layer, twin):
        A.set_optimizer(optimizer)
        A.to(backend.backend, dtype)
    first, second, third = batches(backend, layer, dtype)
    eta = backend.matrix(0.1, dtype)
    saved = run_steps(backend, layer, [first, second], eta)

    for A in (layer, twin):
        A.load_state({key: backend.backend.from_numpy(B) for key, B in saved.items()})

    where = context(backend, name, optimizer, dtype, "seeds 7 and 8")
    assert_same(snapshot(twin), saved, where)
    assert_same(run_steps(backend, layer, [third], eta), run_steps(backend, twin, [third], eta), where)


@pytest.mark.backends("numpy", "torch")
@pytest.mark.parametrize("optimizer", ["Momentum(0.9)", "Adam"])
@pytest.mark.parametrize("name", ALL_LAYERS)
def test_training_a_clone_leaves_the_original(backend, name, optimizer):
    layer = made(name)
    layer.set_optimizer(optimizer)
    layer.to(backend.backend, "float32")
    before = snapshot(layer)
    ((X, G),) = batches(backend, layer, "float32", count=1)

    twin = layer.clone()
    twin.backpropagate(twin.feedforward(X), G)
    twin.optimize(0.1)

    where = context(backend, name, optimizer)
    assert_same(snapshot(layer), before, where)
    assert layer.X is None, where
    assert layer.DX is None, where
    after = snapshot(twin)
    for key in (*layer.parameters, *(key for key in before if "." in key)):
        assert not np.array_equal(after[key], before[key]), f"{where}: {key} of the clone did not change"


def test_a_state_with_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"LinearLayer\(3, 2\) has no Q.delta; known: W, b"):
        mg.LinearLayer(3, 2).load_state({"Q.delta": np.zeros((2, 3))})


def test_the_state_holds_all_that_dropout_needs():
    """A layer made with another seed continues with the same R after loading the state."""
    a, b = (mg.LinearDropoutLayer(6, 5, dropout=0.5) for _ in range(2))
    assert not np.array_equal(a.dropout_matrix(a.W), b.dropout_matrix(b.W))
    b.load_state(a.state())
    np.testing.assert_array_equal(a.dropout_matrix(a.W), b.dropout_matrix(b.W))
