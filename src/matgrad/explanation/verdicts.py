"""What is known of an equation: the verdicts of the verifier, and of central differences on this very batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matgrad.backends import get_backend
from matgrad.explanation.passes import LOSS, Result
from matgrad.inspection.gradient_check import GradientResult, check_gradients
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron

if TYPE_CHECKING:
    from matgrad.symbolic.checks.verdicts import Check

Checks = dict[tuple[str, str], list["Check"]]  # by the name of a class in specifications, and that of an equation


@dataclass(frozen=True)
class Verdict:
    """Whether an equation is right: None if nothing was compared. `details` say what was compared."""

    ok: bool | None = None
    details: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """In a word."""
        return {True: "right", False: "WRONG", None: "not compared"}[self.ok]


class Judge:
    """Knows the verdicts on the equations of a model and a loss."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, X: np.ndarray, T: np.ndarray) -> None:
        self.loss = loss
        self.differences = {(r.name, r.equation.line): r for r in check_gradients(M, loss, X, T)}
        self.checks: Checks = {}

    def verify(self, M: MultilayerPerceptron, progress: Callable[[str], None] = lambda name: None) -> None:
        """Check the equations of all classes in M symbolically; `progress` is told which."""
        get_backend("sympy")  # says what to install if SymPy is missing
        from matgrad.symbolic.suite import cases

        optimizers = (part for _, layer in M.walk() for part in layer._optimizers.values())
        names = {_kind(x) for x in (*(layer for _, layer in M.walk()), *optimizers, self.loss)}
        found: Checks = defaultdict(list)
        for case in cases(basic=True):
            if case.name in names:
                progress(case.name)
                for check in case.run():
                    if not check.note:
                        found[case.name, check.name].append(check)
        self.checks = dict(found)

    def __call__(self, result: Result) -> Verdict:
        """The verdict on the equation of a result."""
        checks = self._checks(result)
        differences = self._differences(result)
        details = [_summary(checks)] if checks else []
        judged = [check.ok for check in checks]
        if differences is not None:
            details.append(_of_differences(differences))
            judged += [differences.ok] if differences.tells else []
        return Verdict(all(judged) if judged else None, tuple(details))

    def _differences(self, result: Result) -> GradientResult | None:
        if result.equation is not None:
            return self.differences.get((f"layer {result.path} {result.equation}", result.equation.line))
        of_loss = (r for (name, _), r in self.differences.items() if name == f"{type(self.loss).__name__}.gradient")
        return next(of_loss, None) if result.phase == "loss" and result.name != LOSS else None

    def _checks(self, result: Result) -> list[Check]:
        """The verifier's checks of what computed the result."""
        if result.layer is None:
            names = ("value",) if result.name == LOSS else ("gradient", "mean_gradient")
            return [c for name in names for c in self._of(self.loss, name)]
        if result.equation is not None:
            return self._of(result.layer, result.equation.name)
        parameter, _, part = result.quantity.partition(".")
        optimizer = result.layer._optimizers.get(parameter)
        return self._of(optimizer, part or "x") if optimizer else self._of(result.layer, result.quantity)

    def _of(self, thing: object, quantity: str) -> list[Check]:
        return self.checks.get((_kind(thing), f"{type(thing).__name__}.{quantity}"), [])


def _kind(thing: object) -> str:
    """The name of a layer, loss or optimizer in specifications, without settings, by which the verifier knows it."""
    specification = getattr(thing, "specification", None)
    name = specification() if specification else type(thing).__name__.removesuffix("Optimizer")
    return str(name).partition("(")[0]


def _summary(checks: Iterable[Check]) -> str:
    """How many checks there were, and which is wrong."""
    checks = list(checks)
    if wrong := [check for check in checks if not check.ok]:
        return f"the verifier says: {wrong[0].message.splitlines()[0]}"
    methods = ", ".join(dict.fromkeys(check.method for check in checks))
    return f"{len(checks)} symbolic {'check agrees' if len(checks) == 1 else 'checks agree'} ({methods})"


def _of_differences(result: GradientResult) -> str:
    """How a gradient compares with central differences."""
    if result.ok and result.tells:
        return f"central differences on this batch agree to {result.relative_error:.0e}"
    return str(result)
