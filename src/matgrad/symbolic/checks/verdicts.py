"""The verdict on an equation: what `matgrad verify` prints about it, and where its source is."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy as sp

from matgrad.inspection.equations import relative_path
from matgrad.inspection.faults import fault_of
from matgrad.matrix_operations import Matrix
from matgrad.symbolic.checks.equality import compare
from matgrad.symbolic.checks.exact import exact
from matgrad.symbolic.checks.labels import label_of


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


def verdict(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    found: Matrix,
    expected: sp.Matrix,
    start: float,
    prefix: str = "",
) -> Check:
    """The verdict on what a class or function computes, compared with what it should compute.

    `quantity` names it, such as 'DZ' or 'gradient'. `origin` is its location and source; `start` is when the
    check began; `prefix` names the layer that a class is part of.
    """
    name = prefix + (f"{thing.__name__}.{quantity}" if quantity else thing.__name__)
    location, source = origin
    result = compare(exact(found), exact(expected))
    message = "" if result.ok else f"{name} {result}\n  in {location}: {source}"
    seconds = time.perf_counter() - start
    return Check(name, location, label_of(thing, quantity), sizes, result.method, seconds, result.ok, message, source)


def without_verdict(
    thing: type, quantity: str, origin: tuple[str, str], sizes: str, note: str, prefix: str = ""
) -> Check:
    """What is said of something that nothing can be compared with."""
    location, source = origin
    return Check(f"{prefix}{thing.__name__}.{quantity}", location, "", sizes, "none", 0.0, True, "", source, note)


def failure(thing: type, quantity: str, origin: tuple[str, str], sizes: str, problem: str, prefix: str = "") -> Check:
    """The verdict on something that cannot be right, whatever it is compared with."""
    name, (location, source) = f"{prefix}{thing.__name__}.{quantity}", origin
    message = f"{name} is wrong: {problem}\n  in {location}: {source}"
    return Check(name, location, label_of(thing, quantity), sizes, "none", 0.0, False, message, source)


def crash(error: Exception, sizes: str = "", default: str = "") -> Check:
    """The verdict on a class that raises an error: its method, or else the `default` name, and the line."""
    fault = fault_of(error)
    name = fault.name or default
    message = f"{name} {fault.reason}\n  in {fault.location}: {fault.source}"
    return Check(name, fault.location, "", sizes, "none", 0.0, False, message, fault.source)


def last_line(function: Callable[..., Any]) -> tuple[str, str]:
    """The location and source of the last line of a function; '?' if there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return "?", f"{getattr(function, '__name__', function)}(…)"
    file = inspect.getsourcefile(function) or ""
    last = max(i for i, line in enumerate(lines) if line.strip())
    return f"{relative_path(file)}:{first + last}", lines[last].strip()
