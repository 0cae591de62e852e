"""The verdict on an equation: what `matgrad verify` prints about it, and where its source is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matgrad.inspection.faults import fault_of
from matgrad.inspection.labels import label_of


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


@dataclass(frozen=True)
class Case:
    """Something to check: its name in specifications, and the function that checks it."""

    name: str
    check: Callable[[], list[Check]]
    is_basic: bool = False  # whether it is about symbols, for a batch in training mode

    def run(self) -> list[Check]:
        """The verdicts; an error is one too."""
        try:
            return self.check()
        except Exception as error:
            return [crash(error, default=self.name)]
