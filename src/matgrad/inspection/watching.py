"""Watching a training step: after each of its segments, which equation, loss or optimizer it was.

A segment is an equation of a layer (``layer 1 ActivationLayer.DW``), the rest of a method of a layer
(``layer 1 ActivationLayer.feedforward``), the gradient of the loss (``SoftmaxCrossEntropyLoss.gradient``),
``clip_gradients``, or the update of a parameter (``layer 1 MomentumOptimizer.W``). Segments belong to phases:
feedforward, loss, backpropagate, clip_gradients, optimize. Layer 3.1 is the first part of layer 3; its segments
are not segments of layer 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from matgrad.inspection.equations import Equation, equations, full_name, observed
from matgrad.layers.layer import Layer

if TYPE_CHECKING:
    from matgrad.loss_functions import LossFunction
    from matgrad.multilayer_perceptron import MultilayerPerceptron

CLIP = "clip_gradients"
Mark = Callable[[str, Any, str], None]  # a segment, its result, and the name of that, such as Z1


@contextmanager
def watched(M: MultilayerPerceptron, loss: LossFunction | None, mark: Mark) -> Iterator[None]:
    """After each segment of a training step of M, ``mark(segment, result, name)`` is called while the context lasts.

    The segment is '' for what comes between two segments. Equations are marked if the source of a layer can be read.
    """
    names = {id(layer): name for name, layer in M.walk()}  # layers may compare equal

    def mark_equation(layer: Layer, equation: Equation, X: Any) -> Any:
        path = names[id(layer)]
        mark(full_name(path, layer, equation.name), X, f"{equation.name}{path}")
        return X

    with ExitStack() as stack:
        stack.enter_context(observed((layer for _, layer in M.walk()), mark_equation))
        for thing, method, before, after in watched_methods(M, loss):
            stack.enter_context(_marked(thing, method, before, after, mark))
        yield


def watched_methods(M: MultilayerPerceptron, loss: LossFunction | None) -> Iterator[tuple[Any, str, str, str]]:
    """(object, method, segment that ends when the method begins, segment that ends with the method)."""
    for i, layer in M.walk():
        for method in ("feedforward", "backpropagate", "optimize"):
            yield layer, method, "", full_name(i, layer, method)
        for name, optimizer in layer._optimizers.items():
            yield optimizer, "apply", "", full_name(i, optimizer, name)
    yield M, "backpropagate", full_name("", loss, "gradient"), ""
    yield M, "optimize", CLIP, ""


@contextmanager
def _marked(thing: Any, method: str, before: str, after: str, mark: Mark) -> Iterator[None]:
    """Mark the beginning and the end of a method of one object while the context lasts."""
    plain, replaced = getattr(thing, method), vars(thing).get(method)
    is_gradient = before.endswith(".gradient")

    def marked(*arguments: Any) -> Any:
        mark(before, arguments[-1], "DY" if is_gradient else "")
        result = plain(*arguments)
        mark(after, result, "")
        return result

    setattr(thing, method, marked)
    try:
        yield
    finally:
        if replaced is None:
            delattr(thing, method)
        else:
            setattr(thing, method, replaced)


def phases_of_segments(M: MultilayerPerceptron) -> dict[str, str]:
    """The phase of each segment of a layer: feedforward, backpropagate or optimize; in order of the equations."""
    layers = list(M.walk())
    phases: dict[str, str] = {}
    for method, ordered in (("feedforward", layers), ("backpropagate", layers[::-1])):
        for i, layer in ordered:
            with suppress(ValueError):
                for equation in equations(type(layer), method):
                    phases.setdefault(full_name(i, layer, equation.name), method)
            phases[full_name(i, layer, method)] = method
    for i, layer in layers:
        for name, optimizer in layer._optimizers.items():
            phases[full_name(i, optimizer, name)] = "optimize"
        phases[full_name(i, layer, "optimize")] = "optimize"
    return phases
