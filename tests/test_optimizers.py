"""Optimizers against Keras and torch.optim, and how they are bound to the parameters of a layer.

Keras runs on torch, so it is the oracle where torch is; a plain transcription of its rules, checked
against it, is the oracle everywhere. Rates are exact in float32, in which Keras keeps its rate.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import matgrad as mg
from matgrad.optimizers import OPTIMIZERS, create_optimizer
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

DTYPES = ("float32", "float64")
RATES = (0.5, 0.5, 0.25, 0.125, 0.125, 0.5, 0.0625, 0.25, 0.25, 0.125, 0.03125, 0.5)
SHAPE = (4, 3)
TOLERANCE = {"float32": 5e-6, "float64": 1e-13}  # after 12 updates, relative to the largest element

TIGHT = {"float32": 2e-6, "float64": 1e-13}


# -- helpers -----------------------------------------------------------------------------------


def problem(dtype, seed=1):
    """A parameter and a gradient for every rate, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    x, *gradients = rng.normal(size=(1 + len(RATES), *SHAPE)).astype(dtype)
    return x, gradients


def run(backend, specification, x, gradients, rates=RATES) -> list[np.ndarray]:
    """x after every update."""
    dtype = x.dtype.name
    X = backend.matrix(x, dtype)
    start = create_optimizer(specification, X, None)

    def f(X, state, Dx, eta):
        optimizer = copy.copy(start)
        vars(optimizer).update(state)
        X = optimizer.apply(X, Dx, eta)
        return X, {name: getattr(optimizer, name) for name in start.state_names}

    update, state, found = backend.compiled(f), {name: getattr(start, name) for name in start.state_names}, []
    for Dx, eta in zip(gradients, rates, strict=True):
        X, state = update(X, state, backend.matrix(Dx, dtype), backend.matrix(eta, dtype))
        found.append(X)
    for name, A in state.items():
        assert to_numpy(A).dtype == dtype, f"{specification} on {backend}: {name} is {to_numpy(A).dtype}"
    return found


def transcription(x, gradients, rates, momentum=0.0, nesterov=False) -> list[np.ndarray]:
    """Keras' SGD in float64: v' = μv - ηg; x' = x + v', or x' = x + μv' - ηg with Nesterov."""
    x, v, found = x.astype("float64"), 0.0, []
    for g, eta in zip(gradients, rates, strict=True):
        v = momentum * v - eta * g
        x = x + (momentum * v - eta * g if nesterov else v)
        found.append(x)
    return found


def keras_sgd(x, gradients, rates, momentum=0.0, nesterov=False) -> list[np.ndarray]:
    import keras

    assert keras.backend.backend() == "torch"
    optimizer = keras.optimizers.SGD(0.0, momentum=momentum, nesterov=nesterov)
    variable, found = keras.Variable(x, dtype=x.dtype.name), []
    for g, eta in zip(gradients, rates, strict=True):
        optimizer.learning_rate = eta
        optimizer.apply([torch.tensor(g)], [variable])
        found.append(variable.value.detach().numpy().copy())
    return found


def torch_optimizer(make, x, gradients, rates) -> list[np.ndarray]:
    """What torch.optim does, in float64."""
    parameter, found = torch.nn.Parameter(torch.tensor(x, dtype=torch.float64)), []
    optimizer = make([parameter])
    for g, eta in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = eta
        parameter.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        found.append(parameter.detach().numpy().copy())
    return found


def assert_path(actual, expected, dtype, where, tolerance=None):
    assert len(actual) == len(expected) == len(RATES)
    for i, (A, E) in enumerate(zip(actual, expected, strict=True)):
        assert_close(A, E, dtype=dtype, tolerance=tolerance or TOLERANCE[dtype], context=f"{where}, update {i}")


# -- the rules ---------------------------------------------------------------------------------

KERAS = {  # our specification: Keras' arguments
    "GradientDescent": {},
    "Momentum": {"momentum": 0.9},
    "Momentum(0.5)": {"momentum": 0.5},
    "Nesterov": {"momentum": 0.9, "nesterov": True},
    "Nesterov(mu=0.75)": {"momentum": 0.75, "nesterov": True},
}

