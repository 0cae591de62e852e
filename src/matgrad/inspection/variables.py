"""The matrices that a loss depends on, and a model in which one element of one of them can be changed."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import Matrix
from matgrad.inspection.equations import Equation, assignment
from matgrad.inspection.faults import naming_faults
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support

Element = tuple[int, int]
Direction = np.ndarray  # of the size of a matrix
Shift = Callable[[np.ndarray], np.ndarray]
OTHER_INPUT = "self.X is not the input of feedforward, which backpropagation hands on to the layer before"


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
    problem: str = ""  # why DV cannot be right, whatever its value

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
        self.runs: dict[int, list[np.ndarray]] = {}  # the inputs of every layer and part, by its id

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

    def rounding(self) -> float:
        """What the rounding error of ℒ is proportional to besides ℒ: the largest |Y| and, with logarithms, 1."""
        is_builtin = type(self.loss).__module__.startswith("matgrad.")
        has_logarithms = self.loss.has_probabilities or not is_builtin
        return max(float(np.abs(self.inputs[-1]).max(initial=0.0)), 1.0 if has_logarithms else 0.0)

    def mean_loss(self, Y: np.ndarray) -> float:
        """ℒ, the mean loss of the batch."""
        value = float(self.loss(Y, self.T))
        return value if self.loss.is_mean else value / len(Y)

    def feedforward(self, layer: Layer, X: np.ndarray) -> np.ndarray:
        """The output of one layer, after a check that it is a matrix of the right size."""
        with naming_faults():
            Y = layer.feedforward(X)
        if np.shape(Y) != (len(X), layer.output_size):
            where = assignment(type(layer), "feedforward", "Y")
            raise ValueError(
                f"{where}: expected a matrix of size {len(X)} × {layer.output_size}, "
                f"found {_description(Y)} ({where.location}: {where.source})"
            )
        return Y

    def backpropagate(self, Y: np.ndarray, DY: Any, first: int = 0) -> int:
        """Backpropagation from the last layer down to the first, or to one whose DX is no gradient of its input.

        Gradients of an earlier run are dropped before. Returns the number of the layer where it ends.
        """
        for k in reversed(range(first, len(self.layers))):
            layer = self.layers[k]
            drop_gradients(layer)
            with naming_faults():
                layer.backpropagate(Y, DY)
            Y, DY = layer.X, layer.DX
            if np.shape(DY) != self.inputs[k].shape:
                return k
        return first

    @contextmanager
    def shifted(self, V: Variable, element: Element | Direction, delta: float) -> Iterator[np.ndarray]:
        """The output, with delta added to one element of V, or delta times a direction to V."""
        self.trace.clear()
        for part, name, value in chain.from_iterable(self.buffers[V.layer :]):  # so that all runs start with the same
            setattr(part, name, copy.copy(value))
        X = self.inputs[V.layer]
        with self._shift(V, lambda A: _shifted(A, element, delta)) if V.owner is not None else nullcontext():
            for layer in self.layers[V.layer :]:
                X = self.feedforward(layer, X)
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

    def loss_at(self, V: Variable, element: Element | Direction, delta: float) -> float:
        """ℒ with delta added to one element of V, or delta times a direction to V."""
        with self.shifted(V, element, delta) as Y:
            return self.mean_loss(Y)

    def gradient(self, V: Variable, element: Element = (0, 0), delta: float = 0.0) -> Any:
        """DV by backpropagation, with delta added to one element of V."""
        with self.shifted(V, element, delta) as Y:
            with naming_faults():
                DY = self.loss.mean_gradient(Y, self.T)
            self.backpropagate(Y, DY, V.layer)
        if V.owner is None:
            return DY
        if V.position is None:
            return values_of(getattr(V.owner, f"D{V.name}", None))
        return [value for equation, value in self.executed(V.owner) if equation == V.equation][-1]

    def variables(self) -> list[Variable]:
        """All V to check, in order of backpropagation."""
        with inputs_recorded(part for layer in self.layers for _, part in layer.walk()) as self.runs:
            for layer in self.layers:
                self.inputs.append(self.feedforward(layer, self.inputs[-1]))
        Y = self.inputs[-1]
        with naming_faults():
            value, DY = self.mean_loss(Y), self.loss.mean_gradient(Y, self.T)
        if not np.isfinite(value):
            raise ValueError(f"the loss of this batch is {value}: expected a finite number")
        lowest = self.backpropagate(Y, DY) if np.shape(DY) == Y.shape else len(self.layers)
        found = [Variable("Y", len(self.layers), None, Y, assignment(type(self.loss), "gradient", "gradient"))]
        for k in reversed(range(lowest, len(self.layers))):
            parts = self.layers[k].walk(str(k + 1))
            found += sorted(
                (V for path, part in parts for V in self._variables_of(k, path, part)), key=self._when_computed
            )
        return found

    def _when_computed(self, V: Variable) -> int:
        """The index of the equation of DV, or of another one with its name, in `trace`."""
        own = [(i, equation) for i, (layer, equation, _) in enumerate(self.trace) if layer is V.owner]
        exact = [i for i, equation in own if equation == V.equation]
        return max(exact or (i for i, equation in own if equation.name == V.equation.name), default=len(self.trace))

    def _variables_of(self, k: int, path: str, layer: Layer) -> list[Variable]:
        """The V of layer k or a part of it: all values with an equation DV, all parameters, and the input.

        If layer k runs a part more than once, the part has several inputs: its parameters alone are checked.
        """
        executed, is_part = self.executed(layer), layer is not self.layers[k]
        inputs = self.runs[id(layer)] if is_part else [self.inputs[k]]
        if did_not_run(layer, inputs):
            equation = assignment(type(layer), "feedforward", "Y")
            problem = f"{type(self.layers[k]).__name__} does not run this part"
            return [_without_value(k, layer, equation, path, problem)] if layer.training else []
        stored = {name: getattr(layer, name) for name in layer.parameters}
        if len(inputs) == 1:
            stored["X"] = inputs[0]
        supports = {V: x.support for V, x in stored.items() if isinstance(x, SparseMatrix)}
        found = [
            Variable(
                V, k, layer, values_of(x), gradient_equation(layer, f"D{V}", executed), path, support=supports.get(V)
            )
            for V, x in stored.items()
        ]
        if not is_part and layer.X is not None and not np.array_equal(layer.X, self.inputs[k]):
            equation = assignment(type(layer), "feedforward", "X")
            found.append(_without_value(k, layer, equation, path, OTHER_INPUT))
        found += [
            Variable(equation.name[1:], k, layer, executed[i][1], equation, path, i)
            for equation, i in values_with_gradients([e for e, _ in executed], stored)
        ]
        return found


def values_with_gradients(executed: Sequence[Equation], stored: Iterable[str]) -> list[tuple[Equation, int]]:
    """The equations DV of the values V of feedforward, each with the index of the equation of V.

    `stored` are inputs and parameters, whose gradients are judged by what is in the layer. An equation that is
    executed more than once, as in a loop, has several values, and is ignored.
    """
    count = Counter((e.file, e.line, e.method) for e in executed)
    once = {e: i for i, e in enumerate(executed) if count[e.file, e.line, e.method] == 1}
    values = {(e.owner, e.name): i for e, i in once.items() if e.method == "feedforward" and e.name != "Y"}
    by_name = {name: i for (_, name), i in values.items()}
    found: dict[tuple[str, str], tuple[Equation, int]] = {}  # of two equations with the same name, the last one counts
    for equation in once:
        V, owner = equation.name[1:], equation.owner
        if equation.method == "backpropagate" and equation.name[0] == "D" and V in by_name and V not in stored:
            found[owner, V] = (equation, values.get((owner, V), by_name[V]))
    return list(found.values())


def gradient_equation(layer: Layer, name: str, executed: Iterable[tuple[Equation, Any]]) -> Equation:
    """The equation that gave the gradient in the layer its value; otherwise the statement that sets the attribute."""
    value = getattr(layer, name, None)
    ran = [e for e, x in executed if (e.method, e.name) == ("backpropagate", name) and x is value]
    return ran[-1] if ran else assignment(type(layer), "backpropagate", name)


def _without_value(k: int, layer: Layer, equation: Equation, path: str, problem: str) -> Variable:
    """What stands for the input of a layer that cannot be checked."""
    return Variable("X", k, layer, np.empty((0, 0)), equation, path, problem=problem)


def drop_gradients(layer: Layer) -> None:
    """Set DX and the gradients of all parameters to None, also in the parts, so that none is left of an earlier run."""
    for _, part in layer.walk():
        for name in ("X", *part.parameters):
            setattr(part, f"D{name}", None)


def did_not_run(layer: Layer, inputs: Sequence[Any]) -> bool:
    """Whether a part was not called, nor has it an input from a call that was not seen."""
    return not inputs and getattr(layer, "X", None) is None


@contextmanager
def inputs_recorded(layers: Iterable[Layer]) -> Iterator[dict[int, list[Any]]]:
    """The inputs with which the feedforward of each layer is called while the context lasts, by the layer's id."""
    found: dict[int, list[Any]] = {}

    def record(layer: Layer, X: Any) -> Any:
        found[id(layer)].append(X)
        return X

    with ExitStack() as stack:
        for layer in layers:
            found[id(layer)] = []
            stack.enter_context(input_changed(layer, partial(record, layer)))
        yield found


def _shifted(A: np.ndarray, element: Element | Direction, delta: float) -> np.ndarray:
    """A with delta added to one element, or delta times a direction to A."""
    if not delta:
        return A
    if isinstance(element, np.ndarray):
        return A + delta * element
    A = A.copy()
    A[element] += delta
    return A


def _batch(name: str, A: Matrix, columns: int) -> np.ndarray:
    """A in float64 on NumPy, with its size checked."""
    A = np.asarray(backend_of(A).to_numpy(A), dtype=np.float64)
    if A.ndim != 2 or A.shape[1] != columns or not len(A):
        raise ValueError(f"{name}: expected size N × {columns}, found {size_text(A)}")
    return A


def _description(A: Any) -> str:
    """What was found in the place of a matrix."""
    return "nothing" if A is None else f"size {size_text(A)}" if np.shape(A) else repr(A)


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
