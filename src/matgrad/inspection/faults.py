"""What a user's class did wrong when it raises an error: the class, its method, the line, and what to do."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.inspection.equations import relative_path, source_of
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction

LIBRARIES = ("matgrad", "numpy", "sympy", "mpmath", "scipy")
USE_THE_TABLE = (
    "NumPy's functions do not take symbols or recorded matrices; write it with those of matgrad.matrix_operations"
)


@dataclass(frozen=True)
class Fault:
    """An error in a method of a layer, activation function or loss."""

    name: str  # of the class and its method, such as 'ScaleLayer.feedforward'; '' if it is in none
    location: str  # file and line
    source: str  # of that line
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.reason} ({self.location}: {self.source})".strip()


class FaultError(ValueError):
    """A fault as an error of one line."""


@contextmanager
def naming_faults() -> Iterator[None]:
    """Errors in methods of layers, activation functions and losses become a `FaultError`, which says where they are."""
    try:
        yield
    except Exception as error:
        fault = fault_of(error)
        if isinstance(error, ValueError) and not fault.name:
            raise
        raise FaultError(str(fault)) from error


def fault_of(error: Exception) -> Fault:
    """Where an error comes from: the innermost line outside the libraries, or else the innermost method of a class."""
    if isinstance(error, FaultError) and isinstance(error.__cause__, Exception):
        return fault_of(error.__cause__)
    frames = list(traceback.walk_tb(error.__traceback__))
    methods = {i: thing for i, (frame, _) in enumerate(frames) if (thing := _object_of(frame)) is not None}
    if isinstance(error, NotImplementedError) and methods:
        return _missing_method(frames[max(methods)][0])
    roots = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame, _ in frames]
    own = [i for i in range(min(methods, default=0), len(frames)) if roots[i] not in LIBRARIES]
    i = max(own or methods, default=len(frames) - 1)
    frame, line = frames[i]
    around = max((k for k in methods if k <= i), default=None)
    name = "" if around is None else f"{type(methods[around]).__name__}.{frames[around][0].f_code.co_name}"
    file = frame.f_code.co_filename
    source = linecache.getline(file, line, frame.f_globals).strip()
    return Fault(name, f"{relative_path(file)}:{line}", source, _reason(error, source))


def _object_of(frame: FrameType) -> Any:
    """The layer, activation function or loss whose method a frame runs."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    thing = frame.f_locals.get(names[0]) if names else None
    return thing if isinstance(thing, Layer | ActivationFunction | LossFunction) else None


def _reason(error: Exception, source: str) -> str:
    message = " ".join(str(error).split())
    reason = f"raises {type(error).__name__}" + (f": {message}" if message else "")
    is_numpy = isinstance(error, TypeError | AttributeError) and re.search(r"\bn(um)?py?\.\w", source)
    return f"{reason}; {USE_THE_TABLE}" if is_numpy or "ufunc" in message else reason


def _missing_method(frame: FrameType) -> Fault:
    """The fault of a class that does not define the abstract method that a frame runs."""
    cls = type(_object_of(frame))
    location, text = "?", f"class {cls.__name__}"
    with suppress(ValueError):
        source = source_of(cls)  # type: ignore[arg-type]
        location, text = f"{relative_path(source.file)}:{source.node.lineno}", source.line(source.node.lineno)
    return Fault(f"{cls.__name__}.{frame.f_code.co_name}", location, text, "is not defined")
