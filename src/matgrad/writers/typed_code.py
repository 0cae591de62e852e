"""Typed equations with their gradients, in the notation of `matgrad derive`: Y = tanh(X); DX = …"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from matgrad.activation_functions import ACTIVATIONS, create_activation
from matgrad.program.entries import IndexMatrix, indices_of, symbols
from matgrad.program.shapes import size_name
from matgrad.writers.explaining import Named
from matgrad.writers.latex_equations import is_latex, translated
from matgrad.writers.sizes import ShapeError
from matgrad.writers.slots import index
from matgrad.writers.subjects import Code, Run, Uses
from matgrad.writers.tensors import Tensor
from matgrad.writers.typed import SOFTMAX, Equations, about, check, matrix, parsed, table, value_of

SLOPES = {f"{name}_gradient": name for name in ACTIVATIONS}  # act'(Z), which is written act_gradient(Z) in Python
NUMERIC: dict[str, Any] = table(np.zeros((1, 1))) | SOFTMAX
EXPECTED = "expected gradients after the equation of Y, such as DX = …"


class TypedCode(Code):
    """Equations of feedforward, the last of which is that of Y, and equations of gradients: DX of X."""

    libraries: ClassVar[Uses] = {}
    backward_at, gradient_name = None, "DY"

    def __init__(self, text: str) -> None:
        text = translated(text) if is_latex(text) else text
        lines = [line.strip() for line in re.split(r"[;\n]", text) if line.partition("#")[0].strip()]
        starts = [i for i, line in enumerate(lines) if re.match(r"D\w+\s*=", line)]
        if not starts or not re.match(r"Y\s*=", lines[starts[0] - 1]):
            raise ValueError(f"found {'; '.join(lines)!r}; {EXPECTED}")
        self.name, self.functions = lines[starts[0] - 1], []
        self.equations = Equations("\n".join(lines[: starts[0]]))
        self.gradients = [self._gradient(line) for line in lines[starts[0] :]]
        if all(x.id != "X" for _, _, node in self.equations.lines for x in ast.walk(node) if isinstance(x, ast.Name)):
            del self.equations.declared["X"]
        known = [*self.equations.declared, *(name for name, *_ in self.equations.lines)]
        if wrong := [name for name, *_ in self.gradients if name[1:] not in known or name == "DY"]:
            raise ValueError(f"{wrong[0]}: expected the gradient of one of {', '.join(known)}, other than Y")
        self.returned = [name[1:] for name, *_ in self.gradients if name[1:] in self.equations.declared]

    def _gradient(self, line: str) -> tuple[str, str, ast.expr]:
        """The equation of a gradient: its name, its text and its right-hand side."""
        with about(line):
            name, value = parsed(re.sub(r"\b(\w+)'\(", r"\1_gradient(", line))
            plain = copy.deepcopy(value)
            for x in ast.walk(plain):
                if isinstance(x, ast.Name):
                    x.id = SLOPES.get(x.id, x.id)
            check(plain)
        return name, line, value

    @property
    def parameters(self) -> dict[str, Any]:
        """The matrices that are given, with their shapes."""
        return {name: " ".join(shape) for name, shape in self.equations.declared.items()}

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> Run:
        """The equations on symbols, or on arrays."""
        return NumericRun(self, arguments) if numeric else SymbolicRun(self)


class SymbolicRun(Run):
    """The equations on matrices of index notation."""

    def __init__(self, code: TypedCode, is_cut: bool = False) -> None:
        self.code, equations = code, code.equations
        sizes, renamed = equations.sizes(), symbols if is_cut else None
        slopes = {name: create_activation(f).gradient for name, f in SLOPES.items()}
        self.known = equations.evaluated(equations.inputs(sizes), sizes, create_activation, renamed) | slopes
        self.outputs = [as_tensor(self.known["Y"])]
        self.names = {name: as_tensor(self.known[name]) for name, *_ in equations.lines}
        if is_cut:
            self.values = [Named(name, x, as_tensor(self.known[f"{name} ="])) for name, x in self.names.items()]

    def cut(self) -> SymbolicRun:
        """Another run, in which the value of each equation is symbols."""
        return SymbolicRun(self.code, is_cut=True)

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """The equations of gradients."""
        values = self.known | {"DY": symbols("DY", *self.known["Y"].shape)}
        for name, line, node in self.code.gradients:
            try:
                with about(line):
                    values[name] = matrix("=", value_of(node, values))
            except ValueError as error:  # of sizes that do not fit
                raise ShapeError(str(error)) from None
        found = {name: as_tensor(values[f"D{name}"]) for name in self.code.returned}
        return dict.fromkeys(self.code.parameters) | found


def as_tensor(A: IndexMatrix) -> Tensor:
    """A matrix of index notation as a tensor."""
    dims = tuple(() if str(size_name(n)) == "1" else tuple(str(size_name(n)).split("·")) for n in A.shape)
    names = {
        part: index(dims, (len(dims) - 1 - d, k))
        for d, i in enumerate(indices_of(A.shape))
        for k, part in enumerate(i.parts)
    }
    return Tensor(dims, {(): A.entry.substituted(names)})


class NumericRun(Run):
    """The equations on arrays."""

    def __init__(self, code: TypedCode, arguments: Mapping[str, Any]) -> None:
        self.code = code
        functions = {name: create_activation(name) for name in ACTIVATIONS}
        slopes = {name: functions[f].gradient for name, f in SLOPES.items()}
        shapes = code.equations.declared.items()
        sizes = {n: x for name, shape in shapes for n, x in zip(shape, arguments[name].shape, strict=True)}
        self.known = NUMERIC | functions | slopes | sizes | dict(arguments)
        self._run(code.equations.lines, self.known)
        self.outputs = [self.known["Y"]]

    def _run(self, lines: Sequence[tuple[str, str, ast.expr]], values: dict[str, Any]) -> None:
        for name, _, node in lines:
            values[name] = eval(compile(ast.Expression(node), "equations", "eval"), {}, values)

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """The equations of gradients."""
        values = self.known | {"DY": gs[0]}
        self._run(self.code.gradients, values)
        return dict.fromkeys(self.code.parameters) | {n: values[f"D{n}"] for n in self.code.returned}
