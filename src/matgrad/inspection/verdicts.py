"""Verdicts on equations, which `matgrad verify` prints, and what a class did wrong when it raises an error."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import Array, Matrix
from matgrad.inspection.equations import Equation, assignment, equations, label_of, last_line, relative_path, source_of
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import Variable, Watch, drop_gradients
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction

if TYPE_CHECKING:
    from matgrad.judges.algebra import SymbolicAlgebra


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
    method: str  # 'proof', 'points', 'numbers' (of NumPy) or 'differences' (central ones); 'none' with a note
    seconds: float
    ok: bool
    message: str = ""  # where it is wrong, with both symbolic entries
    source: str = ""  # of the equation
    note: str = ""  # why there is no verdict: it is then neither right nor wrong
    given: str = ""  # what it is a verdict for, besides sizes: 'alpha = 1'
    cause: str = ""  # if it is wrong: another wrong equation, on which it depends


def judged(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    problem: str,
    *,
    method: str = "none",
    seconds: float = 0.0,
    prefix: str = "",
    note: str = "",
) -> Check:
    """The verdict on what a class or function computes; the problem is what its name is followed by, '' if it is right.

    `quantity` names it, such as 'DZ' or 'gradient'. `origin` is its location and source; `prefix`
    names the layer that a class is part of. A `note` says why there is nothing to compare with.
    """
    name = prefix + (f"{thing.__name__}.{quantity}" if quantity else thing.__name__)
    location, source = origin
    message = f"{name} {problem}\n  in {location}: {source}" if problem else ""
    label = "" if note else label_of(thing, quantity)
    return Check(name, location, label, sizes, method, seconds, not problem, message, source, note)


def crash(error: Exception, sizes: str = "", default: str = "") -> Check:
    """The verdict on a class that raises an error: its method, or else the `default` name, and the line."""
    fault = fault_of(error)
    name = fault.name or default
    message = f"{name} {fault.reason}\n  in {fault.location}: {fault.source}"
    return Check(name, fault.location, "", sizes, "none", 0.0, False, message, fault.source)


# -- gradients of layers -----------------------------------------------------------------------


def gradient_checks(layer: Layer, X: Matrix, algebra: SymbolicAlgebra) -> list[Check]:
    """The verdicts on the gradients of a layer and of its parts, in order of backpropagation.

    They are compared with the derivatives of ⟨G, Y⟩ for an arbitrary G.
    """
    cls, sizes = type(layer), algebra.about
    watch, value, problem = _run(layer, X, algebra)
    if problem:
        return [judged(cls, "Y", assignment(cls, "feedforward", "Y").origin, sizes, f"is wrong: {problem}")]
    checks = []
    for V in watch.variables("", algebra.is_same):
        part = watch.parts[V.path]
        prefix = f"{cls.__name__}.{V.path} " if V.path else ""
        about = type(part), V.equation.name, V.equation.origin
        if V.problem:  # in evaluation mode a part may have nothing to do
            wrong, note = (f"is wrong: {V.problem}", "") if part.training else ("", V.problem)
            checks.append(judged(*about, sizes, wrong, prefix=prefix, note=note))
            continue
        own, of_own, symbols = watch, value, V.value  # parameters and the input of the layer are symbols already
        if V.position is not None or (V.path and V.name == "X"):
            symbols = algebra.symbols(suffixed(V.name, V.path), *V.value.shape)
            own, of_own, _ = _run(layer, X, algebra, V, symbols)
        checks.append(algebra.claim(*about, own.gradient(V), algebra.gradient(of_own, symbols), prefix=prefix))
    return checks


def _run(
    layer: Layer, X: Matrix, algebra: SymbolicAlgebra, V: Variable | None = None, symbols: Any = None
) -> tuple[Watch, Any, str]:
    """What a copy of a layer does, with symbols for V if it is given; ⟨G, Y⟩; and what is wrong with Y, if anything."""
    layer = layer.clone()
    watch, G = Watch(dict(layer.walk())), algebra.symbols("G", X.shape[0], layer.output_size)
    with watch.watching(), nullcontext() if V is None else watch.changed(V, lambda _: symbols):
        Y = layer.feedforward(X)
        if problem := algebra.problem_of(Y, G):
            return watch, None, problem
        drop_gradients(layer)
        layer.backpropagate(Y, G)
    return watch, algebra.pairing(G, Y), ""


def suffixed(name: str, path: str) -> str:
    """A name for symbols that is different for every part."""
    return f"{name}.{path}" if path else name


# -- faults ----------------------------------------------------------------------------------------


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
