"""The matrices that a loss depends on, and a model in which one element of one of them can be changed."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import Matrix
from matgrad.inspection.equations import Equation
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support

Element = tuple[int, int]
Shift = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Variable:
    """A matrix V that the loss depends on: the input of a layer or of the loss, a parameter, or a value."""

    name: str
    layer: int  # counted from 0; the loss comes after the last one
    owner: Layer | None  # that layer, or one of its parts; None for the loss
    value: np.ndarray
    equation: Equation  # of DV
    path: str = ""  # the name of the owner, such as '3.1'
    position: int | None = None  # for a value: the index of its equation among those executed
    support: Support | None = None  # of a sparse parameter, whose `value` has the stored elements in one row

    def row_and_column(self, element: Element) -> Element:
        """The row and column in V of an element of `value`."""
        S, k = self.support, element[1]
        return element if S is None else (int(S.row_indices()[k]), int(S.columns[k]))


class ChangeableModel:
    """A copy of the layers in float64 on NumPy, with a loss and a batch."""

    def __init__(self, layers: list[Layer], loss: LossFunction, X: Matrix, T: Matrix) -> None:
        self.layers = [layer.clone() for layer in layers]
        for layer in self.layers:
            layer.to(get_backend("numpy"), "float64")
        self.buffers = [
            [(part, name, getattr(part, name)) for _, part in layer.walk() for name in part.buffers]
            for layer in self.layers
        ]
        self.loss = loss
        self.inputs = [_batch("X", X, layers[0].input_size)]
        self.T = _batch("T", T, layers[-1].output_size)
        if len(self.T) != len(self.inputs[0]):
            raise ValueError(f"X has {len(self.inputs[0])} rows and T has {len(self.T)}: expected equal numbers")
        self.trace: list[tuple[Layer, Equation, Any]] = []
        self.change: tuple[Layer, int, Shift] | None = None

    def observe(self, layer: Layer, equation: Equation, value: Any) -> Any:
        """The value of an equation, changed if it is the one to change; it is added to `trace`."""
        if self.change is not None and self.change[0] is layer:
            _, position, shift = self.change
            if len(self.executed(layer)) == position:
                value = shift(value)
        self.trace.append((layer, equation, value))
        return value

    def executed(self, layer: Layer) -> list[tuple[Equation, Any]]:
        """The equations of a layer that the last run executed, with their values."""
        return [(equation, value) for other, equation, value in self.trace if other is layer]

    def mean_loss(self, Y: np.ndarray) -> float:
        """ℒ, the mean loss of the batch."""
        value = float(self.loss(Y, self.T))
        return value if self.loss.is_mean else value / len(Y)

    @contextmanager
    def shifted(self, V: Variable, element: Element, delta: float) -> Iterator[np.ndarray]:
        """The output, with delta added to one element of V."""
        self.trace.clear()
        for part, name, value in chain.from_iterable(self.buffers[V.layer :]):  # so that all runs start with the same
            setattr(part, name, copy.copy(value))
        X = self.inputs[V.layer]
        with self._shift(V, lambda A: _shifted(A, element, delta)) if V.owner is not None else nullcontext():
            for layer in self.layers[V.layer :]:
                X = layer.feedforward(X)
            yield X if V.owner is not None else _shifted(X, element, delta)

    @contextmanager
    def _shift(self, V: Variable, shift: Shift) -> Iterator[None]:
        """Change V while the context lasts: the input of a layer, a value of its feedforward or a parameter."""
        assert V.owner is not None
        if V.position is not None:
            self.change = (V.owner, V.position, shift)
            yield
            self.change = None
        elif V.name == "X":
            with input_changed(V.owner, shift):
                yield
        else:
            parameter = getattr(V.owner, V.name)
            setattr(V.owner, V.name, with_values(parameter, shift(V.value)))
            yield
            setattr(V.owner, V.name, parameter)

    def loss_at(self, V: Variable, element: Element, delta: float) -> float:
        """ℒ with delta added to one element of V."""
        with self.shifted(V, element, delta) as Y:
            return self.mean_loss(Y)

    def gradient(self, V: Variable, element: Element = (0, 0), delta: float = 0.0) -> Any:
        """DV by backpropagation, with delta added to one element of V."""
        layers = self.layers[V.layer :]
        with self.shifted(V, element, delta) as Y:
            DY = self.loss.mean_gradient(Y, self.T)
            MultilayerPerceptron(layers).backpropagate(Y, DY)
        if V.owner is None:
            return DY
        if V.position is None:
            return values_of(getattr(V.owner, f"D{V.name}"))
        return [value for equation, value in self.executed(V.owner) if equation == V.equation][-1]

    def variables(self) -> list[Variable]:
        """All V to check, in order of backpropagation."""
        for layer in self.layers:
            self.inputs.append(layer.feedforward(self.inputs[-1]))
        Y = self.inputs[-1]
        if not np.isfinite(self.mean_loss(Y)):
            raise ValueError(f"the loss of this batch is {self.mean_loss(Y)}: expected a finite number")
        MultilayerPerceptron(self.layers).backpropagate(Y, self.loss.mean_gradient(Y, self.T))
        found = [Variable("Y", len(self.layers), None, Y, stand_in_equation(self.loss, "gradient", "gradient"))]
        for k in reversed(range(len(self.layers))):
            parts = self.layers[k].walk(str(k + 1))
            found += sorted(
                (V for path, part in parts for V in self._variables_of(k, path, part)), key=self._when_computed
            )
        return found

    def _when_computed(self, V: Variable) -> int:
        """The index of the equation of DV in `trace`."""
        found = [i for i, (layer, equation, _) in enumerate(self.trace) if layer is V.owner and equation == V.equation]
        return max(found, default=len(self.trace))

    def _variables_of(self, k: int, path: str, layer: Layer) -> list[Variable]:
        """The V of layer k or a part of it: all values with an equation DV, all parameters, and the input.

        If layer k does not run a part exactly once, only the parameters of that part count: it has several values.
        """
        executed = self.executed(layer)
        values = {(e.owner, e.name): i for i, (e, _) in enumerate(executed) if e.method == "feedforward"}
        is_part = layer is not self.layers[k]
        stored = {name: getattr(layer, name) for name in layer.parameters} | {"X": self.inputs[k]}
        if is_part:
            stored["X"] = layer.X
            runs = Counter((e.file, e.line) for e, _ in executed if e.method == "feedforward")
            if layer.X is None or max(runs.values(), default=1) > 1:
                values, _ = {}, stored.pop("X")
        supports = {V: x.support for V, x in stored.items() if isinstance(x, SparseMatrix)}

        def variable(V: str, equation: Equation) -> Variable:
            return Variable(V, k, layer, values_of(stored[V]), equation, path, support=supports.get(V))

        found: dict[Any, Variable] = {}  # if an equation is executed twice, the last one counts
        for equation, _ in executed:
            V, owner = equation.name[1:], equation.owner
            if equation.method != "backpropagate" or equation.name[0] != "D":
                continue
            if V in stored:
                found[V] = variable(V, equation)
            elif V != "Y" and V in {name for _, name in values}:  # DY is given
                i = values.get((owner, V), max(i for (_, name), i in values.items() if name == V))
                found[owner, V] = Variable(V, k, layer, executed[i][1], equation, path, i)
        for V in stored:
            if V not in found:
                found[V] = variable(V, stand_in_equation(layer, "backpropagate", f"D{V}"))
        return list(found.values())


def _shifted(A: np.ndarray, element: Element, delta: float) -> np.ndarray:
    """A with delta added to one element."""
    if not delta:
        return A
    A = A.copy()
    A[element] += delta
    return A


def _batch(name: str, A: Matrix, columns: int) -> np.ndarray:
    """A in float64 on NumPy, with its size checked."""
    A = np.asarray(backend_of(A).to_numpy(A), dtype=np.float64)
    if A.ndim != 2 or A.shape[1] != columns or not len(A):
        raise ValueError(f"{name}: expected size N × {columns}, found {size_text(A)}")
    return A


def size_text(A: Any) -> str:
    """The size of a matrix, such as ``3 × 4``."""
    return " × ".join(map(str, np.shape(A)))


@contextmanager
def input_changed(layer: Layer, change: Callable[[Any], Any]) -> Iterator[None]:
    """The feedforward of one layer gets change(X) instead of X while the context lasts."""
    replaced = vars(layer).get("feedforward")

    def feedforward(X: Matrix) -> Matrix:
        return type(layer).feedforward(layer, change(X)) if replaced is None else replaced(change(X))

    vars(layer)["feedforward"] = feedforward
    try:
        yield
    finally:
        if replaced is None:
            del vars(layer)["feedforward"]
        else:
            vars(layer)["feedforward"] = replaced


def stand_in_equation(thing: Any, method: str, name: str) -> Equation:
    """The last ``return`` of a method, or its first line, for a gradient that has no equation of its own."""
    function = getattr(type(thing), method)
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "?"
    except (OSError, TypeError):
        lines, first, file = [f"{method}(…)"], 0, "?"
    i = max((i for i, line in enumerate(lines) if line.strip().startswith("return ")), default=0)
    return Equation(type(thing).__name__, method, name, first + i, file, lines[i].strip())
