"""The verdict on an equation by symbols: whether two matrices of them are equal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sympy as sp

from matgrad.inspection.labels import label_of
from matgrad.inspection.verdicts import Check
from matgrad.matrix_operations import Matrix
from matgrad.symbolic.checks.equality import compare
from matgrad.symbolic.checks.exact import exact


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
