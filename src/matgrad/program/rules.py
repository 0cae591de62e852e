"""Rules that make a program shorter, each with the equation it relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from matgrad.program.program import VIEWS, Program, Value, number

Uses = Counter[Value]
Rule = Callable[[Value, Uses], Value | None]  # an equal value that is cheaper, if there is one


def optimized(program: Program) -> Program:
    """The program after all rules: simplified, then fused, with nothing dead and nothing computed twice."""
    return apart(rewritten(rewritten(rewritten(program, SIMPLIFICATIONS), FUSIONS), ()))


def rewritten(program: Program, rules: Iterable[Rule]) -> Program:
    """The program with the rules applied to every value; equal expressions become one value."""
    uses = program.uses()
    new: dict[Value, Value] = {}
    known: dict[tuple, Value] = {}
    for value in program.values:
        operands = tuple(new[x] for x in value.operands)
        result = value if operands == value.operands else replace(value, operands=operands)
        uses[result] = uses[value]
        for rule in rules:
            result = rule(result, uses) or result
        new[value] = known.setdefault(result.key(), result)
        uses[new[value]] = max(uses[new[value]], uses[value])
    outputs = {name: new[value] for name, value in program.outputs.items()}
    return Program(program.inputs, outputs)


def apart(program: Program) -> Program:
    """The program with a copy for every output that is a view, a number, another input or output."""
    outputs: dict[str, Value] = {}
    end = max(value.order for value in program.values) + 1
    for name, value in program.outputs.items():
        is_other = value.operation == "input" and value.name != name
        is_shared = is_other or value.operation in ("number", *VIEWS) or value in outputs.values()
        copy = Value("copy", (value,), value.shape, value.dtype, order=end)
        outputs[name] = copy if is_shared else value
    return Program(program.inputs, outputs)


# -- simplifications ---------------------------------------------------------------------------


def transposed_twice(value: Value, uses: Uses) -> Value | None:
    """(Xᵀ)ᵀ = X"""
    match value:
        case Value(operation="transpose", operands=(Value(operation="transpose", operands=(X,)),)):
            return X
    return None


def times_one(value: Value, uses: Uses) -> Value | None:
    """1·X = X"""
    match value:
        case Value(operation="scale", operands=(Value(number=1), X)):
            return X
    return None


def scaled_constant(value: Value, uses: Uses) -> Value | None:
    """c·(d·1_mn) = (c·d)·1_mn"""
    match value:
        case Value(
            operation="scale", operands=(Value(operation="number") as c, Value(operation="full", operands=(d,)))
        ) if c.number is not None and d.number is not None:
            return value.derived("full", number(c.number * d.number, c))
    return None


SIMPLIFICATIONS: tuple[Rule, ...] = (transposed_twice, times_one, scaled_constant)


# -- fusions -----------------------------------------------------------------------------------


def gated(value: Value, uses: Uses) -> Value | None:
    """A ⊙ step(Z) is a_ij where z_ij ≥ 0, and 0 elsewhere: one pass; relu is Z ⊙ step(Z)"""
    match value:
        case Value(operation="hadamard", operands=(A, Value(operation="step", operands=(Z,)))):
            return value.derived("gate", A, Z)
        case Value(operation="hadamard", operands=(Value(operation="step", operands=(Z,)), A)):
            return value.derived("gate", A, Z)
    return None


def summed_into_product(value: Value, uses: Uses) -> Value | None:
    """β·C + α·A B is one product that starts with β·C instead of 0: biases, Δ' = μ·Δ - η·DZᵀ X"""
    for sign, C, P in _terms(value):
        alpha, product = _factor(P)
        if product.operation == "matmul" and uses[product] == 1 and uses[P] == 1:
            beta, C = _factor(C)
            A, B = product.operands
            result = value.derived("product_sum", beta, C, _times(sign, alpha), A, B)
            return replace(result, equation=product.equation)  # which takes most of the time
    return None


def added_scaled(value: Value, uses: Uses) -> Value | None:
    """Y + c·X in one pass"""
    for sign, Y, P in _terms(value):
        c, X = _factor(P)
        if X is not P and uses[P] == 1:
            return value.derived("add_scaled", Y, _times(sign, c), X)
    return None


FUSIONS: tuple[Rule, ...] = (gated, summed_into_product, added_scaled)


def _terms(value: Value) -> list[tuple[int, Value, Value]]:
    """(s, Y, P) for every way to write a sum or difference of matrices as Y + s·P."""
    if value.is_scalar or value.operation not in ("add", "subtract"):
        return []
    X, Y = value.operands
    if value.operation == "add":
        return [(1, X, Y), (1, Y, X)]
    return [(-1, X, Y)]


def _factor(value: Value) -> tuple[Value, Value]:
    """(c, X) with value = c·X."""
    match value:
        case Value(operation="scale", operands=(c, X)):
            return c, X
        case Value(operation="negative", operands=(X,)):
            return number(-1, value), X
    return number(1, value), value


def _times(sign: int, c: Value) -> Value:
    """sign·c for a scalar c."""
    if sign == 1:
        return c
    return number(-c.number, c) if c.number is not None else Value("negative", (c,), (), c.dtype, order=c.order)
