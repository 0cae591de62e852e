"""How the result of an equation is written: in LaTeX and in characters, and where its source is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matgrad
from matgrad.explanation.passes import LOSS, Result
from matgrad.inspection.equations import Equation, assignment, relative_path
from matgrad.inspection.latex import aligned, function_latex, layer_latex, update_latex
from matgrad.loss_functions import LossFunction
from matgrad.optimizers import Optimizer
from matgrad.program.program import Program, Value
from matgrad.program.text import LatexPrinter, Printer, named


@dataclass(frozen=True)
class Written:
    """An equation for people to read, and where its source is."""

    symbol: str  # the value in LaTeX, with the number of its layer
    latex: str  # as the class has it: \mathsf{D}W = …
    numbered: str  # with the numbers of the layers: \mathsf{D}W_2 = …
    opened: str  # the same with the steps of softmax and other functions that have names
    text: str  # the same in characters: DW2 = DZ2ᵀ Y1
    source: str
    location: str  # file and line
    definition: str = ""  # of the loss, whose code may compute it in another way, for the sake of rounding
    note: str = ""  # what a reader of the source should know


class Writer:
    """Writes the results of a pass; the program is that of the pass, and its targets may be classes."""

    def __init__(self, program: Program, results: list[Result], *, are_classes: bool) -> None:
        shown = named(program, are_classes=are_classes)
        self.latex, self.opened, self.text = LatexPrinter(shown), LatexPrinter(program), Printer(shown)
        self.of_layer = cache(layer_latex)
        for printer in (self.latex, self.opened, self.text):
            outputs = {printer.program.outputs[r.key]: r.name for r in results}  # these have names
            printer.names |= {value: name for value, name in outputs.items() if value.kind != "source"}

    def __call__(self, result: Result) -> Written:
        """How a result is written."""
        origin, write = self._source(result)
        inherited = origin.defined_by if origin.defined_by is not origin.layer else None
        numbered, opened = (self._lines(printer, result) for printer in (self.latex, self.opened))
        latex = aligned(numbered)
        with suppress(Exception):  # of a user's class that cannot be recorded so
            latex = write() if write else latex
        return Written(
            symbol=self.symbol(self.opened.program.outputs[result.key]),
            latex=latex,
            numbered=aligned(numbered),
            opened=aligned(opened) if opened != numbered else "",
            text="\n".join(self._lines(self.text, result)),
            source=origin.source,
            location=place(origin),
            definition=definition(type(result.owner)) if result.name == LOSS else "",
            note=f"inherited from {inherited.__name__} (its variable names)" if inherited else "",
        )

    def symbol(self, value: Value) -> str:
        """The name of a value in LaTeX."""
        return _name(self.opened, value)

    def _lines(self, printer: Printer, result: Result) -> list[str]:
        """``name = expression`` for a result, after the temporary values that its line refers to by name."""
        value = printer.program.outputs[result.key]
        return [f"{_name(printer, x)} = {printer.expression(x)[0]}" for x in self._needed(printer, value)]

    def _needed(self, printer: Printer, value: Value) -> list[Value]:
        """The value, after the temporary ones that its line refers to by name."""
        outputs = {*printer.program.outputs.values()}
        found: dict[Value, None] = {}

        def visit(x: Value) -> None:
            for operand in x.operands:
                is_known = operand.kind == "source" or operand in outputs
                if not is_known and operand not in found:
                    visit(operand)
                    if operand in printer.names:
                        found[operand] = None

        visit(value)
        return [*found, value]

    def _source(self, result: Result) -> tuple[Equation, Callable[[], str] | None]:
        """The equation of a result, and what writes it as its class has it."""
        owner, cls = result.owner, type(result.owner)
        if isinstance(owner, Optimizer):
            return assignment(cls, "update", result.part), lambda: _update(owner, result.part)
        if isinstance(owner, LossFunction):
            method = "__call__" if result.name == LOSS else "gradient"
            return assignment(cls, method, method), lambda: function_latex(getattr(owner, method))
        if (equation := result.equation) is not None:
            return equation, lambda: self.of_layer(owner)[equation]
        method = "backpropagate" if result.phase == "backpropagate" else "feedforward"
        return assignment(cls, method, result.quantity), None


def _name(printer: Printer, value: Value) -> str:
    """The name of a value, as it is printed."""
    name = printer.names[value]
    return r"\mathcal{L}" if name == LOSS and isinstance(printer, LatexPrinter) else printer.name(name)[0]


def definition(cls: type) -> str:
    """The first line of the docstring of a class."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _update(optimizer: Optimizer, name: str) -> str:
    """The update of x or of what an optimizer keeps, after what is added to the gradient; see `Optimizer.apply`."""
    decay = "" if optimizer.decoupled or not optimizer.weight_decay else r" + \lambda \cdot x"
    l1 = r" + \lambda_1 \cdot \mathrm{sign}(x)" if optimizer.l1 else ""
    penalty = [rf"\mathsf{{D}}x := \mathsf{{D}}x{decay}{l1}"] if decay or l1 else []
    return aligned([*penalty, update_latex(optimizer)[name]])


def place(equation: Equation) -> str:
    """File and line, relative to the package or to the current folder; of other files only the name."""
    package, file = Path(matgrad.__file__).parent.parent, Path(equation.file)
    near = file.relative_to(package) if file.is_relative_to(package) else Path(relative_path(equation.file))
    return f"{near.name if near.is_absolute() else near.as_posix()}:{equation.line}"
