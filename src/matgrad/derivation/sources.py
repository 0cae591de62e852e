"""What a feedforward comes from: the code of a layer, or typed equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from matgrad.activation_functions import ActivationFunction, create_activation
from matgrad.backends.base import Matrix
from matgrad.derivation.backpropagation import Equation, Feedforward
from matgrad.derivation.values import is_one, named, substituted
from matgrad.inspection.equations import Equation as SourceEquation
from matgrad.inspection.observing import observed
from matgrad.inspection.verdicts import suffixed
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.judges.definitions import ArbitraryActivation
from matgrad.judges.index_judge import SMALL, Symbols
from matgrad.layers.layer import Layer
from matgrad.program.entries import IndexMatrix, symbols
from matgrad.program.program import Value, in_order
from matgrad.writers.typed import Equations

DRAWN = "U"  # a matrix of random numbers


class Values(NamedTuple):
    """Inputs in index notation by name, and the feedforward as a function of X."""

    inputs: dict[str, Any]
    feedforward: Callable[[Any], Any]


class Source:
    """A feedforward, and its values in index notation."""

    class_name: str  # of the derived layer, if it is given no other
    feedforward: Feedforward
    functions: dict[str, str]  # the activation functions by their names in the equations, with their specifications
    initial: dict[str, float | None]  # what the inputs begin with, if that is known
    values: Callable[[Symbols], Values]  # with the symbols of a judge


# -- typed equations ---------------------------------------------------------------------------


class TextSource(Source):
    """The feedforward of equations such as ``gamma: 1 D = 1; s = inv_sqrt(rows_mean(hadamard(X, X))); Y = …``."""

    def __init__(self, text: str, name: str = "New") -> None:
        if not name.isidentifier():
            raise ValueError(f"name: expected one that a Python class can have, found {name!r}")
        self.class_name = name
        self.equations = Equations(text)
        self.initial = self.equations.initial
        self.functions = {name: name for name in self.equations.activations}
        values = self.equations.values
        lines = [(values[name].value, values[f"{name} ="].value) for name, *_ in self.equations.lines]
        inputs = [values[name].value for name in self.equations.declared]
        self.feedforward = Feedforward(inputs, sorted(inputs, key=lambda x: x.name == "X"), lines)

    def values(self, a: Symbols) -> Values:
        """See `Source`."""
        sizes = self.equations.sizes(a.size)
        inputs = self.equations.inputs(sizes)

        def feedforward(X: Any) -> Any:
            return self.equations.evaluated({**inputs, "X": X}, sizes, create_activation)["Y"]

        functions = {name: create_activation(f) for name, f in self.functions.items()}
        return Values({**inputs, **functions}, feedforward)


# -- the code of a layer -----------------------------------------------------------------------


class LayerSource(Source):
    """The feedforward of the layer make(D, K), in training or in evaluation mode.

    Without `named_functions`, activation functions are looked into.
    """

    def __init__(self, make: MakeLayer, *, training: bool = True, named_functions: bool = True) -> None:
        self.make: MakeLayer = for_equal_sizes(make)
        self.training, self.example = training, self.make(*SMALL.values())
        self.class_name = f"Derived{type(self.example).__name__}"
        self.functions: dict[str, str] = {}
        self.named_functions = named_functions
        self.symbols = _NamedSymbols(self)
        self.layer = self.symbols.layer(self.make, training=training)
        self.feedforward = self._traced()
        values = _attributes(self.example)
        self.initial = {x.name: _constant(values.get(x.name)) for x in self.feedforward.inputs}

    def _traced(self) -> Feedforward:
        """The equations that feedforward executes, with what they depend on."""
        paths = {id(part): path for path, part in self.layer.walk()}
        equations: list[Equation] = []
        parameters = [getattr(part, name).value for _, part in self.layer.walk() for name in part.parameters]
        taken = {"X", *(x.name for x in parameters)}

        def observe(part: Layer, equation: SourceEquation, value: Any) -> Any:
            if not isinstance(value, IndexMatrix) or not value.value.operands:
                return value
            name = plain_name(suffixed(equation.name, paths[id(part)]))
            while name in taken:
                name += "_"
            taken.add(name)
            found = symbols(name, *value.shape)
            equations.append((found.value, value.value))
            return found

        X = symbols("X", self.symbols.size("N"), self.layer.input_size)
        with observed((part for _, part in self.layer.walk()), observe):
            Y: Any = self.layer.feedforward(X)
        if not isinstance(Y, IndexMatrix) or not Y.shape:
            raise TypeError(f"{type(self.example).__name__}.feedforward: expected a matrix, found {Y!r}")
        if not equations or equations[-1][0] is not Y.value or Y.value.name != "Y":
            equations.append((named("Y" if "Y" not in taken else "Y_", *Y.shape), Y.value))
        known = {x: named(DRAWN, *x.shape) for x in in_order(rhs for _, rhs in equations) if is_drawn(x)}
        equations = [(V, substituted(rhs, known)) for V, rhs in equations]
        wanted = [*parameters, X.value]
        found = Feedforward([], wanted, equations, tuple(self.example.intermediates))
        leaves = {x for x in in_order(rhs for _, rhs in found.equations) if x.operation == "input"}
        found.inputs = sorted((leaves | set(wanted)) - {V for V, _ in found.equations}, key=lambda x: x.name)
        return found

    def values(self, a: Symbols) -> Values:
        """See `Source`."""
        layer = a.layer(self.make, training=self.training)
        values = _attributes(layer) | {"X": a.symbols("X", a.size("N"), layer.input_size)}
        for x in self.feedforward.inputs:
            if x.name == DRAWN:
                Y: Any = layer.clone().feedforward(values["X"])
                drawn = next(x.name for x in in_order([Y.value]) if is_drawn(x))
                values[DRAWN] = symbols(drawn, *(n if is_one(n) else a.size(n.name) for n in x.shape))
        return Values(values, layer.feedforward)


def _attributes(layer: Layer) -> dict[str, Any]:
    """The attributes of a layer and its parts, by names that Python can have."""
    return {plain_name(suffixed(name, path)): x for path, part in layer.walk() for name, x in vars(part).items()}


def _constant(value: Any) -> Any:
    """The number that all elements of a matrix are, or None; a number itself."""
    if isinstance(value, np.ndarray):
        return value.flat[0] if np.ptp(value) == 0 else None
    return value


def is_drawn(x: Value) -> bool:
    """Whether a value is a matrix of random numbers."""
    return x.operation == "input" and x.name.startswith(f"{DRAWN}.")


class _NamedSymbols(Symbols):
    """Symbols whose names Python can have; activation functions are known by their names."""

    def __init__(self, source: LayerSource) -> None:
        super().__init__()
        self.source = source

    def own_symbols(self, name: str, *shape: Any, is_positive: bool = False) -> Matrix:
        """The matrix of this name."""
        return symbols(plain_name(name), *shape, is_positive=not shape)  # a number that is a symbol is not 0

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        if isinstance(value, ActivationFunction) and self.source.named_functions:
            if any(isinstance(x, np.ndarray) for x in vars(value).values()):
                return value  # it has matrices of the layer, which sets it anew
            self.source.functions[plain_name(name)] = repr(value)
            return ArbitraryActivation(plain_name(name))
        return super()._attribute(part, name, value, other)


def plain_name(name: str) -> str:
    """A name that Python can have: W_1 for W.1"""
    return name.replace(".", "_")
