"""Teaching notes: the validated equations as a LaTeX document, generated from the code that ran."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from matgrad import optimizers, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.verdicts import Check
from matgrad.layers import ActivationLayer, Layer
from matgrad.loss_functions import LOSSES, LossFunction
from matgrad.optimizers import Optimizer
from matgrad.specifications.models import LAYERS
from matgrad.typesetting.latex import latex_document, latex_equation, latex_function


def validated_equations(checks: Iterable[Check]) -> str:
    """A LaTeX document with the equations of every class and function that passes all its checks."""
    verdicts: dict[str, bool] = {}
    for check in checks:
        name = check.name.partition(".")[0].removesuffix("_jacobian")
        verdicts[name] = verdicts.get(name, True) and check.ok
    sections = [(name, _equations(name)) for name, ok in verdicts.items() if ok]
    return latex_document([(name, lines) for name, lines in sections if lines])


def _equations(name: str) -> list[str]:
    """The equations of the class or function with this name, in order of execution."""
    classes: list[type] = [*LAYERS.values(), ActivationLayer, *LOSSES.values(), *ACTIVATIONS.values()]
    known = {cls.__name__: cls for cls in classes}
    thing = known.get(name) or getattr(optimizers, name, None) or getattr(softmax_functions, name, None)
    if thing is None:
        return []  # a lemma or derivation
    if not isinstance(thing, type):
        return [latex_function(thing), latex_function(getattr(softmax_functions, f"{name}_jacobian"))]
    if issubclass(thing, Layer):
        with suppress(ValueError):  # without readable equations it has none to print
            return [latex_equation(equation) for method in METHODS for equation in equations(thing, method)]
        return []
    if issubclass(thing, LossFunction | ActivationFunction):
        return [latex_function(thing.__call__, thing), latex_function(thing.gradient, thing)]
    return [latex_function(thing.update, thing)] if issubclass(thing, Optimizer) else []
