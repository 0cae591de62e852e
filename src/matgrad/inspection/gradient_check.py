"""Numeric gradient check: every gradient of a model against central differences of the mean loss.

>>> results = check_gradients(M, SoftmaxCrossEntropyLoss(), X, T)
>>> print(first_wrong(results))
layer 2 ActivationLayer.DW is wrong at row 3, column 1: found 0.12, central differences give 0.34 (…)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from matgrad.backends.base import Matrix
from matgrad.inspection.equations import Equation, observed
from matgrad.inspection.variables import ChangeableModel, Element, Variable, size_text
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import check_loss


@dataclass(frozen=True)
class GradientResult:
    """How one gradient compares with central differences; rows and columns count from 0."""

    name: str  # 'layer 2 ActivationLayer.DW', counted from 1; 'layer 3.1 LinearLayer.DW' for a part of a layer
    equation: Equation
    ok: bool
    relative_error: float  # the largest difference, relative to the largest element
    row: int  # of that difference
    column: int
    expected: float  # by central differences
    found: float
    checked: int  # the number of elements compared
    skipped: int  # the number at corners, where there is no derivative
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
    loss, then, for the layers from last to first and their parts, everything that has an equation ``DV = …``:
    values of feedforward, parameters, and the input. h is relative to the size of an element. At most
    `max_elements` elements of a matrix are compared: those with the largest gradients, and others at random.
    Elements at a corner of a piecewise function are skipped, unless DV is wrong on both sides of it. Only the
    stored elements of a sparse parameter are compared. M is checked in its present mode, and not changed.
    """
    layers = M.layers if isinstance(M, MultilayerPerceptron) else [M]
    loss = create_loss(loss) if isinstance(loss, str) else loss
    check_loss(MultilayerPerceptron(layers), loss)
    with np.errstate(all="ignore"):
        model = ChangeableModel(layers, loss, X, T)
        with observed([layer for _, layer in MultilayerPerceptron(model.layers).walk()], model.observe):
            return [_check(model, V, h, tolerance, max_elements, seed) for V in model.variables()]


def first_wrong(results: Iterable[GradientResult]) -> GradientResult | None:
    """The first wrong result in order of backpropagation, which is usually the cause of the others."""
    return next((result for result in results if not result.ok), None)


# -- comparing ---------------------------------------------------------------------------------


class _Verdict(NamedTuple):
    """What was found about one element of DV."""

    kind: str  # 'right', 'wrong' or 'corner'
    error: float
    expected: float
    found: float
    element: Element


def _check(model: ChangeableModel, V: Variable, h: float, tolerance: float, count: int, seed: int) -> GradientResult:
    """DV against central differences, for a sample of its elements."""
    DV = model.gradient(V)
    name = f"layer {V.path} {V.equation}" if V.owner is not None else str(V.equation)
    if np.shape(DV) != V.value.shape:
        found = "nothing" if DV is None else f"size {size_text(DV)}"
        problem = f"found {found}, expected size {size_text(V.value)}"
        return GradientResult(name, V.equation, False, np.inf, 0, 0, np.nan, np.nan, 0, 0, problem)
    scale = float(np.max(np.abs(DV), where=np.isfinite(DV), initial=0.0))
    comparison = _Comparison(model, V, h, tolerance, scale)
    verdicts = [comparison.judge(element, float(DV[element])) for element in _sample(DV, count, seed)]
    compared = [verdict for verdict in verdicts if verdict.kind != "corner"]
    none = _Verdict("right", 0.0, np.nan, np.nan, (0, 0))
    worst = max(compared, key=lambda verdict: (verdict.kind == "wrong", verdict.error), default=none)
    counts = len(compared), len(verdicts) - len(compared)
    ok = worst.kind == "right"
    row, column = V.row_and_column(worst.element)
    return GradientResult(name, V.equation, ok, worst.error, row, column, worst.expected, worst.found, *counts)


class _Comparison:
    """Elements of DV against central differences; an error is relative to `scale`, the largest |DV|."""

    def __init__(self, model: ChangeableModel, V: Variable, h: float, tolerance: float, scale: float) -> None:
        self.model, self.V, self.h, self.tolerance, self.scale = model, V, h, tolerance, scale
        self.typical = float(np.abs(V.value).mean())
        self.loss = model.loss_at(V, (0, 0), 0.0)

    def judge(self, element: Element, d: float) -> _Verdict:
        """Whether the element d of DV is right."""
        v = abs(float(self.V.value[element]))
        h = self.h * (max(v, self.typical) or 1.0)
        verdict = self.compare(element, d, h)
        if verdict.kind == "corner":  # perhaps only one nearby, or a singularity such as log 0: try a smaller h
            closer = self.compare(element, d, min(h / 100, self.h * v or h))
            verdict = closer if closer.kind == "right" else verdict
        if verdict.kind == "right" or not np.isfinite(d):
            return verdict
        # the equation must hold beside a corner; corners can cancel, such as those of relu(x) - relu(-x) at 0
        wrong_sides = 0
        for offset in (100 * h, -70 * h):
            d_beside = float(self.model.gradient(self.V, element, offset)[element])
            kind = self.compare(element, d_beside, h, offset).kind
            if kind == "right":
                return verdict._replace(kind="corner")
            wrong_sides += kind == "wrong"
        is_wrong = wrong_sides >= (1 if verdict.kind == "wrong" else 2)
        return verdict._replace(kind="wrong" if is_wrong else "corner")

    def compare(self, element: Element, d: float, h: float, offset: float = 0.0) -> _Verdict:
        """Whether d is right at the given offset, by the differences to the left and to the right for one h."""
        middle = self.model.loss_at(self.V, element, offset) if offset else self.loss
        right = (self.model.loss_at(self.V, element, offset + h) - middle) / h
        left = (middle - self.model.loss_at(self.V, element, offset - h)) / h
        expected = (left + right) / 2
        noise = 50 * np.finfo(np.float64).eps * abs(middle) / h  # the rounding error of ℒ, divided by h
        difference = abs(d - expected)
        error = difference / max(self.scale, abs(expected), noise / self.tolerance, np.finfo(np.float64).tiny)
        kind = "right" if error <= self.tolerance else "wrong"
        if kind == "wrong" and np.isfinite(d) and not difference > 5 * abs(right - left):
            kind = "corner"  # both differences disagree, or one of them is not finite
        return _Verdict(kind, float(error) if np.isfinite(error) else np.inf, float(expected), d, element)


def _sample(DV: np.ndarray, count: int, seed: int) -> list[Element]:
    """At most `count` elements: those with the largest |DV| for one half, random ones for the other."""
    order = np.random.default_rng(seed).permutation(DV.size)
    if DV.size > count:
        largest = np.argsort(-np.abs(DV), axis=None, kind="stable")[: count // 2]
        order = np.concatenate([largest, order[~np.isin(order, largest)]])[:count]
    return [divmod(int(position), DV.shape[1]) for position in order]
