"""What is known of the gradients of a function, and numbers that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.imports import deferred
from matgrad.foundation.notation import document, words
from matgrad.index_notation.expressions import Entry, Expression

STATUS = {"proved": 0, "surrogate": 0, "refuted": 1}
Place = tuple[str, int]  # file and line


class Formula(NamedTuple):
    """A line of mathematics, as text and in LaTeX."""

    text: str
    latex: str

    def __str__(self) -> str:
        return self.text


class Step(NamedTuple):
    """A step of a derivation, with what it is by."""

    rule: str
    formula: Formula


@dataclass
class Witness:
    """Sizes and values for which the code's gradient is not the derivative of its output."""

    sizes: dict[str, int]
    arguments: dict[str, Any]
    gradients: list[Any]
    name: str
    place: tuple[int, ...]
    returned: float
    true: float

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} = {x}" for n, x in self.sizes.items())
        place = f"[{', '.join(map(str, self.place))}]" if self.place else ""
        return f"{sizes or 'numbers'}: ∂/∂{self.name}{place} is {self.true:.6g}, returned {self.returned:.6g}"


class Gradient(NamedTuple):
    """The gradient that is returned for an entry of an argument, and ⟨g, y⟩, whose derivative it is."""

    entry: Entry
    value: Expression
    returned: Expression


@dataclass
class Verdict:
    """What is known of the gradients of a function."""

    name: str
    verdict: str  # proved, refuted, undecided, refused or surrogate
    lines: list[str | Formula] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)  # the arguments whose gradients were compared
    formulas: list[Formula] = field(default_factory=list)  # what these gradients are
    steps: list[Step] = field(default_factory=list)  # the derivation of these gradients, if it is asked for
    assumptions: list[str] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)  # what is known of kernels, by numbers alone
    conventions: list[str] = field(default_factory=list)  # what is returned at kinks and ties
    suggestions: list[str] = field(default_factory=list)  # lines of code that are proved
    place: Place | None = None  # of what is wrong, or of the function
    witness: Witness | None = None
    seconds: float = 0.0
    entries: Callable[[], list[Gradient]] = list  # what is proved, in index notation

    def __str__(self) -> str:
        return "\n".join([self.head, *("  " + line for line in self.details)])

    _repr_html_ = deferred("matgrad.explanation.notebook", "verdict_html")

    @property
    def head(self) -> str:
        """The first line."""
        return f"{self.name}: {self.verdict.upper()}  ({self.seconds:.2f} s)"

    @property
    def details(self) -> list[str]:
        """The other lines."""
        steps = [f"{i:3}. {rule}\n         {formula}" for i, (rule, formula) in enumerate(self.steps, 1)]
        return [*map(str, self.lines), *(f"if {text}" for text in self.assumptions), *self.tested, *steps]

    @property
    def status(self) -> int:
        """The exit status of the command: 0 if it is proved, or no gradient by design; 1 if refuted, otherwise 2."""
        return STATUS.get(self.verdict, 2)

    def check(self) -> Verdict:
        """Itself; an error if it is not proved."""
        if self.status:
            raise AssertionError(str(self))
        return self

    @property
    def latex(self) -> str:
        """The verdict as a part of a LaTeX document."""
        said = [*(f"if {text}" for text in self.assumptions), *self.tested]
        lines = [*self.lines, *([] if self.status else self.formulas), *said]
        lines += [part for step in self.steps for part in step]
        shown = [f"\\[\n{x.latex}\n\\]" if isinstance(x, Formula) else f"{words(x.strip())}\n" for x in lines]
        return "\n".join([rf"\section*{{{words(self.head)}}}", *shown])

    def as_json(self) -> dict[str, Any]:
        """What can be written as JSON."""
        own = {"status": self.status, "lines": list(map(str, self.lines))}
        own |= {"formulas": [formula._asdict() for formula in self.formulas]}
        own |= {"steps": [{"rule": rule} | formula._asdict() for rule, formula in self.steps]}
        own |= {"place": self.place and {"file": self.place[0], "line": self.place[1]}}
        own |= {"witness": None if self.witness is None else _listed(vars(self.witness))}
        return {name: x for name, x in vars(self).items() if name != "entries"} | own


def latex_document(verdicts: list[Verdict]) -> str:
    """Verdicts as a document."""
    return document(*(verdict.latex for verdict in verdicts))


def _listed(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {k: _listed(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_listed(v) for v in x]
    return x.tolist() if isinstance(x, np.ndarray | np.generic) else x
