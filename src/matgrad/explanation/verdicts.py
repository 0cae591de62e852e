"""What is known of an equation: the verdicts of the verifier, and of central differences on this very batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from matgrad.activation_functions import ACTIVATIONS
from matgrad.backends import get_backend
from matgrad.explanation.passes import LOSS, Result
from matgrad.inspection.gradient_check import GradientResult, check_gradients
from matgrad.layers import ActivationLayer
from matgrad.loss_functions import LOSSES, LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import OPTIMIZERS
from matgrad.program.naming import full_name
from matgrad.program.program import Value, in_order
from matgrad.specifications.models import LAYERS

if TYPE_CHECKING:
    from matgrad.inspection.verdicts import Check

METHODS = {"algebra": "by algebra", "points": "at random points", "numbers": "in numbers"}
ELEMENTS = 12  # of a matrix that are compared one by one; the others are compared together
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
    """Knows the verdicts on the results of a pass."""

    def __init__(
        self, M: MultilayerPerceptron, loss: LossFunction, X: np.ndarray, T: np.ndarray, results: list[Result]
    ) -> None:
        self.checks: Checks | None = None  # until they are made
        self.last = {(r.layer, r.phase, r.quantity): r for r in results}  # of several values of one name
        self.shown = {self._name(r) for r in self.last.values()}
        self.problem, found = "", cast(list[GradientResult], [])
        try:
            found = check_gradients(M, loss, X, T, max_elements=ELEMENTS)
        except ValueError as error:  # the loss is not finite
            self.problem = f"not compared: {error}"
        self.differences = {result.name: result for result in found}

    def verify(self, progress: Callable[[str], None]) -> None:
        """Check the equations of all classes symbolically; `progress` is called with the name of each."""
        get_backend("sympy")  # says what to install if SymPy is missing
        from matgrad.judges.suite import cases

        names, self.checks = {_known_name(result.owner) for result in self.last.values()}, {}
        for case in cases(basic=True):
            if case.name in names:
                progress(case.name)
                for check in case.run():
                    if not check.note:
                        self.checks.setdefault((case.name, check.name), []).append(check)

    def verdicts(self, results: list[Result], values: list[Value]) -> list[Verdict]:
        """The verdicts on the equations of results, whose values in the program are given: wrong is the cause alone."""
        causes: dict[Value, str] = {}
        found = []
        for result, value in zip(results, values, strict=True):
            verdict = self._verdict(result)
            cause = next((causes[x] for x in in_order([value])[:-1] if x in causes), None)
            if verdict.ok is False and cause is not None:
                verdict = Verdict(None, (f"not judged: {cause} is wrong, on which it depends",))
            elif verdict.ok is False:
                causes[value] = result.title
            found.append(verdict)
        return found

    def _verdict(self, result: Result) -> Verdict:
        """The verdict on the equation of a result, whatever it depends on."""
        if self.last[result.layer, result.phase, result.quantity] is not result:
            return Verdict(None, ("not compared: a later equation gives it another value",))
        parts = ("gradient", "mean_gradient") if result.part == "gradient" else (result.part,)
        names = [(_known_name(result.owner), f"{type(result.owner).__name__}.{part}") for part in parts]
        checks = [check for name in names for check in (self.checks or {}).get(name, [])]
        name = self._name(result)
        difference = self.differences.get(name)
        details = [_summary(checks)] if checks else []
        judged = [check.ok for check in checks]
        if difference is not None:
            layer = name.rpartition(" ")[0]  # 'layer 2'; before its wrong gradient comes a wrong activation function
            others = [r for x, r in self.differences.items() if x not in self.shown and x.rpartition(" ")[0] == layer]
            causes = [] if difference.ok else [r for r in others if not r.ok]
            details += map(_comparison, (*causes, difference))
            judged += [difference.ok] if difference.tells else []
        elif self.problem and name:
            details.append(self.problem)
        if not details and self.checks is not None:
            details.append("there is nothing independent to compare it with")
        return Verdict(all(judged) if judged else None, tuple(details))

    def _name(self, result: Result) -> str:
        """What `check_gradients` calls a result; '' if it is no gradient."""
        is_gradient = result.phase in ("loss", "backpropagate") and result.name != LOSS
        return full_name(result.layer, result.owner, result.part) if is_gradient else ""


def _known_name(thing: object) -> str:
    """The name by which the verifier knows the class of a layer, loss or optimizer; '' if it does not."""
    is_named_by_act = type(thing) is ActivationLayer
    cls = type(thing.act) if is_named_by_act else type(thing)  # type: ignore[attr-defined]
    tables: list[dict[str, type]] = [ACTIVATIONS] if is_named_by_act else [LAYERS, LOSSES, OPTIMIZERS]
    return next((name for table in tables for name, known in table.items() if known is cls), "")


def _summary(checks: list[Check]) -> str:
    """How many checks there were, and which is wrong."""
    if wrong := [check for check in checks if not check.ok]:
        return f"the verifier says: {' '.join(' '.join(wrong[0].message.splitlines()[:3]).split())}"
    methods = ", ".join(dict.fromkeys(METHODS.get(check.method, check.method) for check in checks))
    return f"{len(checks)} symbolic {'check agrees' if len(checks) == 1 else 'checks agree'} ({methods})"


def _comparison(result: GradientResult) -> str:
    """How a gradient compares with central differences."""
    if not result.ok:
        return result.fault
    if not result.tells:
        return "central differences cannot tell: on this batch it is too near to 0, or at a corner"
    return f"central differences on this batch agree to {result.relative_error:.0e}"
