"""All gradients of a layer, as it computes them and as they are derived: for whatever can derive them.

A gradient is what is in the layer after `backpropagate`, however it was set. The gradients are those of all parameters,
also of the parts, of the input, and of the values of feedforward that have an equation ``DV = …``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from matgrad.backends.base import Matrix, Scalar
from matgrad.inspection.equations import Equation, assignment, observed_if_readable
from matgrad.inspection.variables import (
    OTHER_INPUT,
    did_not_run,
    drop_gradients,
    gradient_equation,
    input_changed,
    inputs_recorded,
    values_with_gradients,
)
from matgrad.layers.layer import Layer


class Calculus(Protocol):
    """Matrices of symbols, and derivatives with respect to them."""

    def symbols(self, name: str, m: Any, n: Any) -> Matrix:
        """An m×n matrix of symbols."""

    def pairing(self, G: Matrix, Y: Matrix) -> Scalar:
        """⟨G, Y⟩ = Σ_ij g_ij·y_ij"""

    def derivative(self, value: Scalar, V: Matrix) -> Matrix:
        """∇_V of a scalar, for a matrix V of symbols."""

    def is_same(self, A: Matrix, B: Matrix) -> bool:
        """Whether two matrices are the same."""

    def problem_of(self, found: Any, expected: Matrix) -> str:
        """Why they cannot be equal, whatever the symbols stand for; '' if they can."""


Sides = Callable[[], tuple[Any, Matrix]]  # what a layer computes as a gradient, and the derivative


@dataclass(frozen=True)
class Gradient:
    """A gradient of a part of a layer, or of the layer itself, with the equation that computes it.

    Without sides there is a problem with it, or a note that says why it needs none.
    """

    part: type[Layer]
    name: str  # 'DW', or what there is a problem with
    equation: Equation
    prefix: str = ""  # the name of the layer that it is a part of
    sides: Sides | None = None
    problem: str = ""
    note: str = ""

    @property
    def origin(self) -> tuple[str, str]:
        """The location and the source of the equation."""
        return self.equation.location, self.equation.source


def gradients(layer: Layer, X: Matrix, calculus: Calculus) -> Iterator[Gradient]:
    """The gradients of a layer with symbols in it, in order of backpropagation; those of its parts follow."""
    plain, cls = LayerRun(layer, X, calculus), type(layer)
    if plain.problem:
        yield Gradient(cls, "Y", assignment(cls, "feedforward", "Y"), problem=plain.problem)
        return
    watched = LayerRun(layer, X, calculus, observe=True)
    for path, part in layer.walk():
        prefix = f"{cls.__name__}.{path} " if path else ""
        if did_not_run(plain.parts[path], plain.inputs[path]):  # in evaluation mode it may have nothing to do
            about = type(part), "feedforward", assignment(type(part), "feedforward", "Y"), prefix, None
            text = f"{cls.__name__} does not run this part"
            yield Gradient(*about, problem=text) if part.training else Gradient(*about, note=text)
            continue
        for equation, sides in sorted(_sides(layer, path, X, plain, watched), key=watched.when(path)):
            yield Gradient(type(part), equation.name, equation, prefix, sides)
    if plain.layer.X is not None and not calculus.is_same(plain.layer.X, X):
        yield Gradient(cls, "X", assignment(cls, "feedforward", "X"), problem=OTHER_INPUT)


def _sides(layer: Layer, path: str, X: Matrix, plain: LayerRun, watched: LayerRun) -> list[tuple[Equation, Sides]]:
    """The gradients of one part, which may be the layer itself, each with its equation.

    What is stored, the gradients of parameters and of the input, is judged by a run that nothing watches. If the
    layer runs a part more than once, the part has several inputs, and its DX is not checked.
    """
    template, part = dict(layer.walk())[path], plain.parts[path]
    executed = watched.executed[path]
    stored = {name: getattr(template, name) for name in part.parameters} | ({} if path else {"X": X})
    found: list[tuple[Equation, Sides]] = []
    for V, matrix in stored.items():
        equation = gradient_equation(watched.parts[path], f"D{V}", executed)
        found.append((equation, partial(_stored, plain, getattr(part, f"D{V}", None), matrix)))
    if path and len(plain.inputs[path]) == 1:
        equation = gradient_equation(watched.parts[path], "DX", executed)
        found.append((equation, partial(_replaced, layer, X, plain.calculus, (path, "X", None), equation)))
    for of_value, i in values_with_gradients([e for e, _ in executed], (*stored, "X")):
        place = path, of_value.name[1:], i
        found.append((of_value, partial(_replaced, layer, X, plain.calculus, place, of_value)))
    return found


def _stored(run: LayerRun, found: Any, V: Matrix) -> tuple[Any, Matrix]:
    """Both sides for a parameter or the input of the layer."""
    return found, run.calculus.derivative(run.value, V)


Place = tuple[str, str, int | None]  # a part, a name, and the number of an equation; None is the input of the part


def _replaced(layer: Layer, X: Matrix, calculus: Calculus, place: Place, equation: Equation) -> tuple[Any, Matrix]:
    """Both sides for an input of a part or a value of feedforward, which is replaced by symbols."""
    path, _, position = place
    run = LayerRun(layer, X, calculus, observe=position is not None, replace=place)
    assert run.V is not None
    if position is None:
        return getattr(run.parts[path], "DX", None), calculus.derivative(run.value, run.V)
    found = [x for e, x in run.executed[path] if e == equation]
    return found[-1], calculus.derivative(run.value, run.V)


class LayerRun:
    """One run of feedforward and backpropagate on a copy of a layer, whose parts are called by their paths.

    With `observe`, it has the equations that each part executed. With `replace`, the value of an equation, or the input
    of a part, is replaced by symbols V.
    """

    def __init__(
        self, layer: Layer, X: Matrix, calculus: Calculus, *, observe: bool = False, replace: Place | None = None
    ) -> None:
        self.layer, self.calculus = layer.clone(), calculus
        self.parts = dict(self.layer.walk())
        self.executed: dict[str, list[tuple[Equation, Any]]] = {path: [] for path in self.parts}
        self.replace, self.V = replace, None
        self.G = calculus.symbols("G", X.shape[0], layer.output_size)
        with ExitStack() as stack:
            if observe:
                stack.enter_context(observed_if_readable(self.parts.values(), self._hook))
            inputs = stack.enter_context(inputs_recorded(self.parts.values()))
            if replace is not None and replace[2] is None:
                stack.enter_context(input_changed(self.parts[replace[0]], self._symbols))
            self.Y = self.layer.feedforward(X)
            self.problem = calculus.problem_of(self.Y, self.G)
            if not self.problem:
                drop_gradients(self.layer)
                self.layer.backpropagate(self.Y, self.G)
        self.inputs = {path: inputs[id(part)] for path, part in self.parts.items()}

    @cached_property
    def value(self) -> Scalar:
        """⟨G, Y⟩"""
        return self.calculus.pairing(self.G, self.Y)

    def when(self, path: str) -> Callable[[tuple[Equation, Any]], int]:
        """The order of execution of the equations of a part; others come last."""
        order = {equation: i for i, (equation, _) in enumerate(self.executed[path])}
        return lambda item: order.get(item[0], len(order))

    def _hook(self, layer: Layer, equation: Equation, value: Any) -> Any:
        path = next(path for path, part in self.parts.items() if part is layer)
        if self.replace is not None and (path, len(self.executed[path])) == (self.replace[0], self.replace[2]):
            value = self._symbols(value)
        self.executed[path].append((equation, value))
        return value

    def _symbols(self, value: Matrix) -> Matrix:
        path, name, _ = self.replace or ("", "", None)
        self.V = self.calculus.symbols(suffixed(name, path), *value.shape)
        return self.V


def suffixed(name: str, path: str) -> str:
    """A name for symbols that is different for every part."""
    return f"{name}.{path}" if path else name
