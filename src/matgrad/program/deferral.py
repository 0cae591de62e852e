"""Values without memory of their own: the C++ core computes them where they are read, a part at a time in the cache.

Each rule opens with its equation, and says which values need no memory; their readers read their operands instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from matgrad.program.buffers import Instruction, Plan, base
from matgrad.program.operations import DENSE_PRODUCTS, STACKS
from matgrad.program.program import Program, Value


class Reading(Instruction):
    """An instruction that reads some values through deferred ones, and so not element by element."""

    through: frozenset[Value] = frozenset()

    def may_overwrite(self, old: Value, new: Value) -> bool:
        """Whether `new` can be computed in the memory of `old`, whose elements are read before."""
        return old not in self.through and super().may_overwrite(old, new)


def plan(program: Program) -> Plan:
    """The memory of a program in the C++ core, where deferred values have none."""
    found = deferred(program)

    def roots(value: Value) -> Iterator[Value]:
        value = base(value)
        if value not in found:
            yield value
        else:
            for x in value.operands:
                yield from roots(x)

    instructions: list[Instruction] = []
    for value in program.values:
        if value.kind not in ("source", "view") and value not in found:
            operands = dict.fromkeys(root for x in value.operands for root in roots(x))
            instruction = Reading(written=[value], operands=list(operands))
            instruction.through = frozenset(root for x in value.operands if base(x) in found for root in roots(x))
            instructions.append(instruction)
    return Plan(program, instructions)


class Uses:
    """Who reads each value, which are outputs, and which have been deferred so far."""

    def __init__(self, program: Program) -> None:
        self.outputs, self.deferred = set(program.outputs.values()), set[Value]()
        self.readers: dict[Value, list[Value]] = defaultdict(list)
        for value in program.values:
            for x in dict.fromkeys(value.operands):
                self.readers[x].append(value)

    def only(self, value: Value, *readers: Value) -> bool:
        """Whether a value is read by these alone, or by views that are."""
        own = value not in self.outputs and bool(self.readers[value])
        return own and all(x in readers or (x.kind == "view" and self.only(x, *readers)) for x in self.readers[value])


Rule = Callable[[Value, Uses], tuple[Value, ...]]


def deferred(program: Program) -> set[Value]:
    """The values that need no memory."""
    uses = Uses(program)
    for rule in RULES:
        for value in program.values:
            uses.deferred.update(rule(value, uses))
    return uses.deferred


def shared(DX: Value, uses: Uses) -> tuple[Value, ...]:
    """unstack((h 1ᵀ) ⊙ [R ≥ 0], P) E, with R = S - max(S)_row 1ᵀ, h = D ⊙ 1/([R ≥ 0] 1) and S = stack(X Eᵀ, P)

    The gradients D of maxima go to the greatest elements of windows, in equal shares.
    """
    G = _followed(DX, ("scatter", 1), ("unstack", 0))
    R, h = _followed(G, ("gate", 1)), _followed(G, ("gate", 0), ("column_repeat", 0))
    S, Y = _followed(R, ("subtract", 0)), _followed(R, ("subtract", 1), ("column_repeat", 0))
    is_known = h and S and Y and h.operation == "hadamard" and Y.operation == "rows_max" and Y.operands == (S,)
    E = DX.operands[0] if is_known else None
    if not (E and G and R and h and _followed(S, ("stack", 0), ("gather", 0)) is E and _is_whole(E)):
        return ()
    for r in h.operands:
        sums = _followed(r, ("reciprocal", 0))
        M = _followed(sums, ("rows_sum", 0))
        if sums and M and _followed(M, ("step", 0)) is R:
            inner = (G, h, r, sums, M, R)
            return inner if all(uses.only(x, DX, *inner) for x in inner) else ()
    return ()


def windows(U: Value, uses: Uses) -> tuple[Value, ...]:
    """stack(X Eᵀ, P) B, A stack(X Eᵀ, P), max(stack(X Eᵀ, P))_row: windows of X are read, and X Eᵀ is not written"""
    if U.operation != "gather" or not _has_rows(U.operands[1]) or len(uses.readers[U]) != 1:
        return ()
    (S,) = uses.readers[U]
    readers = [x for x in uses.readers[S] if x in uses.deferred or _reads_windows(x, S, U.operands[0])]
    return (U,) if S.operation == "stack" and uses.only(U, *readers) and uses.readers[S] == readers else ()


def added_windows(DX: Value, uses: Uses) -> tuple[Value, ...]:
    """unstack(A B, P) E: the rows of A B are added to windows of the rows of DX, and A B is not written"""
    product = _followed(DX, ("scatter", 1), ("unstack", 0))
    if not product or product.operation != "matmul" or any(base(x) in uses.deferred for x in product.operands):
        return ()
    return (product,) if uses.only(product, DX) else ()


RULES: tuple[Rule, ...] = (shared, windows, added_windows)


def _followed(value: Value | None, *path: tuple[str, int]) -> Value | None:
    """The operand of the operand … of a value, for operations and places; None if it has other ones."""
    for operation, k in path:
        if value is None or value.operation != operation:
            return None
        value = value.operands[k]
    return value


def _reads_windows(value: Value, S: Value, E: Value) -> bool:
    """Whether a value can read the rows of S by windows."""
    if value.operation not in DENSE_PRODUCTS:
        return value.operation == "rows_max" and _is_whole(E)
    *others, A, B = value.operands
    return S not in others and {base(A).operation, base(B).operation} != {"gather"} and S in (A, B)


def _is_whole(E: Value) -> bool:
    """Whether no element of a window is 0."""
    rows, _, nnz = E.shape
    return rows == nnz


def _has_rows(X: Value) -> bool:
    """Whether the rows of X are in memory, one element after the other."""
    while X.operation in STACKS:
        (X,) = X.operands
    return X.kind != "view" and X.operation != "number"
