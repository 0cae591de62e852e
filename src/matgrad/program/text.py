"""Programs as equations that a person can read."""

from __future__ import annotations

import re
from itertools import count

from matgrad.program.program import VIEWS, Program, Value, size_name

DEEPEST = 25  # operations inside one another, from which on a value gets a line of its own
SUM, PRODUCT, SCALED, UNARY, ATOM = range(5)  # how tightly an expression binds


def program_text(program: Program) -> str:
    """One line for every value that has a name, is an output or is used twice, in order of execution."""
    return _Printer(program).text()


class _Printer:
    """Names for the values of a program, and the expressions between them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[Value, str] = {}
        outputs = {value: name for name, value in program.outputs.items()}
        uses = program.uses()
        taken = {state_name(x.name) for x in program.values}
        temporary = (name for name in map("t{}".format, count(1)) if name not in taken)
        depths: dict[Value, int] = {}
        for value in program.values:
            depths[value] = 1 + max((depths[x] for x in value.operands if x not in self.names), default=0)
            if value.operation in ("input", "support"):
                self.names[value] = state_name(value.name)
            elif value in outputs and value.operation != "number":
                self.names[value] = state_name(outputs[value]) + "'"
            elif value.operation not in ("number", *VIEWS):
                if value.name and value.name not in self.names.values():
                    self.names[value] = value.name
                elif depths[value] > DEEPEST or (
                    uses[value] > 1 and not (value.is_scalar and value.operation == "negative")
                ):
                    self.names[value] = next(temporary)

    def text(self) -> str:
        """The inputs, the equations, and the outputs that have no equation of their own."""
        inputs = [f"{self.names[x]} {_sizes(x)}".strip() for x in self.program.values if x.operation == "input"]
        lines = [f"given {', '.join(inputs)}", ""]
        equations = [(self.names[x], self._expression(x)[0]) for x in self.program.instructions if x in self.names]
        for name, x in self.program.outputs.items():
            if self.names.get(x) not in (state_name(name), f"{state_name(name)}'"):
                equations.append((f"{state_name(name)}'", self._operand(x, SUM)))
        width = max((len(name) for name, _ in equations), default=0)
        lines += [f"{name:<{width}} = {expression}" for name, expression in equations]
        return "\n".join(lines)

    def _operand(self, value: Value, level: int) -> str:
        """The operand as name or expression, in parentheses where it binds less tightly than `level`."""
        if value in self.names:
            return self.names[value]
        text, binds = self._expression(value)
        return text if binds >= level else f"({text})"

    def _expression(self, value: Value) -> tuple[str, int]:
        """What computes the value, and how tightly that binds."""
        x = value.operands
        match value.operation:
            case "number":
                return getattr(value.number, "name", f"{value.number:g}"), ATOM
            case "identity":
                return f"I_{_size(value, 0)}", ATOM
            case "add":
                return f"{self._operand(x[0], SUM)} + {self._operand(x[1], SUM)}", SUM
            case "subtract":
                return f"{self._operand(x[0], SUM)} - {self._operand(x[1], PRODUCT)}", SUM
            case "hadamard" if value.is_scalar:
                return f"{self._operand(x[0], SCALED)}·{self._operand(x[1], UNARY)}", SCALED
            case "hadamard":
                return f"{self._operand(x[0], PRODUCT)} ⊙ {self._operand(x[1], UNARY)}", PRODUCT
            case "gate":
                return f"{self._operand(x[0], PRODUCT)} ⊙ [{self._operand(x[1], SUM)} ≥ 0]", PRODUCT
            case "negative":
                return f"-{self._operand(x[0], UNARY)}", SCALED
            case "scale":
                return f"{self._operand(x[0], ATOM)}·{self._operand(x[1], UNARY)}", SCALED
            case "divide":
                return f"{self._operand(x[0], SCALED)} / {self._operand(x[1], ATOM)}", PRODUCT
            case "power":
                base = self._operand(x[0], ATOM)
                return f"{f'({base})' if base[0] == '-' else base}^{self._operand(x[1], ATOM)}", UNARY
            case "matmul":
                return f"{self._operand(x[0], UNARY)} {self._operand(x[1], ATOM)}", PRODUCT
            case "add_scaled":
                return self._sum(self._operand(x[0], SUM), x[1], self._operand(x[2], UNARY)), SUM
            case "product_sum":
                beta, C, alpha, A, B = x
                product = f"{self._operand(A, UNARY)} {self._operand(B, ATOM)}"
                if alpha.number == 1:
                    return self._sum(product, beta, self._operand(C, UNARY)), SUM
                return self._sum(self._scaled(beta, self._operand(C, UNARY)), alpha, product), SUM
            case "sparse_product":
                return f"{self._operand(x[1], ATOM)} {self._operand(x[2], ATOM)}", PRODUCT
            case "sparse_transposed_product":
                return f"{self._operand(x[1], ATOM)}ᵀ {self._operand(x[2], ATOM)}", PRODUCT
            case "sampled_product":
                return self._sampled(x[0], x[1], x[2]), PRODUCT
            case "sampled_sum":
                S, beta, C, alpha, A, B = x
                return self._sum(self._scaled(beta, self._operand(C, UNARY)), alpha, self._sampled(S, A, B)), SUM
            case "transpose":
                return f"{self._operand(x[0], ATOM)}ᵀ", ATOM
            case "reciprocal":
                return f"1/{self._operand(x[0], ATOM)}", UNARY
            case "step":
                return f"[{self._operand(x[0], SUM)} ≥ 0]", ATOM
            case "full":
                return self._operand(x[0], ATOM), ATOM
            case "row_repeat":
                return f"1_{_size(value, 0)} {self._operand(x[0], ATOM)}", UNARY
            case "column_repeat":
                return f"{self._operand(x[0], ATOM)} 1_{_size(value, 1)}ᵀ", UNARY
            case "copy":
                return self._operand(x[0], SUM), SUM
        arguments = [self._operand(operand, SUM) for operand in x]
        return f"{value.operation}({', '.join(arguments)})", ATOM

    def _sampled(self, S: Value, A: Value, B: Value) -> str:
        """A Bᵀ on the support S."""
        factor = self._operand(B.operands[0], ATOM) if B.operation == "transpose" else f"{self._operand(B, ATOM)}ᵀ"
        return f"({self._operand(A, UNARY)} {factor})_{self._operand(S, ATOM)}"

    def _scaled(self, factor: Value, text: str) -> str:
        return text if factor.number == 1 else f"{self._operand(factor, ATOM)}·{text}"

    def _sum(self, first: str, factor: Value, term: str) -> str:
        """first + factor·term, with the sign of the factor as operator."""
        if factor.number is not None:
            sign, size = ("-", -factor.number) if factor.number < 0 else ("+", factor.number)
            return f"{first} {sign} {term}" if size == 1 else f"{first} {sign} {size:g}·{term}"
        if factor.operation == "negative" and factor not in self.names:
            return f"{first} - {self._operand(factor.operands[0], ATOM)}·{term}"
        return f"{first} + {self._operand(factor, ATOM)}·{term}"


def state_name(name: str) -> str:
    """The name of an entry of the state in equations: W1 for '1.W', W1.delta for '1.W.delta', W3.1 for '3.1.W'."""
    state = re.fullmatch(r"([\d.]+)\.(\w+)(.*)", name)
    if state is None:
        return {"eta": "η"}.get(name, name)
    layer, parameter, rest = state.groups()
    return f"{parameter}{layer}{rest}"


def _size(value: Value, axis: int) -> str:
    return str(size_name(value.shape[axis]))


def _sizes(value: Value) -> str:
    return "×".join(_size(value, axis) for axis in range(len(value.shape)))
