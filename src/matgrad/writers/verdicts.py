"""What is known of the gradients of a function, and numbers that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STATUS = {"proved": 0, "surrogate": 0, "refuted": 1}


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


@dataclass
class Verdict:
    """What is known of the gradients of a function."""

    name: str
    verdict: str  # proved, refuted, undecided, refused or surrogate
    lines: list[str] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)  # the arguments whose gradients were compared
    assumptions: list[str] = field(default_factory=list)
    witness: Witness | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        head = f"{self.name}: {self.verdict.upper()}  ({self.seconds:.2f} s)"
        more = [f"if {text}" for text in self.assumptions]
        return "\n".join([head, *("  " + line for line in (*self.lines, *more))])

    @property
    def status(self) -> int:
        """The exit status of the command: 0 if it is proved, or no gradient by design; 1 if refuted, otherwise 2."""
        return STATUS.get(self.verdict, 2)

    def check(self) -> Verdict:
        """Itself; an error if it is not proved."""
        if self.status:
            raise AssertionError(str(self))
        return self

    def as_json(self) -> dict[str, Any]:
        """What can be written as JSON."""
        found = {k: v for k, v in vars(self).items() if k != "witness"}
        return found | {"witness": None if self.witness is None else _listed(vars(self.witness))}


def _listed(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {k: _listed(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_listed(v) for v in x]
    return x.tolist() if isinstance(x, np.ndarray | np.generic) else x
