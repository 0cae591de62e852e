"""Numeric gradient check: every gradient of a model against central differences of the mean loss.

>>> results = check_gradients(M, SoftmaxCrossEntropyLoss(), X, T)
>>> print(first_wrong(results))
layer 2 ActivationLayer.DW is wrong at row 3, column 1: found 0.12, central differences give 0.34 (…)

The check has teeth, or says that it has none: an element counts as right only if a gradient that is off by
`TEETH` times the tolerance would have been called wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import Array
from matgrad.foundation.callers import is_builtin
from matgrad.inspection.equations import Equation, assignment
from matgrad.inspection.variables import NumericModel, Variable, size_text
from matgrad.inspection.verdicts import naming_faults
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction, check_loss, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.naming import full_name
from matgrad.sparse.matrix import SparseMatrix, values_of

Element = tuple[int, int]  # a row and a column
STEPS = (1e-8, 1e-2)  # smaller differences are lost in rounding, and larger ones are no derivatives
TEETH = 100  # how many times the tolerance a wrong gradient is off, at least
ALONG = 1e-4  # how far the derivative along a direction may be off, relative to the gradient
ROUNDING = 1e-12  # a gradient below this part of ℒ/V is 0 up to rounding


@dataclass(frozen=True)
class GradientResult:
    """How one gradient compares with central differences; row and column count from 0, in its text from 1."""

    name: str  # 'layer 2 ActivationLayer.DW', counted from 1; 'layer 3.1 LinearLayer.DW' for a part of a layer
    equation: Equation
    ok: bool
    relative_error: float = np.inf  # the largest difference, relative to the largest element
    row: int = 0  # of that difference
    column: int = 0
    expected: float = np.nan  # by central differences
    found: float = np.nan
    checked: int = 0  # the number of elements compared
    skipped: int = 0  # the number at corners, where there is no derivative
    problem: str = ""  # why the gradient could not be compared at all
    hidden: int = 0  # the number of compared elements where a wrong gradient would not be noticed

    @property
    def tells(self) -> bool:
        """Whether a wrong gradient would have been noticed; if not, that it is not wrong means nothing."""
        return not self.ok or self.checked > self.hidden

    @property
    def fault(self) -> str:
        """What is wrong; '' if nothing is."""
        if self.ok:
            return ""
        if self.problem:
            return f"{self.name} is wrong: {self.problem}"
        return (
            f"{self.name} is wrong at row {self.row + 1}, column {self.column + 1}: "
            f"found {self.found:.6g}, central differences give {self.expected:.6g}"
        )

    def __str__(self) -> str:
        where = f"({self.equation.location}: {self.equation.source})"
        if not self.ok:
            return f"{self.fault} {where}"
        skipped = f", {self.skipped} at corners skipped" if self.skipped else ""
        if not self.tells:
            hidden = f"of {self.hidden} elements a wrong one would not be noticed{skipped}"
            return f"{self.name} cannot be judged: {hidden} {where}"
        checked = f"{self.checked} elements checked{skipped}"
        return f"{self.name} is right: {checked}, relative error {self.relative_error:.1e}"


def check_gradients(
    M: MultilayerPerceptron | Layer,
    loss: LossFunction | str,
    X: Array,
    T: Array,
    *,
    h: float = 1e-5,
    tolerance: float = 1e-5,
    max_elements: int = 20,
    seed: int = 0,
) -> list[GradientResult]:
    """Compare ∂ℒ/∂V with (ℒ(V + h) - ℒ(V - h)) / 2h in float64, for all V, in order of backpropagation.

    ℒ is the mean loss of the batch X with targets T. V is first the output, for the gradient of the
    loss, then, for the layers from last to first and their parts, everything that has an equation ``DV = …``:
    values of feedforward, parameters, and the input. The gradients of parameters and inputs are those that are in
    the layers afterwards, however they were set. h is relative to the size of an element. At most
    `max_elements` elements of a matrix are compared: those with the largest gradients, and others at random. All others
    are compared together, along random directions; if these are wrong, a wrong element is found and named.
    Elements at a corner of a piecewise function are skipped, unless DV is wrong on both sides of it. Only the
    stored elements of a sparse parameter are compared. M is checked in its present mode, and not changed.
    """
    check_step(h)
    M = M if isinstance(M, MultilayerPerceptron) else MultilayerPerceptron([M])
    M.check_layers()
    loss = create_loss(loss) if isinstance(loss, str) else loss
    check_loss(M, loss)
    model = NumericModel(M, loss, X, T)
    with np.errstate(all="ignore"), naming_faults(), model.watch.watching():
        return [result for V in model.variables() for result in _results_of(V, model, h, tolerance, max_elements, seed)]


def check_step(h: float) -> float:
    """The size of the differences, after a check that they can tell a right gradient from a wrong one."""
    low, high = STEPS
    if not low <= h <= high:
        raise ValueError(
            f"gradient step: expected a number from {low:g} to {high:g}, found {h:g}; "
            "smaller differences are lost in rounding, and larger ones are no derivatives"
        )
    return h


def first_wrong(results: Iterable[GradientResult]) -> GradientResult | None:
    """The first wrong result in order of backpropagation, which is usually the cause of the others."""
    return next((result for result in results if not result.ok), None)


# -- comparing ---------------------------------------------------------------------------------


def _results_of(
    V: Variable, model: NumericModel, h: float, tolerance: float, max_elements: int, seed: int
) -> Iterator[GradientResult]:
    """DV against central differences, for a sample of its elements; before it a wrong activation function in it."""
    name = f"layer {V.path} {V.equation}" if V.path else str(V.equation)
    values = values_of(V.value)
    DV: Any = None if V.problem else model.gradient(V, np.zeros(np.shape(values)))
    if problem := V.problem or _problem(DV, values):
        yield GradientResult(name, V.equation, False, problem=problem)
        return
    comparison = _Comparison(model, V, DV, h, tolerance)
    sample = _sample(DV, max_elements, seed)
    if len(sample) < DV.size and (other := comparison.wrong_element(seed)) is not None:
        sample.append(other)
    compared = [verdict for verdict in map(comparison.judge, sample) if verdict.kind != "corner"]
    none = _Verdict("right", 0.0, np.nan, np.nan, (0, 0))
    worst = max(compared, key=lambda verdict: (verdict.kind == "wrong", verdict.error), default=none)
    row, column = worst.element
    if isinstance(V.value, SparseMatrix):
        row, column = int(V.value.support.row_indices()[column]), int(V.value.support.columns[column])
    ok = worst.kind == "right"
    if not ok and V.position is not None:  # then an activation function may be the cause
        for act in vars(model.watch.parts[V.path]).values():
            if callable(act) and hasattr(act, "gradient"):
                yield from _wrong_activation(act, V)
    values = worst.error, row, column, worst.expected, worst.found, len(compared), len(sample) - len(compared)
    yield GradientResult(name, V.equation, ok, *values, hidden=sum(not verdict.tells for verdict in compared))


def _problem(DV: Any, V: np.ndarray) -> str:
    """Why DV cannot be the gradient of V, for any values; '' if it can."""
    if isinstance(DV, np.ndarray) and DV.shape == V.shape and DV.dtype != object:
        return ""
    of_size = "no numbers" if np.shape(DV) == V.shape else f"size {size_text(DV)}"
    found = "nothing" if DV is None else of_size if isinstance(DV, np.ndarray) else repr(DV)
    return f"found {found}, expected size {size_text(V)}"


def _wrong_activation(act: ActivationFunction, V: Variable) -> Iterator[GradientResult]:
    """act'(V) against central differences of act, where these agree on both sides, if they differ."""
    X, h = V.value, 1e-6 * np.maximum(np.abs(V.value), 1)
    right, left = (act(X + h) - act(X)) / h, (act(X) - act(X - h)) / h
    found, expected = np.asarray(act.gradient(X)), (left + right) / 2
    name, equation = full_name(V.path, act, "gradient"), assignment(type(act), "gradient", "gradient")
    if problem := _problem(found, X):
        yield GradientResult(name, equation, False, problem=problem)
        return
    size = np.maximum(1, np.abs(expected))
    error = np.where(np.abs(right - left) <= 1e-3 * size, np.abs(found - expected) / size, 0.0)
    i, j = divmod(int(np.argmax(error)), X.shape[1])
    if error[i, j] > 1e-4:
        values = float(error[i, j]), i, j, float(expected[i, j]), float(found[i, j])
        yield GradientResult(name, equation, False, *values, X.size)


