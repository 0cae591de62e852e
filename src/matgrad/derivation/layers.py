"""The feedforward of a layer as equations: its code runs on terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import Matrix
from matgrad.derivation.backpropagation import Equation, Feedforward
from matgrad.derivation.sources import Given, Source, Values
from matgrad.derivation.terms import DRAWN, NamedFunction, NamedSize, Term, is_one, named
from matgrad.index_notation.entries import Entry
from matgrad.index_notation.expressions import Factor
from matgrad.inspection.equations import Equation as SourceEquation
from matgrad.inspection.observing import observed
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.judges.index_judge import SMALL, SymbolicSizes, Symbols
from matgrad.layers.layer import Layer
from matgrad.proofs.matrices import IndexMatrix
from matgrad.proofs.matrices import symbols as index_symbols


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
        self.layer = _TermSymbols(self).layer(self.make, training=training)
        self.feedforward = self._traced()

    def _traced(self) -> Feedforward:
        """The equations that feedforward executes, with what they depend on."""
        paths = {id(part): path for path, part in self.layer.walk()}
        equations: list[Equation] = []
        taken = {"X", *(x.label for x in self._parameters())}

        def observe(part: Layer, equation: SourceEquation, value: Any) -> Any:
            if not isinstance(value, Term) or not value.operands:
                return value
            name = plain_name(f"{equation.name}.{paths[id(part)]}".rstrip("."))
            while name in taken:
                name += "_"
            taken.add(name)
            equations.append((named(name, *value.shape), value))
            return equations[-1][0]

        X = named("X", NamedSize("N"), self.layer.input_size)
        with observed((part for _, part in self.layer.walk()), observe):
            Y = self.layer.feedforward(X)
        if not isinstance(Y, Term) or not Y.shape:
            raise TypeError(f"{type(self.example).__name__}.feedforward: expected a matrix, found {Y!r}")
        if not equations or equations[-1][0] is not Y or Y.label != "Y":
            equations.append((named("Y" if "Y" not in taken else "Y_", *Y.shape), Y))
        wanted = [*self._parameters(), X]
        found = Feedforward([], wanted, equations, tuple(self.example.intermediates))
        known = {V for V, _ in found.equations}
        leaves = {x for _, rhs in found.equations for x in rhs.walk() if x.operation == "input"}
        found.inputs = sorted((leaves | set(wanted)) - known, key=lambda x: x.label)
        return found

    def _parameters(self) -> list[Term]:
        return [getattr(part, name) for _, part in self.layer.walk() for name in part.parameters]

    def given(self) -> dict[str, Given]:
        """What the constructor sets: the parameters and the numbers that the equations depend on."""
        values = {
            plain_name(f"{n}.{path}".rstrip(".")): v for path, p in self.example.walk() for n, v in vars(p).items()
        }
        found: dict[str, Given] = {}
        for x in self.feedforward.inputs:
            if x.label != "X":
                value = values.get(x.label)
                constant = value.flat[0] if isinstance(value, np.ndarray) and np.ptp(value) == 0 else value
                found[x.label] = Given(x, None if isinstance(constant, np.ndarray) else constant)
        return found

    def values(self, ones: frozenset[str], keep_numbers: bool) -> Values:
        """The values of the inputs in index notation; sizes in `ones` are 1."""
        sizes = SymbolicSizes(ones)
        symbols = Symbols(sizes, keep_numbers=keep_numbers)
        layer = symbols.layer(self.make, training=self.training)
        values: dict[str, Any] = {}
        for path, part in layer.walk():
            for name, value in vars(part).items():
                values[plain_name(f"{name}.{path}".rstrip("."))] = value
        values["X"] = symbols.symbols("X", sizes("N"), layer.input_size)
        for x in self.feedforward.inputs:
            if x.label == DRAWN:
                Y: Any = layer.clone().feedforward(values["X"])
                drawn = _drawn(Y)
                values[DRAWN] = index_symbols(drawn, *(n if is_one(n) else sizes(n.name) for n in x.shape))
        return Values(values, layer.feedforward, sizes.questions)


def _drawn(Y: IndexMatrix) -> str:
    """The name of the symbols in Y that stand for random numbers."""
    found: list[str] = []

    def look(f: Factor) -> None:
        if isinstance(f, Entry) and f.name.startswith(f"{DRAWN}."):
            found.append(f.name)

    Y.entry.mapped(look)
    return found[0]


class _TermSizes(SymbolicSizes):
    """N, D and K, with which terms are computed."""

    def __call__(self, name: str) -> NamedSize:
        return NamedSize(name, self.questions)


class _TermSymbols(Symbols):
    """Terms for the matrices and numbers of a layer; its activation functions are known by their names."""

    def __init__(self, source: LayerSource) -> None:
        self.sizes, self.keep_numbers = _TermSizes(), False
        self.source = source

    def own_symbols(self, name: str, *shape: Any, is_positive: bool = False) -> Matrix:
        """The matrix of this name."""
        return named(plain_name(name), *shape)

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        if isinstance(value, ActivationFunction) and self.source.named_functions:
            if any(isinstance(x, np.ndarray) for x in vars(value).values()):
                return value  # it has matrices of the layer, which sets it anew
            self.source.functions[plain_name(name)] = repr(value)
            return NamedFunction(plain_name(name))
        return super()._attribute(part, name, value, other)


def plain_name(name: str) -> str:
    """A name that Python can have: W_1 for W.1"""
    return name.replace(".", "_")