TORCH = {
    "GradientDescent": lambda p: torch.optim.SGD(p, lr=0),
    "GradientDescent(weight_decay=0.1)": lambda p: torch.optim.SGD(p, lr=0, weight_decay=0.1),
    "Adagrad": torch.optim.Adagrad,
    "Adagrad(1e-3)": lambda p: torch.optim.Adagrad(p, eps=1e-3),
    "Adagrad(weight_decay=0.1)": lambda p: torch.optim.Adagrad(p, weight_decay=0.1),
    "RMSProp": torch.optim.RMSprop,
    "RMSProp(0.8, 1e-3)": lambda p: torch.optim.RMSprop(p, alpha=0.8, eps=1e-3),
    "RMSProp(weight_decay=0.1)": lambda p: torch.optim.RMSprop(p, weight_decay=0.1),
    "Adam": torch.optim.Adam,
    "Adam(0.8, 0.95, 1e-3)": lambda p: torch.optim.Adam(p, betas=(0.8, 0.95), eps=1e-3),
    "Adam(weight_decay=0.1)": lambda p: torch.optim.Adam(p, weight_decay=0.1),
    "AdamW": torch.optim.AdamW,
    "AdamW(0.8, 0.95, 1e-3, weight_decay=0.2)": lambda p: torch.optim.AdamW(
        p, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2
    ),
    "AdamW(weight_decay=0)": lambda p: torch.optim.AdamW(p, weight_decay=0),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", KERAS)
def test_the_transcription_is_keras(specification, dtype):
    """The paper's rules are Keras' also where the rate changes."""
    x, gradients = problem(dtype)
    expected = keras_sgd(x, gradients, RATES, **KERAS[specification])
    actual = [A.astype(dtype) for A in transcription(x, gradients, RATES, **KERAS[specification])]
    assert_path(actual, expected, dtype, f"{specification}, {dtype}, seed 1")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", KERAS)
def test_momentum_rules(backend, specification, dtype):
    x, gradients = problem(dtype)
    actual = run(backend, specification, x, gradients)
    expected = transcription(x, gradients, RATES, **KERAS[specification])
    assert_path(actual, expected, dtype, f"{specification} on {backend}, {dtype}, seed 1")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", TORCH)
def test_torch_optim(backend, specification, dtype):
    x, gradients = problem(dtype)
    actual = run(backend, specification, x, gradients)
    expected = torch_optimizer(TORCH[specification], x, gradients, RATES)
    assert_path(actual, expected, dtype, f"{specification} on {backend}, {dtype}, seed 1")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_with_weight_decay(backend, nesterov, dtype):
    """At a constant rate Keras' and PyTorch's momentum agree, so PyTorch can check the weight decay."""
    x, gradients = problem(dtype)
    rates = [0.125] * len(RATES)
    specification = f"{'Nesterov' if nesterov else 'Momentum'}(0.5, weight_decay=0.1)"
    actual = run(backend, specification, x, gradients, rates)
    expected = torch_optimizer(
        lambda p: torch.optim.SGD(p, lr=0, momentum=0.5, nesterov=nesterov, weight_decay=0.1), x, gradients, rates
    )
    assert_path(actual, expected, dtype, f"{specification} on {backend}, {dtype}, seed 1")


L1 = {  # the penalty is part of the loss that torch differentiates, which gives sign(0) = 0
    "GradientDescent(l1=0.3)": lambda p: torch.optim.SGD(p, lr=0),
    "GradientDescent(weight_decay=0.1, l1=0.3)": lambda p: torch.optim.SGD(p, lr=0, weight_decay=0.1),
    "Adagrad(l1=0.3)": torch.optim.Adagrad,
    "RMSProp(l1=0.3)": torch.optim.RMSprop,
    "Adam(l1=0.3)": torch.optim.Adam,
    "AdamW(l1=0.3)": torch.optim.AdamW,
}


@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", L1)
def test_l1_is_that_of_autograd(backend, specification, dtype):
    """λ₁·Σ|x_ij| in the loss; one element starts at 0, where its gradient is 0."""
    x, gradients = problem(dtype)
    x[0, 0] = gradients[0][0, 0] = 0
    actual = run(backend, specification, x, gradients)
    parameter, expected = torch.nn.Parameter(torch.tensor(x)), []
    optimizer = L1[specification]([parameter])
    for Dx, eta in zip(gradients, RATES, strict=True):
        optimizer.param_groups[0]["lr"] = eta
        optimizer.zero_grad()
        ((torch.tensor(Dx) * parameter).sum() + 0.3 * parameter.abs().sum()).backward()
        optimizer.step()
        expected.append(parameter.detach().numpy().copy())
    assert_path(actual, expected, dtype, f"{specification} on {backend}, {dtype}, seed 1")
    assert to_numpy(actual[0])[0, 0] == 0


@pytest.mark.parametrize("specification", ["Adam(beta2=0)", "Adam(0.9, 0.8)", "AdamW(0.99, 0.95)"])
def test_adam_is_refused_where_its_steps_have_no_bound(specification):
    """|m| ≤ c·√v for some c only if β₁² ≤ β₂; else one gradient near 0 gives a huge step."""
    with pytest.raises(ValueError, match=r"beta2: expected beta1² or more, found beta1 = 0.9"):
        create_optimizer(specification, np.ones((1, 2)), None)
    create_optimizer("Adam(0.9, 0.81)", np.ones((1, 2)), None)
    create_optimizer("Adam(0, 0)", np.ones((1, 2)), None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta2", [0.999, 0.9999])
def test_bias_correction_of_adam_is_exact(backend, beta2, dtype):
    """1 - β₂ᵗ must not lose digits in float32: its relative error is that of the whole first updates."""
    x, gradients = np.zeros(SHAPE, dtype=dtype), problem(dtype)[1]
    actual = run(backend, f"Adam(beta2={beta2})", x, gradients)
    expected = torch_optimizer(lambda p: torch.optim.Adam(p, betas=(0.9, beta2)), x, gradients, RATES)
    assert_path(actual, expected, dtype, f"Adam(beta2={beta2}) on {backend}, {dtype}, seed 1", tolerance=TIGHT[dtype])


@pytest.mark.parametrize("specification", OPTIMIZERS)
def test_zero_gradient_keeps_the_parameter(specification):
    """No 0/0: from the start, a zero gradient without weight decay changes nothing."""
    x = np.array([[1.0, -2.0]])
    arguments = "(weight_decay=0)" if specification == "AdamW" else ""
    optimizer = create_optimizer(specification + arguments, x, None)
    np.testing.assert_array_equal(optimizer.apply(x, np.zeros((1, 2)), 0.1), x)


# -- dtype and purity --------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", ["GradientDescent(weight_decay=0.1, l1=0.1)", *list(OPTIMIZERS)[1:]])
def test_dtype_is_kept(backend, specification, dtype):
    """With η as a Python number and as a 0-d array, in an eager update, x and all state keep their dtype."""
    x, gradients = problem(dtype)
    X, Dx = backend.matrix(x, dtype), backend.matrix(gradients[0], dtype)
    optimizer = create_optimizer(specification, X, None)
    scalars = {np.dtype(dtype).type} if backend.name == "numpy" else set()  # what 0-d arithmetic gives
    for eta in (0.1, 1, backend.matrix(0.1, dtype)):
        X = optimizer.apply(X, Dx, eta)
        state = {"x": X} | {name: getattr(optimizer, name) for name in optimizer.state_names}
        for name, A in state.items():
            where = f"{specification} on {backend}, η = {eta!r}: {name}"
            assert type(A) in {type(backend.matrix(x))} | scalars, f"{where} is {type(A)}"
            assert to_numpy(A).dtype == dtype, f"{where} is {to_numpy(A).dtype}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("specification", ["GradientDescent(weight_decay=0.1, l1=0.1)", *list(OPTIMIZERS)[1:]])
def test_nothing_is_changed_in_place(backend, specification, dtype):
    """The given x, Dx and earlier state keep their values."""
    x, gradients = problem(dtype)
    X, Dx = backend.matrix(x, dtype), backend.matrix(gradients[0], dtype)
    optimizer = create_optimizer(specification, X, None)
    for i in range(2):
        old = {name: getattr(optimizer, name) for name in optimizer.state_names}
        copies = {name: np.array(to_numpy(A)) for name, A in old.items()}
        assert optimizer.apply(X, Dx, 0.1) is not X
        for name, A in {"x": X, "Dx": Dx, **old}.items():
            E = {"x": x, "Dx": gradients[0], **copies}[name]
            where = f"{specification} on {backend}, update {i}: {name}"
            np.testing.assert_array_equal(to_numpy(A), E, err_msg=where)


# -- layer.optimizer ---------------------------------------------------------------------------


class PaperOptimizer(mg.Optimizer):
    """The paper's listing of GradientDescentOptimizer, as printed."""

    def __init__(self, x, Dx):
        self.x = x
        self.Dx = Dx

    def update(self, eta):
        self.x -= eta * self.Dx


def linear(backend, dtype="float64"):
    """A 3→4 linear layer, with its W and b as NumPy arrays."""
    mg.manual_seed(2)
    layer = mg.LinearLayer(3, 4)
    layer.to(backend.backend, dtype)
    return layer, to_numpy(layer.W).copy(), to_numpy(layer.b).copy()


def batches(backend, dtype, count=4):
    """Random X and DY."""
    rng = np.random.default_rng(3)
    sizes = ((5, 3), (5, 4))
    return [tuple(backend.matrix(rng.normal(size=size), dtype) for size in sizes) for _ in range(count)]


def train(backend, layer, data, rates):
    """Steps of the layer itself; on JAX the arithmetic is compiled, in a clone."""

    def f(state, X, DY, eta):
        twin = layer.clone()
        twin.load_state(state)
        twin.backpropagate(twin.feedforward(X), DY)
        twin.optimize(eta)
        return twin.state()

    step = backend.compiled(f)
    for (X, DY), eta in zip(data, rates, strict=True):
        layer.load_state(step(layer.state(), X, DY, backend.backend.scalar(eta, like=X)))


def expected_gradients(data):
    """DW and Db of a linear layer, which do not depend on W and b."""
    pairs = [(to_numpy(X).astype("float64"), to_numpy(DY).astype("float64")) for X, DY in data]
    return [DY.T @ X for X, DY in pairs], [DY.sum(axis=0, keepdims=True) for X, DY in pairs]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_papers_composition(backend, dtype):
    """Momentum for W and Nesterov for b, in the paper's three lines."""
    layer, W, b = linear(backend, dtype)
    data, rates = batches(backend, dtype), (0.5, 0.25, 0.125, 0.25)

    optimizer_W = mg.MomentumOptimizer(layer.W, layer.DW, 0.9)
    optimizer_b = mg.NesterovOptimizer(layer.b, layer.Db, 0.9)
    layer.optimizer = mg.CompositeOptimizer(optimizer_W, optimizer_b)
    train(backend, layer, data, rates)

    DW, Db = expected_gradients(data)
    where = f"{backend}, {dtype}, seeds 2 and 3"
    for name, x, gradients, nesterov in (("W", W, DW, False), ("b", b, Db, True)):
        expected = transcription(x, gradients, rates, 0.9, nesterov)[-1]
        assert_close(
            getattr(layer, name), expected, dtype=dtype, tolerance=TOLERANCE[dtype], context=f"{where}: {name}"
        )
    assert set(layer.state()) == {"W", "b", "W.delta", "b.delta"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_papers_optimizer_class(backend, dtype):
    """A user's class written as the listing, with an update in place, works on every backend."""
    layer, W, b = linear(backend, dtype)
    layer.optimizer = mg.CompositeOptimizer(PaperOptimizer(layer.W, layer.DW), PaperOptimizer(layer.b, layer.Db))
    ((X, DY),) = data = batches(backend, dtype, count=1)
    layer.backpropagate(layer.feedforward(X), DY)
    layer.optimize(0.25)
    (DW,), (Db,) = expected_gradients(data)
    for name, expected in (("W", W - 0.25 * DW), ("b", b - 0.25 * Db)):
        assert_close(getattr(layer, name), expected, dtype=dtype, context=f"{name} on {backend}, {dtype}")


def test_the_papers_optimizer_class_changes_no_earlier_state(backend):
    """Neither that of the original of a clone, nor one taken before a step, though the class updates in place."""
    layer, W, b = linear(backend)
    layer.optimizer = mg.CompositeOptimizer(PaperOptimizer(layer.W, layer.DW), PaperOptimizer(layer.b, layer.Db))
    ((X, DY),) = batches(backend, "float64", count=1)
    twin, saved = layer.clone(), layer.state()
    for changed in (twin, layer):
        changed.backpropagate(changed.feedforward(X), DY)
        changed.optimize(0.25)
        found = layer.state() if changed is twin else saved
        for name, before in (("W", W), ("b", b)):
            np.testing.assert_array_equal(to_numpy(found[name]), before, err_msg=f"{name} on {backend}")


def test_a_layer_moves_on_with_its_optimizer(backend):
    """The binding is to the name: it survives `set_weights` and `to`, with the optimizer's state."""
    numpy, rates = Framework("numpy"), (0.5, 0.25)
    layer, _, _ = linear(numpy)
    layer.optimizer = mg.CompositeOptimizer(mg.MomentumOptimizer(layer.W, None), mg.MomentumOptimizer(layer.b, None))
    train(numpy, layer, batches(numpy, "float64", count=2), rates)
    middle = {name: A.copy() for name, A in layer.state().items()}
    layer.set_weights("Zero")
    layer.to(backend.backend)
    data = batches(backend, "float64", count=1)
    train(backend, layer, data, (0.125,))

    for name, (D,) in zip(("W", "b"), expected_gradients(data), strict=True):
        delta = 0.9 * middle[f"{name}.delta"] - 0.125 * D
        assert np.any(middle[f"{name}.delta"])
        assert_close(layer.state()[f"{name}.delta"], delta, context=f"{name}.delta on {backend}, seeds 2 and 3")
        assert_close(getattr(layer, name), delta, context=f"{name} on {backend}, seeds 2 and 3")


def test_a_foreign_matrix_is_refused(backend):
    """A copy of W is not W; the layer keeps the optimizer it had."""
    layer, W, _ = linear(backend)
    before = layer.optimizer
    part = mg.MomentumOptimizer(backend.matrix(W), None, 0.9)
    with pytest.raises(ValueError, match=r"MomentumOptimizer: not made with a parameter of this LinearLayer.*W, b"):
        layer.optimizer = mg.CompositeOptimizer(part, mg.MomentumOptimizer(layer.b, None, 0.9))
    assert layer.optimizer is before


def test_two_optimizers_for_one_parameter_are_refused():
    layer = mg.LinearLayer(3, 4)
    parts = mg.MomentumOptimizer(layer.W, None), mg.NesterovOptimizer(layer.W, None)
    with pytest.raises(ValueError, match=r"NesterovOptimizer: two optimizers for one parameter of this LinearLayer"):
        layer.optimizer = mg.CompositeOptimizer(*parts)


def test_composites_nest():
    layer = mg.SReLULayer(3, 4)
    rows = (mg.GradientDescentOptimizer(getattr(layer, name), None) for name in ("al", "tl", "ar", "tr"))
    weights = mg.CompositeOptimizer(mg.AdamOptimizer(layer.W, None), mg.MomentumOptimizer(layer.b, None))
    layer.optimizer = mg.CompositeOptimizer(weights, mg.CompositeOptimizer(*rows))
    of_W = {f"W.{name}" for name in mg.AdamOptimizer.state_names}
    assert set(layer.state()) == {"W", "b", "al", "tl", "ar", "tr", "b.delta"} | of_W


@pytest.mark.parametrize("make", [lambda: mg.LinearLayer(3, 4), lambda: mg.BatchNormalizationLayer(3)])
def test_optimize_before_backpropagate_is_refused(backend, make):
    layer = make()
    layer.to(backend.backend)
    name = layer.parameters[0]
    with pytest.raises(RuntimeError, match=rf"optimize: D{name} is not computed yet; run feedforward and backprop"):
        layer.optimize(0.1)


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("Momentun(0.9)", r"unknown optimizer 'Momentun'; did you mean 'Momentum'\?"),
        ("RMSProp(1)", r"alpha: expected a number in \[0, 1\), found 1"),
        ("Adagrad(-1)", r"epsilon: expected a finite number of 0 or more, found -1"),
        ("Momentum(l1=-1)", r"l1: expected a finite number of 0 or more, found -1"),
        ("Nesterov(eta=0.1)", r"'eta'; usage: Nesterov\(mu=0.9"),
    ],
)
def test_bad_specifications_are_refused(specification, message):
    with pytest.raises(ValueError, match=message):
        mg.LinearLayer(3, 4).set_optimizer(specification)


@pytest.mark.parametrize("specification", list(OPTIMIZERS)[1:])
def test_numpy_numbers_as_arguments_keep_float32(specification):
    """np.float64(0.9) times a float32 matrix would be float64."""
    x = np.ones((2, 3), np.float32)
    optimizer = OPTIMIZERS[specification](x, None, np.float64(0.9), weight_decay=np.float64(0.1), l1=np.float64(0.1))
    assert optimizer.apply(x, x, 0.1).dtype == np.float32
