"""The terms of a recorded program: the entry of each value, operation by operation, by the index definitions."""

from __future__ import annotations

from typing import Any

from matgrad.backends.base import Backend
from matgrad.certificates.terms import Apply, NotPrintableError, Symbol, Term, mapped, substituted, term_of
from matgrad.index_notation.expressions import Entry, Expression, Index, of
from matgrad.program.entries import BACKEND, SYMBOLIC, IndexMatrix, entry_at, indices_of
from matgrad.program.operations import COMPOSED, ROWS
from matgrad.program.program import Value

OPERAND = "operand."


def own_indices(value: Value) -> tuple[Index, ...]:
    """The indices of an entry; none of a size of 1."""
    return tuple(part for i in indices_of(value.shape) for part in i.parts)


def expanded(value: Value) -> Value:
    """A composed operation as the operations that it consists of."""
    while value.operation in COMPOSED and value.operation != "call":
        operands = map(SYMBOLIC.matrix, value.operands)
        found = getattr(Backend, value.operation)(BACKEND, *operands).value
        if found is value:
            raise NotPrintableError(value.operation)
        value = found
    return value


def operands_of(value: Value) -> tuple[Value, ...]:
    """The operands of a value, none of which is composed; numbers are not among them."""
    return tuple(expanded(x) for x in value.operands if x.operation != "number")


def is_symbol(value: Value) -> bool:
    """Whether a value is an input with arbitrary entries, and not a matrix of expressions."""
    match [*entry_at(value).terms.items()]:
        case [(((Entry(indices=found, is_unit=False, variable="") as f, 1),), 1)]:
            return value.operation == "input" and found == own_indices(value) and bool(f.name)
    return False


def symbol_of(value: Value) -> Entry:
    """The entry of an input."""
    (f,) = entry_at(value).factors()
    assert isinstance(f, Entry)
    return f


def definition(value: Value) -> Term:
    """The entry of a value in terms of entries of its operands, which are the symbols operand.0, operand.1, …"""
    if value.operation == "input":
        return term_of(entry_at(value))
    if value.operation == "number":
        return term_of(entry_at(value))
    known: list[IndexMatrix] = []
    row, given = ROWS[value.operation], list[Any]()
    for x in value.operands:
        if x.operation == "number":
            given.append(SYMBOLIC.matrix(x))
            continue
        name = f"{OPERAND}{len(known)}"
        known.append(IndexMatrix(x.shape, of(Entry(name, indices_of(x.shape))), name))
        given.append(known[-1])
    if value.operation == "call":  # f(X), or f.gradient(X)
        f, _, method = value.function.partition(".")
        return Apply(f + "'" * bool(method), term_of(given[0].entry))
    if row.index is None:
        raise NotPrintableError(f"the operation {row.name}")
    if row.kind == "elementwise":
        return term_of(row.index(*(X.entry for X in given)))
    found: Expression = row.index(*indices_of(value.shape), *(X if X.value.shape else X.entry for X in given))
    return term_of(found)


class Reader:
    """The terms of values, in which those of operands are put."""

    def __init__(self) -> None:
        self.known: dict[Value, Term] = {}

    def term(self, value: Value) -> Term:
        """The entry at the indices of its shape."""
        value = expanded(value)
        if value not in self.known:
            operands = operands_of(value)

            def put(x: Term) -> Term | None:
                if not isinstance(x, Symbol) or not x.name.startswith(OPERAND):
                    return None
                operand = operands[int(x.name.removeprefix(OPERAND))]
                return substituted(self.term(operand), dict(zip(own_indices(operand), x.indices, strict=True)))

            self.known[value] = mapped(definition(value), put)
        return self.known[value]
