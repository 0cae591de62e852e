"""Derivations as objects: steps, each with two symbolic matrices that must be equal, and their check."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import sympy as sp

from matgrad.inspection.equations import relative_path
from matgrad.inspection.verdicts import Check
from matgrad.symbolic.checks.equality import compare


@dataclass(frozen=True)
class Step:
    """left = right, with a text: the reason, or the equation itself."""

    text: str
    left: sp.Matrix
    right: sp.Matrix


@dataclass(frozen=True)
class Derivation:
    """A lemma, property or derivation of the paper, with a function that yields its steps."""

    name: str
    label: str  # in the paper: of the equation, or of its section if the equation has none
    sizes: str  # 'N=3 D=4 K=5'
    steps: Callable[[], Iterable[Step]]

    @classmethod
    def of(cls, function: Callable[..., Iterable[Step]], label: str, **sizes: int) -> Derivation:
        """The derivation whose steps are function(**sizes), with the function's name."""
        shown = " ".join(f"{name}={size}" for name, size in sizes.items())
        return cls(function.__name__.replace("_", " "), label, shown, partial(function, **sizes))


def check_derivation(derivation: Derivation) -> Check:
    """The verdict on a derivation; the message is about the first step that does not hold."""
    start = time.perf_counter()
    location, source = _origin(derivation.steps)
    methods, message = set(), ""
    for number, step in enumerate(derivation.steps(), 1):
        result = compare(step.left, step.right)
        methods.add(result.method)
        if not result.ok:
            message = f"{derivation.name}, step {number} ({step.text}) {result}\n  in {location}: {source}"
            break
    if not methods:
        message = f"{derivation.name} has no steps"
    method = "points" if "points" in methods else "algebra"
    seconds = time.perf_counter() - start
    return Check(
        derivation.name, location, derivation.label, derivation.sizes, method, seconds, not message, message, source
    )


def chain(start: sp.Matrix, *links: tuple[str, sp.Matrix]) -> Iterator[Step]:
    """start = A_1 = A_2 = …, one step for each equality; the links are pairs (text, A_i)."""
    for text, expression in links:
        yield Step(text, start, expression)
        start = expression


def at(expression: sp.Matrix, y: sp.Matrix, value: sp.Matrix) -> sp.Matrix:
    """expression(y) at y = value, element by element."""
    return expression.xreplace(dict(zip(y, value, strict=True)))


def by_rows(f: Callable[[int], sp.Matrix], m: int) -> sp.Matrix:
    """Matrix with the rows f(0), …, f(m - 1)."""
    return sp.Matrix.vstack(*map(f, range(m)))


def by_columns(f: Callable[[int], sp.Matrix], n: int) -> sp.Matrix:
    """Matrix with the columns f(0), …, f(n - 1)."""
    return sp.Matrix.hstack(*map(f, range(n)))


def _origin(steps: Callable[[], Iterable[Step]]) -> tuple[str, str]:
    """The location of the function that yields the steps, and the equation that opens its docstring."""
    function = steps.func if isinstance(steps, partial) else steps
    file, (_, line) = inspect.getsourcefile(function) or "", inspect.getsourcelines(function)
    return f"{relative_path(file)}:{line}", (inspect.getdoc(function) or "").partition("\n")[0]
