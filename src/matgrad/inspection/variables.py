"""The matrices that a loss depends on: which there are, the equations of their gradients, and changing one of them.

A variable V is a parameter of a layer or of a part of it, its input X, or the value of an equation of feedforward that
has an equation ``DV = …`` in backpropagate.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import Array
from matgrad.inspection.equations import Equation, assignment
from matgrad.inspection.observing import observed, replaced
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction, target_size
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import values_of, with_values

OTHER_INPUT = "self.X is not the input of feedforward, which backpropagation hands on to the layer before"


@dataclass(frozen=True)
class Variable:
    """A matrix V of a layer or part, with the equation of its gradient DV."""

    path: str  # of the layer or part, such as '3.1'
    name: str
    value: Any
    equation: Equation  # of DV
    position: int | None = None  # of a value: the index of its equation among those that the part executed
    problem: str = ""  # why DV cannot be right


class Watch:
    """The inputs and the executed equations of layers and their parts, by path, where one variable can be changed."""

    def __init__(self, parts: Mapping[str, Layer]) -> None:
        self.parts = parts
        self.change: tuple[Variable, Callable[[Array], Array]] | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the runs until now."""
        self.trace: list[tuple[str, Equation, Any]] = []  # the path, the equation and its value, in order
        self.inputs: dict[str, list[Any]] = {path: [] for path in self.parts}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Collect inputs and equations while the context lasts."""
        paths = {id(part): path for path, part in self.parts.items()}

        def keep(part: Layer, equation: Equation, value: Any) -> Any:
            path = paths[id(part)]
            value = self._changed(path, len(self.executed(path)), value)
            self.trace.append((path, equation, value))
            return value

        def keep_input(path: str, X: Any) -> Any:
            self.inputs[path].append(self._changed(path, None, X))
            return self.inputs[path][-1]

        with ExitStack() as stack:
            stack.enter_context(observed(self.parts.values(), keep))
            for path, part in self.parts.items():
                stack.enter_context(input_changed(part, partial(keep_input, path)))
            yield

    def _changed(self, path: str, position: int | None, value: Any) -> Any:
        """The value, changed if it is that of the variable to change."""
        V, change = self.change or (None, None)
        is_it = V and (V.path, V.position) == (path, position) and (position is not None or V.name == "X")
        return change(value) if change and is_it else value

    @contextmanager
    def changed(self, V: Variable, change: Callable[[Array], Array]) -> Iterator[None]:
        """V is replaced by change(V) while the context lasts; of a sparse parameter, the values are changed."""
        part, is_parameter = self.parts[V.path], V.position is None and V.name != "X"
        if is_parameter:
            setattr(part, V.name, with_values(V.value, change(values_of(V.value))))
        self.change = V, change
        try:
            yield
        finally:
            self.change = None
            if is_parameter:
                setattr(part, V.name, V.value)

    # -- after a run --------------------------------------------------------------------------
    def executed(self, path: str) -> list[tuple[Equation, Any]]:
        """The equations that a layer or part executed, with their values."""
        return [(equation, value) for other, equation, value in self.trace if other == path]

    def gradient(self, V: Variable) -> Any:
        """DV: of a parameter or an input what is in the layer, however it was set; of a value that of the equation."""
        if V.position is None:
            return getattr(self.parts[V.path], f"D{V.name}", None)
        return [value for equation, value in self.executed(V.path) if equation == V.equation][-1]

    def variables(self, path: str, is_same: Callable[[Any, Any], bool]) -> list[Variable]:
        """The variables of a layer and its parts, in order of backpropagation; `is_same` compares two inputs."""
        layer = self.parts[path]
        found = [V for name, _ in layer.walk(path) for V in self._variables_of(name, layer)]
        if layer.X is not None and not is_same(layer.X, self.inputs[path][0]):
            found.append(Variable(path, "X", None, assignment(type(layer), "feedforward", "X"), problem=OTHER_INPUT))
        return sorted(found, key=self._when_computed)

    def _variables_of(self, path: str, layer: Layer) -> list[Variable]:
        """The variables of one part of a layer.

        If the layer runs a part more than once, the part has several inputs: its parameters alone are variables.
        """
        part, executed, inputs = self.parts[path], self.executed(path), self.inputs[path]
        if not inputs and getattr(part, "X", None) is None:  # nor has it an input from a call that was not seen
            problem = f"{type(layer).__name__} does not run this part"
            return [Variable(path, "Y", None, assignment(type(part), "feedforward", "Y"), problem=problem)]
        stored = {name: getattr(part, name) for name in part.parameters}
        if len(inputs) == 1 and part.input != "labels":  # which have no derivatives
            stored["X"] = inputs[0]
        found = [Variable(path, V, x, self._gradient_equation(path, f"D{V}")) for V, x in stored.items()]
        for equation, i in _values_with_gradients([e for e, _ in executed]):
            if equation.name[1:] not in (*stored, "X"):
                found.append(Variable(path, equation.name[1:], executed[i][1], equation, i))
        return found

    def _gradient_equation(self, path: str, name: str) -> Equation:
        """The equation that gave the gradient in the layer its value; otherwise the statement that sets it."""
        value = getattr(self.parts[path], name, None)
        ran = [e for e, x in self.executed(path) if (e.method, e.name) == ("backpropagate", name) and x is value]
        return ran[-1] if ran else assignment(type(self.parts[path]), "backpropagate", name)

    def _when_computed(self, V: Variable) -> int:
        """The index of the equation of DV, or of another one with its name, in `trace`."""
        run = [(path, e.name, e == V.equation, i) for i, (path, e, _) in enumerate(self.trace)]
        own = [x[2:] for x in run if x[:2] == (V.path, V.equation.name)]
        return max(own, default=(False, len(self.trace)))[1]


def _values_with_gradients(executed: Sequence[Equation]) -> list[tuple[Equation, int]]:
    """The equations DV of the values V of feedforward, each with the index of the equation of V.

    An equation that is executed more than once, as in a loop, has several values, and is ignored.
    """
    count = Counter((e.file, e.line, e.method) for e in executed)
    once = {e: i for i, e in enumerate(executed) if count[e.file, e.line, e.method] == 1}
    values = {(e.owner, e.name): i for e, i in once.items() if e.method == "feedforward" and e.name != "Y"}
    by_name = {name: i for (_, name), i in values.items()}
    gradients = [e for e in once if e.method == "backpropagate" and e.name[0] == "D" and e.name[1:] in by_name]
    last = {(e.owner, e.name[1:]): e for e in gradients}  # of two equations with the same name, the last one counts
    return [(e, values.get(V, by_name[V[1]])) for V, e in last.items()]


def drop_gradients(layer: Layer) -> None:
    """Set DX and the gradients of all parameters to None, also in the parts."""
    for _, part in layer.walk():
        for name in ("X", *part.parameters):
            setattr(part, f"D{name}", None)


def input_changed(layer: Layer, change: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """The feedforward of one layer gets change(X) instead of X while the context lasts."""
    return replaced(layer, "feedforward", lambda feedforward, X: feedforward(change(X)))


class NumericModel:
    """A copy of a model in float64 on NumPy, with a loss and a batch, in which one variable can be shifted."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, X: Array, T: Array) -> None:
        M = M.clone()
        for layer in M.layers:  # which may have no parameters, so that M cannot be moved
            layer.to(get_backend("numpy"), "float64")
        self.layers, self.loss, self.watch = M.layers, loss, Watch(dict(M.walk()))
        self.buffers = [(x, name, copy.copy(getattr(x, name))) for x in self.watch.parts.values() for name in x.buffers]
        self.inputs = [_batch("X", X, self.layers[0].input_size)]  # of the layers, and of the loss
        self.T = _batch("T", T, target_size(M, loss))
        if len(self.T) != len(self.inputs[0]):
            raise ValueError(f"X has {len(self.inputs[0])} rows and T has {len(self.T)}: expected equal numbers")

    def variables(self) -> list[Variable]:
        """All V to check, in order of backpropagation, after a first run; the first V is the output."""
        for layer in self.layers:
            self.inputs.append(self._feedforward(layer, self.inputs[-1]))
        Y = self.inputs[-1]
        value, DY = self.mean_loss(Y), self.loss.mean_gradient(Y, self.T)
        if not np.isfinite(value):
            raise ValueError(f"the loss of this batch is {value}: expected a finite number")
        lowest = self._backpropagate(Y, DY, 0) if np.shape(DY) == Y.shape else len(self.layers)
        found = [Variable("", "Y", Y, assignment(type(self.loss), "gradient", "gradient"))]
        for k in reversed(range(lowest, len(self.layers))):
            found += self.watch.variables(str(k + 1), np.array_equal)
        # in evaluation mode a part may have nothing to do
        return [V for V in found if not V.problem or self.watch.parts[V.path].training]

    def loss_at(self, V: Variable, R: np.ndarray) -> float:
        """ℒ with V + R in place of V."""
        with self._shifted(V, R) as Y:
            return self.mean_loss(Y)

    def gradient(self, V: Variable, R: np.ndarray) -> Any:
        """DV by backpropagation, with V + R in place of V."""
        with self._shifted(V, R) as Y:
            DY = self.loss.mean_gradient(Y, self.T)
            self._backpropagate(Y, DY, self._layer_of(V))
        return values_of(self.watch.gradient(V)) if V.path else DY

    def mean_loss(self, Y: np.ndarray) -> float:
        """ℒ, the mean loss of the batch."""
        value = float(self.loss(Y, self.T))
        return value if self.loss.is_mean else value / len(Y)

    def _layer_of(self, V: Variable) -> int:
        """The index of the layer of V; the loss comes after the last one."""
        return int(V.path.partition(".")[0]) - 1 if V.path else len(self.layers)

    @contextmanager
    def _shifted(self, V: Variable, R: np.ndarray) -> Iterator[np.ndarray]:
        """The output with V + R in place of V; all runs start with the same buffers."""
        if not V.path:
            yield V.value + R
            return
        self.watch.clear()
        for part, name, value in self.buffers:
            setattr(part, name, copy.copy(value))
        k = self._layer_of(V)
        X = self.inputs[k]
        with self.watch.changed(V, lambda A: A + R):
            for layer in self.layers[k:]:
                X = self._feedforward(layer, X)
            yield X

    def _feedforward(self, layer: Layer, X: np.ndarray) -> np.ndarray:
        """The output of one layer, after a check that it is a matrix of the right size."""
        Y: Any = layer.feedforward(X)
        if np.shape(Y) != (len(X), layer.output_size):
            where = assignment(type(layer), "feedforward", "Y")
            found = "nothing" if Y is None else f"size {size_text(Y)}" if np.shape(Y) else repr(Y)
            expected = f"a matrix of size {len(X)} × {layer.output_size}"
            raise ValueError(f"{where}: expected {expected}, found {found} ({where.location}: {where.source})")
        return Y

    def _backpropagate(self, Y: Any, DY: Any, first: int) -> int:
        """Backpropagation from the last layer down to the first, or to one whose DX is no gradient of its input.

        Returns the number of the layer where it ends.
        """
        for k in reversed(range(first, len(self.layers))):
            layer = self.layers[k]
            drop_gradients(layer)
            layer.backpropagate(Y, DY)
            Y, DY = layer.X, layer.DX
            if np.shape(DY) != self.inputs[k].shape:
                return k
        return first


def _batch(name: str, A: Array, columns: int) -> np.ndarray:
    """A in float64 on NumPy, with its size checked."""
    A = np.asarray(backend_of(A).to_numpy(A), dtype=np.float64)
    if A.ndim != 2 or A.shape[1] != columns or not len(A):
        raise ValueError(f"{name}: expected size N × {columns}, found {size_text(A)}")
    return A


def size_text(A: Any) -> str:
    """The size of a matrix, such as ``3 × 4``."""
    return " × ".join(map(str, np.shape(A)))
