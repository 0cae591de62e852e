"""Proved equations, evaluated at random sizes and numbers, against torch's autograd in float64."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from index_support import Numbers
from matgrad import softmax_functions
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.inspection.observing import observed
from matgrad.inspection.verdicts import gradient_checks
from matgrad.judges.algebra import MakeLayer
from matgrad.judges.definitions import SOFTMAX
from matgrad.judges.index_judge import Symbols
from matgrad.layers import ActivationDropoutLayer, ActivationLayer, Layer, SReLULayer
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES, takes_weights
from matgrad.matrix_operations import uniform
from matgrad.program.entries import IndexMatrix
from matgrad.program.shapes import Size
from matgrad.specifications.models import LAYERS

OFTEN = 20  # random sizes in slow tests
SIGNED = ("X", "W", "b", "G", "x", "beta")  # symbols that get negative numbers too


class RandomNumbers(Numbers):
    """Sizes from 1 to 4, and a number for every symbol when it is first needed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        super().__init__({name: rng.randint(1, 4) for name in "NDK"}, (), np.random.default_rng(seed))
        self.rng = np.random.default_rng(seed)

    def of(self, A: IndexMatrix) -> np.ndarray:
        """The numbers of a matrix of symbols."""
        ((((entry, _),), _),) = A.entry.terms.items()
        if entry.name not in self.matrices:
            low = -1.5 if entry.name in SIGNED else 0.3
            self.matrices[entry.name] = self.rng.uniform(low, 1.5, self.shape(A))
        return self.matrices[entry.name]

    def factor(self, f: Any, at: Any) -> float:
        name = getattr(f, "name", "")
        if name.startswith("U.") and name not in self.matrices:  # the random numbers of dropout
            seed, count, *shape = name.split(".")[1:]
            m, n = (self.sizes.get(size, 1) for size in shape)
            self.matrices[name] = uniform(m, n, seed=int(seed), count=int(count), like=np.zeros((1, 1)))
        return super().factor(f, at)

    def tensor(self, A: IndexMatrix) -> torch.Tensor:
        return torch.tensor(self.of(A), requires_grad=True)

    def numeric(self, x: Any) -> Any:
        """What a symbolic attribute stands for: a tensor, a number or a size."""
        if isinstance(x, IndexMatrix):
            return self.tensor(x) if x.shape else float(self.of(x))
        if isinstance(x, Size):
            return self.sizes[x.name]
        return self.copy(x) if isinstance(x, ActivationFunction) else x

    def copy(self, thing: Any) -> Any:
        """The object with numbers for its symbols."""
        clone = copy.copy(thing)
        vars(clone).update({name: self.numeric(value) for name, value in vars(thing).items()})
        return clone


def agree(numbers: RandomNumbers, found: IndexMatrix, expected: torch.Tensor, what: object) -> None:
    """Both have the same values, to 1e-10."""
    values = expected.detach().numpy()
    scale = max(1.0, np.abs(values).max())
    message = f"{what}, sizes {dict(numbers.sizes)}"
    np.testing.assert_allclose(numbers.matrix(found), values, rtol=1e-10, atol=1e-10 * scale, err_msg=message)


# -- layers --------------------------------------------------------------------------------------


def layers() -> Iterator[tuple[str, MakeLayer]]:
    for name, cls in LAYERS.items():
        yield name, partial(lambda cls, D, K: cls(D, D if cls.keeps_size else K), cls)
    yield "SReLU, shared", partial(SReLULayer, shared=True)
    for cls in DROPOUT_LAYERS.values():
        yield cls.__name__, partial(cls, act="Sigmoid") if cls is ActivationDropoutLayer else cls
    for name in ACTIVATIONS:
        yield f"Activation {name}", partial(ActivationLayer, act=name)


LISTED = list(layers())


MODES = ({}, {"training": False})


