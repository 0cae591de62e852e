"""Lemmas as objects: steps, each with two matrices in index notation that must be equal, and their proof."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from matgrad.inspection.equations import relative_path
from matgrad.inspection.verdicts import Check
from matgrad.proofs.calculus import METHOD, is_proved
from matgrad.proofs.matrices import IndexMatrix


@dataclass(frozen=True)
class Step:
    """left = right, with a text: the reason, or the equation itself."""

    text: str
    left: IndexMatrix
    right: IndexMatrix


@dataclass(frozen=True)
class Lemma:
    """A lemma, property or derivation of the paper, with a function that yields its steps."""

    name: str
    label: str  # in the paper: of the equation, or of its section if the equation has none
    steps: Callable[[], Iterable[Step]]

    @classmethod
    def of(cls, function: Callable[[], Iterable[Step]], label: str) -> Lemma:
        """The lemma whose steps the function yields, with the function's name."""
        return cls(function.__name__.replace("_", " "), label, function)


def prove_lemma(lemma: Lemma) -> Check:
    """The verdict on a lemma; the message is about the first step that is not proved."""
    start = time.perf_counter()
    file, (_, line) = inspect.getsourcefile(lemma.steps) or "", inspect.getsourcelines(lemma.steps)
    location, source = f"{relative_path(file)}:{line}", (inspect.getdoc(lemma.steps) or "").partition("\n")[0]
    number, problem = 0, ""
    for number, step in enumerate(lemma.steps(), 1):
        if not is_proved(step.left, step.right):
            problem = f"step {number} ({step.text})\n  left   {step.left}\n  right  {step.right}"
            break
    if not number:
        problem = "it has no steps"
    message = f"{lemma.name} is not proved: {problem}\n  in {location}: {source}" if problem else ""
    seconds = time.perf_counter() - start
    return Check(lemma.name, location, lemma.label, "all sizes", METHOD, seconds, not problem, message, source)


def chain(start: IndexMatrix, *links: tuple[str, IndexMatrix]) -> Iterator[Step]:
    """start = A_1 = A_2 = …, one step for each equality; the links are pairs (text, A_i)."""
    for text, A in links:
        yield Step(text, start, A)
        start = A
