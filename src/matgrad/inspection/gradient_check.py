"""Numeric gradient check: every gradient of a model against central differences of the mean loss.

>>> results = check_gradients(M, SoftmaxCrossEntropyLoss(), X, T)
>>> print(first_wrong(results))
layer 2 ActivationLayer.DW is wrong at row 3, column 1: found 0.12, central differences give 0.34 (…)
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import Matrix
from matgrad.inspection.equations import Equation, observed
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import check_loss
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support

Element = tuple[int, int]


@dataclass(frozen=True)
class GradientResult:
    """How one gradient compares with central differences; rows and columns count from 0."""

    name: str  # 'layer 2 ActivationLayer.DW', layers count from 1
    equation: Equation
    ok: bool
    relative_error: float  # the largest difference, relative to the largest element
    row: int  # where that is
    column: int
    expected: float  # what central differences give there
    found: float
    checked: int  # the number of elements compared
    skipped: int  # at corners, where there is no derivative
    problem: str = ""  # why the gradient could not be compared at all

    def __str__(self) -> str:
        where = f"({self.equation.location}: {self.equation.source})"
        if self.problem:
            return f"{self.name} is wrong: {self.problem} {where}"
        if self.ok:
            skipped = f", {self.skipped} at corners skipped" if self.skipped else ""
            checked = f"{self.checked} elements checked{skipped}"
            return f"{self.name} is right: {checked}, relative error {self.relative_error:.1e}"
        return (
            f"{self.name} is wrong at row {self.row}, column {self.column}: "
            f"found {self.found:.6g}, central differences give {self.expected:.6g} {where}"
        )


def check_gradients(
    M: MultilayerPerceptron | Layer,
    loss: LossFunction | str,
    X: Matrix,
    T: Matrix,
    *,
    h: float = 1e-5,
    tolerance: float = 1e-5,
    max_elements: int = 20,
    seed: int = 0,
) -> list[GradientResult]:
    """Compare ∂ℒ/∂V with (ℒ(V + h) - ℒ(V - h)) / 2h in float64, for all V, in order of backpropagation.

    ℒ is the mean loss of the batch X with targets T. V is first the output, for the gradient of the
    loss, and then for the layers from last to first all that has an equation ``DV = …``: values of
    feedforward, parameters, and the input. h is relative to the size of an element. Of a matrix at
    most `max_elements` are compared: those with the largest gradient, and others at random. Elements
    at a corner of a piecewise function are skipped, unless DV is wrong on both sides of it. Of a sparse
    parameter only stored elements are compared. M keeps its mode, and it is not changed.
    """
    layers = M.layers if isinstance(M, MultilayerPerceptron) else [M]
    loss = create_loss(loss) if isinstance(loss, str) else loss
    check_loss(MultilayerPerceptron(layers), loss)
    with np.errstate(all="ignore"):
        model = _Model(layers, loss, X, T)
        with observed(model.layers, model.observe):
            return [_check(model, V, h, tolerance, max_elements, seed) for V in model.variables()]


def first_wrong(results: Iterable[GradientResult]) -> GradientResult | None:
    """The wrong result that comes first in order of backpropagation, which is the cause of the others."""
    return next((result for result in results if not result.ok), None)


# -- a model that can be changed in one element ------------------------------------------------


@dataclass(frozen=True)
class _Variable:
    """A matrix V that the loss depends on: the input of a layer or of the loss, a parameter, or a value."""

    name: str
    layer: int  # from 0; the loss comes after the last one
    value: np.ndarray
    equation: Equation  # of DV
    position: int | None = None  # for a value: which of the equations of feedforward it is
    support: Support | None = None  # for a sparse parameter, whose `value` has the stored elements in one row

    def place(self, element: Element) -> Element:
        """Row and column of an element of `value` in V itself."""
        S, k = self.support, element[1]
        return element if S is None else (int(S.row_indices()[k]), int(S.columns[k]))


class _Model:
    """A copy of the layers in float64 on NumPy, with a loss and a batch."""

    def __init__(self, layers: list[Layer], loss: LossFunction, X: Matrix, T: Matrix) -> None:
        self.layers = [layer.clone() for layer in layers]
        for layer in self.layers:
            layer.to(get_backend("numpy"), "float64")
        self.buffers = [{name: getattr(layer, name) for name in layer.buffers} for layer in self.layers]
        self.loss = loss
        self.inputs = [_batch("X", X, layers[0].input_size)]
        self.T = _batch("T", T, layers[-1].output_size)
        if len(self.T) != len(self.inputs[0]):
            raise ValueError(f"X has {len(self.inputs[0])} rows and T has {len(self.T)}: expected equal numbers")
        self.trace: list[tuple[Layer, Equation, Any]] = []
        self.change: tuple[Layer, int, Element, float] | None = None

    def observe(self, layer: Layer, equation: Equation, value: Any) -> Any:
        """The value of an equation, with one element changed where that is due; it is noted in `trace`."""
        if self.change is not None and self.change[0] is layer:
            _, position, element, delta = self.change
            if len(self.executed(layer)) == position:
                value = _shifted(value, element, delta)
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
    def shifted(self, V: _Variable, element: Element, delta: float) -> Iterator[np.ndarray]:
        """The output, with delta added to one element of V."""
        self.trace.clear()
        X, layers, parameter = self.inputs[V.layer], self.layers[V.layer :], None
        if V.position is not None:
            self.change = (layers[0], V.position, element, delta)
        elif V.name == "X" or not layers:
            X = _shifted(X, element, delta)
        else:
            parameter = getattr(layers[0], V.name)
            setattr(layers[0], V.name, with_values(parameter, _shifted(V.value, element, delta)))
        try:
            for layer, buffers in zip(layers, self.buffers[V.layer :], strict=True):
                for name, value in buffers.items():  # all runs start with the same
                    setattr(layer, name, copy.copy(value))
                X = layer.feedforward(X)
            yield X
        finally:
            self.change = None
            if parameter is not None:
                setattr(layers[0], V.name, parameter)

    def loss_at(self, V: _Variable, element: Element, delta: float) -> float:
        """ℒ with delta added to one element of V."""
        with self.shifted(V, element, delta) as Y:
            return self.mean_loss(Y)

    def gradient(self, V: _Variable, element: Element = (0, 0), delta: float = 0.0) -> Any:
        """DV by backpropagation, with delta added to one element of V."""
        layers = self.layers[V.layer :]
        with self.shifted(V, element, delta) as Y:
            DY = self.loss.mean_gradient(Y, self.T)
            MultilayerPerceptron(layers).backpropagate(Y, DY)
        if not layers:
            return DY
        if V.position is None:
            return values_of(getattr(layers[0], f"D{V.name}"))
        return [value for equation, value in self.executed(layers[0]) if equation == V.equation][-1]

    def variables(self) -> list[_Variable]:
        """All V to check, in order of backpropagation."""
        for layer in self.layers:
            self.inputs.append(layer.feedforward(self.inputs[-1]))
        Y = self.inputs[-1]
        if not np.isfinite(self.mean_loss(Y)):
            raise ValueError(f"the loss of this batch is {self.mean_loss(Y)}: expected a finite number")
        MultilayerPerceptron(self.layers).backpropagate(Y, self.loss.mean_gradient(Y, self.T))
        found = [_Variable("Y", len(self.layers), Y, _place(self.loss, "gradient", "gradient"))]
        for k in reversed(range(len(self.layers))):
            found += self._variables_of(k)
        return found

    def _variables_of(self, k: int) -> list[_Variable]:
        """The V of layer k: what has an equation DV, and all parameters and the input."""
        layer = self.layers[k]
        executed = self.executed(layer)
        values = {(e.owner, e.name): i for i, (e, _) in enumerate(executed) if e.method == "feedforward"}
        stored = {name: getattr(layer, name) for name in layer.parameters} | {"X": self.inputs[k]}
        supports = {V: x.support for V, x in stored.items() if isinstance(x, SparseMatrix)}

        def variable(V: str, equation: Equation) -> _Variable:
            return _Variable(V, k, values_of(stored[V]), equation, support=supports.get(V))

        found: dict[Any, _Variable] = {}  # where an equation is executed twice, the last one counts
        for equation, _ in executed:
            V, owner = equation.name[1:], equation.owner
            if equation.method != "backpropagate" or equation.name[0] != "D":
                continue
            if V in stored:
                found.pop(V, None)
                found[V] = variable(V, equation)
            elif V != "Y" and V in {name for _, name in values}:  # DY is given
                i = values.get((owner, V), max(i for (_, name), i in values.items() if name == V))
                found.pop((owner, V), None)
                found[owner, V] = _Variable(V, k, executed[i][1], equation, i)
        for V in stored:
            if V not in found:
                found[V] = variable(V, _place(layer, "backpropagate", f"D{V}"))
        return list(found.values())


# -- comparing ---------------------------------------------------------------------------------


class _Verdict(NamedTuple):
    """What is found out about one element of DV."""

    kind: str  # 'right', 'wrong' or 'corner'
    error: float
    expected: float
    found: float
    element: Element


def _check(model: _Model, V: _Variable, h: float, tolerance: float, count: int, seed: int) -> GradientResult:
    """DV against central differences, for a sample of its elements."""
    DV = model.gradient(V)
    name = f"layer {V.layer + 1} {V.equation}" if V.layer < len(model.layers) else str(V.equation)
    if np.shape(DV) != V.value.shape:
        found = "nothing" if DV is None else f"size {_size(DV)}"
        problem = f"found {found}, expected size {_size(V.value)}"
        return GradientResult(name, V.equation, False, np.inf, 0, 0, np.nan, np.nan, 0, 0, problem)
    scale = float(np.max(np.abs(DV), where=np.isfinite(DV), initial=0.0))
    comparison = _Comparison(model, V, h, tolerance, scale)
    verdicts = [comparison.judge(element, float(DV[element])) for element in _sample(DV, count, seed)]
    compared = [verdict for verdict in verdicts if verdict.kind != "corner"]
    none = _Verdict("right", 0.0, np.nan, np.nan, (0, 0))
    worst = max(compared, key=lambda verdict: (verdict.kind == "wrong", verdict.error), default=none)
    counts = len(compared), len(verdicts) - len(compared)
    ok = worst.kind == "right"
    place = V.place(worst.element)
    return GradientResult(name, V.equation, ok, worst.error, *place, worst.expected, worst.found, *counts)


class _Comparison:
    """Elements of DV against central differences; an error is relative to `scale`, the largest |DV|."""

    def __init__(self, model: _Model, V: _Variable, h: float, tolerance: float, scale: float) -> None:
        self.model, self.V, self.h, self.tolerance, self.scale = model, V, h, tolerance, scale
        self.typical = float(np.abs(V.value).mean())
        self.loss = model.loss_at(V, (0, 0), 0.0)

    def judge(self, element: Element, d: float) -> _Verdict:
        """Whether the element d of DV is right."""
        v = abs(float(self.V.value[element]))
        step = self.h * (max(v, self.typical) or 1.0)
        verdict = self.compare(element, d, step)
        if verdict.kind == "corner":  # or one nearby, or a singularity such as log 0: take a smaller step
            closer = self.compare(element, d, min(step / 100, self.h * v or step))
            verdict = closer if closer.kind == "right" else verdict
        if verdict.kind == "right" or not np.isfinite(d):
            return verdict
        # the equation must hold beside a corner; corners can cancel, as those of relu(x) - relu(-x) at 0
        count = 0
        for aside in (100 * step, -70 * step):
            moved = float(self.model.gradient(self.V, element, aside)[element])
            beside = self.compare(element, moved, step, aside).kind
            if beside == "right":
                return verdict._replace(kind="corner")
            count += beside == "wrong"
        is_wrong = count >= (1 if verdict.kind == "wrong" else 2)
        return verdict._replace(kind="wrong" if is_wrong else "corner")

    def compare(self, element: Element, d: float, step: float, aside: float = 0.0) -> _Verdict:
        """The same for one step size, from the differences to the left and to the right."""
        middle = self.model.loss_at(self.V, element, aside) if aside else self.loss
        right = (self.model.loss_at(self.V, element, aside + step) - middle) / step
        left = (middle - self.model.loss_at(self.V, element, aside - step)) / step
        expected = (left + right) / 2
        noise = 50 * np.finfo(np.float64).eps * abs(middle) / step  # the rounding of ℒ, divided by the step
        difference = abs(d - expected)
        error = difference / max(self.scale, abs(expected), noise / self.tolerance, np.finfo(np.float64).tiny)
        kind = "right" if error <= self.tolerance else "wrong"
        if kind == "wrong" and np.isfinite(d) and not difference > 5 * abs(right - left):
            kind = "corner"  # the differences disagree, or one of them is not finite
        return _Verdict(kind, float(error) if np.isfinite(error) else np.inf, float(expected), d, element)


def _sample(DV: np.ndarray, count: int, seed: int) -> list[Element]:
    """At most `count` elements: half of them those with the largest |DV|, the others at random."""
    order = np.random.default_rng(seed).permutation(DV.size)
    if DV.size > count:
        largest = np.argsort(-np.abs(DV), axis=None, kind="stable")[: count // 2]
        order = np.concatenate([largest, order[~np.isin(order, largest)]])[:count]
    return [divmod(int(position), DV.shape[1]) for position in order]


def _shifted(A: np.ndarray, element: Element, delta: float) -> np.ndarray:
    """A with delta added to one element."""
    if not delta:
        return A
    A = A.copy()
    A[element] += delta
    return A


def _batch(name: str, A: Matrix, columns: int) -> np.ndarray:
    """A in float64 on NumPy, after a check of its size."""
    A = np.asarray(backend_of(A).to_numpy(A), dtype=np.float64)
    if A.ndim != 2 or A.shape[1] != columns or not len(A):
        raise ValueError(f"{name}: expected size N × {columns}, found {_size(A)}")
    return A


def _size(A: Any) -> str:
    return " × ".join(map(str, np.shape(A)))


def _place(thing: Any, method: str, name: str) -> Equation:
    """Where a method returns, or begins: the place of a gradient that has no equation of its own."""
    function = getattr(type(thing), method)
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "?"
    except (OSError, TypeError):
        lines, first, file = [f"{method}(…)"], 0, "?"
    i = max((i for i, line in enumerate(lines) if line.strip().startswith("return ")), default=0)
    return Equation(type(thing).__name__, method, name, first + i, file, lines[i].strip())