def check_layer(make: MakeLayer, seed: int, options: dict[str, bool]) -> int:
    """Compare every gradient of a layer; the number of them."""
    symbols, numbers, count = Symbols(), RandomNumbers(seed), 0
    layer = symbols.layer(make, **options)
    X = symbols.symbols("X", symbols.size("N"), layer.input_size)
    # the name of each gradient, and what the layer computes
    symbols.claim = lambda cls, name, origin, found, *_, **__: (name, found)
    equations = gradient_checks(layer, X, symbols)
    tensors = layer.clone()
    vars(tensors).update({name: numbers.numeric(value) for name, value in vars(layer).items()})
    variables = {name: getattr(tensors, name) for name in layer.parameters} | {"X": numbers.tensor(X)}
    G = symbols.symbols("G", symbols.size("N"), layer.output_size)
    values: dict[str, torch.Tensor] = {}

    def record(_: Layer, equation: Any, value: Any) -> Any:
        values[equation.name] = value
        return value

    with observed([tensors], record):
        Y = tensors.feedforward(variables["X"])
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            numbers.matrices.setdefault(name, value.detach().numpy())
    for name, found in equations:
        V = name[1:]
        of = variables.get(V, values.get(V))
        (expected,) = torch.autograd.grad(
            (numbers.tensor(G) * Y).sum(), of, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        agree(numbers, found, expected, f"{type(layer).__name__}.{name} {options}, seed {seed}")
        count += 1
    return count


@pytest.mark.parametrize("make", [make for _, make in LISTED[::3]], ids=[name for name, _ in LISTED[::3]])
def test_gradients_of_layers(make: MakeLayer):
    for options in MODES:
        assert check_layer(make, 0, options)


@pytest.mark.slow
@pytest.mark.parametrize("make", [make for _, make in LISTED], ids=[name for name, _ in LISTED])
def test_gradients_of_layers_at_many_sizes(make: MakeLayer):
    for options in MODES:
        assert all(check_layer(make, seed, options) for seed in range(OFTEN))


# -- losses and functions --------------------------------------------------------------------------


def check_loss(name: str, seed: int) -> None:
    symbols, numbers = Symbols(), RandomNumbers(seed)
    loss = symbols.numbers(LOSSES[name]())
    Y, T = (symbols.symbols(x, symbols.size("N"), symbols.size("K")) for x in "YT")
    s = symbols.symbols("s", symbols.size("N"), 1)
    own, (y, t, w) = numbers.copy(loss), (numbers.tensor(V) for V in (Y, T, s))
    (slope,) = torch.autograd.grad(own(y, t), y)
    agree(numbers, loss.gradient(Y, T), slope, f"{name}.gradient")
    agree(numbers, loss.mean_gradient(Y, T), slope if own.is_mean else slope / len(y), f"{name}.mean_gradient")
    if takes_weights(loss):
        (slope,) = torch.autograd.grad(own(y, t, w), y)
        mean = slope if own.is_mean else slope / len(y)
        agree(numbers, loss.mean_gradient(Y, T, s), mean, f"{name}.mean_gradient, weighted")


def check_activation(name: str, seed: int) -> None:
    symbols, numbers = Symbols(), RandomNumbers(seed)
    act, X = symbols.numbers(ACTIVATIONS[name]()), symbols.symbols("X", *map(symbols.size, "NK"))
    x = numbers.tensor(X)
    (slope,) = torch.autograd.grad(numbers.copy(act)(x).sum(), x)
    agree(numbers, act.gradient(X), slope, f"{name}.gradient")


def check_softmax(name: str, seed: int) -> None:
    symbols, numbers = Symbols(), RandomNumbers(seed)
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    x = symbols.symbols("x", 1, symbols.size("D"))
    D = numbers.sizes["D"]
    J = torch.autograd.functional.jacobian(f, numbers.tensor(x)).reshape(D, D)
    agree(numbers, of_row(x), J, f"{name}_jacobian")


FUNCTIONS = (
    *((check_loss, name) for name, cls in LOSSES.items() if not cls.has_tokens),
    *((check_activation, name) for name in ACTIVATIONS),
    *((check_softmax, name) for name in SOFTMAX),
)


@pytest.mark.parametrize(("check", "name"), FUNCTIONS)
def test_gradients_of_losses_and_functions(check: Any, name: str):
    for seed in range(4):
        check(name, seed)