class _Verdict(NamedTuple):
    """What was found about one element of DV."""

    kind: str  # 'right', 'wrong' or 'corner'
    error: float
    expected: float
    found: float
    element: Element
    tells: bool = True  # whether a gradient that is off would not have been called right


class _Comparison:
    """Elements of DV against central differences; an error is relative to `scale`, the largest |DV|."""

    def __init__(self, model: NumericModel, V: Variable, DV: np.ndarray, h: float, tolerance: float) -> None:
        self.model, self.V, self.DV, self.h, self.tolerance = model, V, DV, h, tolerance
        self.scale = float(np.max(np.abs(DV), where=np.isfinite(DV), initial=0.0))
        self.values = values_of(V.value)
        self.typical = float(np.abs(self.values).mean()) or 1.0
        self.loss = model.mean_loss(model.inputs[-1])
        # what the rounding error of ℒ is proportional to besides ℒ: the largest |Y| and, with logarithms, 1
        has_logarithms = model.loss.has_probabilities or not is_builtin(model.loss)
        self.rounding = max(float(np.abs(model.inputs[-1]).max(initial=0.0)), float(has_logarithms))

    def judge(self, element: Element) -> _Verdict:
        """Whether an element of DV is right."""
        d, v = float(self.DV[element]), abs(float(self.values[element]))
        h = self.h * max(v, self.typical)
        verdict = self.compare(element, d, h)
        if verdict.kind == "corner":  # perhaps only one nearby, or a singularity such as log 0: try a smaller h
            closer = self.compare(element, d, min(h / 100, self.h * v or h))
            verdict = closer if closer.kind == "right" else verdict
        if verdict.kind == "right" or not np.isfinite(d):
            return verdict
        # the equation must hold beside a corner; corners can cancel, such as those of relu(x) - relu(-x) at 0
        sides = []
        for offset in (100 * h, -70 * h):
            beside = float(self.model.gradient(self.V, self._shift(element, offset))[element])
            sides.append(self.compare(element, beside, h, offset).kind)
        is_wrong = "right" not in sides and sides.count("wrong") >= (1 if verdict.kind == "wrong" else 2)
        return verdict._replace(kind="wrong" if is_wrong else "corner")

    def compare(self, element: Element, d: float, h: float, offset: float = 0.0) -> _Verdict:
        """Whether d is right at the given offset, by the differences to the left and to the right for one h."""
        places = [self._shift(element, delta) if delta else None for delta in (offset - h, offset, offset + h)]
        before, middle, after = (self.loss if R is None else self.model.loss_at(self.V, R) for R in places)
        left, right, noise = (middle - before) / h, (after - middle) / h, self._noise(middle, h)
        kind, error = self._kind(d, left, right, noise)
        expected = (left + right) / 2
        verdict = _Verdict(kind, float(error) if np.isfinite(error) else np.inf, float(expected), d, element)
        if kind != "right":
            return verdict
        natural = abs(middle) * self.h / h  # ℒ/V
        unit = natural if self.scale <= ROUNDING * natural else max(self.scale, abs(expected))
        off = TEETH * self.tolerance * unit
        return verdict._replace(tells=self._kind(d + off, left, right, noise)[0] == "wrong")

    def _kind(self, d: float, left: float, right: float, noise: float) -> tuple[str, float]:
        """Whether d is right by the two differences, and its error."""
        expected = (left + right) / 2
        difference = abs(d - expected)
        error = difference / max(self.scale, abs(expected), noise / self.tolerance, np.finfo(np.float64).tiny)
        if error <= self.tolerance:
            return "right", error
        if np.isfinite(d) and not difference > 5 * abs(right - left):
            return "corner", error  # both differences disagree, or one of them is not finite
        return "wrong", error

    def _shift(self, element: Element, delta: float) -> np.ndarray:
        """A matrix that is delta at one element, else 0."""
        R = np.zeros(self.DV.shape)
        R[element] = delta
        return R

    def _noise(self, loss: float, h: float) -> float:
        """The rounding error of ℒ, divided by h."""
        return 50 * np.finfo(np.float64).eps * max(abs(loss), self.rounding) / h

    def wrong_element(self, seed: int) -> Element | None:
        """An element of DV that is wrong, if DV times a direction is not the derivative along it; else None.

        All elements count for it. Where it differs, halves of the elements are tried until one element is left.
        """
        rng, chosen = np.random.default_rng(seed), np.arange(self.DV.size)
        signs, *others = (rng.choice([-1.0, 1.0], size=self.DV.shape) for _ in range(3))
        if not all(self._differs(x, chosen) for x in (signs, *others)):
            return None  # a corner may be in the way of a right DV, but along no direction is a wrong one right
        while len(chosen) > 1:
            first, second = np.array_split(chosen, 2)
            chosen = first if self._differs(signs, first) else second
        return divmod(int(chosen[0]), self.DV.shape[1])

    def _differs(self, signs: np.ndarray, chosen: np.ndarray) -> bool:
        """Whether ⟨DV, R⟩ is not (ℒ(V + hR) - ℒ(V - hR)) / 2h, where R has the signs at the chosen elements, else 0."""
        R = np.zeros_like(self.DV)
        R.flat[chosen] = signs.flat[chosen]
        h = self.h * self.typical
        right, left = (self.model.loss_at(self.V, delta * R) for delta in (h, -h))
        error = abs(float((self.DV * R).sum()) - (right - left) / (2 * h))
        return not error <= ALONG * float(np.linalg.norm(self.DV * R)) + self._noise(self.loss, h)


def _sample(DV: np.ndarray, count: int, seed: int) -> list[Element]:
    """At most `count` elements: those with the largest |DV| for one half, random ones for the other."""
    order = np.random.default_rng(seed).permutation(DV.size)
    if DV.size > count:
        largest = np.argsort(-np.abs(DV), axis=None, kind="stable")[: count // 2]
        order = np.concatenate([largest, order[~np.isin(order, largest)]])[:count]
    return [divmod(int(position), DV.shape[1]) for position in order]
