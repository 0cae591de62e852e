"""Verdicts on equations: what `matgrad verify` prints about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from matgrad.backends.base import Array
from matgrad.inspection.equations import Equation, assignment, equations, label_of, last_line
from matgrad.inspection.faults import fault_of
from matgrad.inspection.observing import observed
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer


def feedforward_values(layer: Layer, X: Array, names: Iterable[str]) -> dict[str, Array]:
    """What feedforward computes: the values of its equations, the output Y, and other values of these names."""
    found: dict[str, Array] = {}

    def hook(layer: Layer, equation: Equation, value: Array) -> Array:
        found[equation.name] = value
        return value

    with observed([layer], hook):
        result = layer.feedforward(X)
    return found | {name: getattr(layer, name, None) for name in names if name not in found} | {"Y": result}


def origin_of(layer: Layer, name: str) -> tuple[str, str]:
    """The location and source of what feedforward computes; R and running statistics are set in other methods."""
    if name == "R" and isinstance(layer, LayerWithDropout):
        return last_line(type(layer).dropout_matrix)
    equation = next((e for e in reversed(equations(type(layer), "feedforward")) if e.name == name), None)
    return (equation or assignment(type(layer), "feedforward", name)).origin


@dataclass(frozen=True)
class Check:
    """The verdict on one equation: one row of the table that `matgrad verify` prints."""

    name: str  # 'ActivationLayer.DW', or the name of a derivation
    location: str  # file and line of the equation that ran
    label: str  # of the equation in the paper, such as 'eq:softmax-derivation', or the name of its section
    sizes: str  # 'N=3 D=4 K=5'
    method: str  # 'algebra', 'points', 'numbers' (of NumPy) or 'differences' (central ones); 'none' with a note
    seconds: float
    ok: bool
    message: str = ""  # where it is wrong, with both symbolic entries
    source: str = ""  # of the equation
    note: str = ""  # why there is no verdict: it is then neither right nor wrong


def judged(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    problem: str,
    *,
    method: str = "none",
    start: float | None = None,
    prefix: str = "",
    note: str = "",
) -> Check:
    """The verdict on what a class or function computes; the problem is what its name is followed by, '' if it is right.

    `quantity` names it, such as 'DZ' or 'gradient'. `origin` is its location and source; `start` is when the
    check began; `prefix` names the layer that a class is part of. A `note` says why there is nothing to compare with.
    """
    name = prefix + (f"{thing.__name__}.{quantity}" if quantity else thing.__name__)
    location, source = origin
    message = f"{name} {problem}\n  in {location}: {source}" if problem else ""
    label = "" if note else label_of(thing, quantity)
    seconds = 0.0 if start is None else time.perf_counter() - start
    return Check(name, location, label, sizes, method, seconds, not problem, message, source, note)


def crash(error: Exception, sizes: str = "", default: str = "") -> Check:
    """The verdict on a class that raises an error: its method, or else the `default` name, and the line."""
    fault = fault_of(error)
    name = fault.name or default
    message = f"{name} {fault.reason}\n  in {fault.location}: {fault.source}"
    return Check(name, fault.location, "", sizes, "none", 0.0, False, message, fault.source)
