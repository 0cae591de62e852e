"""Values without memory of their own: the C++ core computes them where they are read, a part at a time in the cache.

Each rule opens with its equation, and says which values need no memory; their readers read their operands instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from matgrad.program.buffers import Instruction, Plan, base, in_place_operands
from matgrad.program.operations import STACKS
from matgrad.program.program import Program, Value

Readers = dict[Value, list[Value]]  # of each value; an output has itself, twice
Rule = Callable[[Value, Readers, set[Value]], Iterable[Value]]
PRODUCTS = ("matmul", "product_sum")


class Reading(Instruction):
    """An instruction that reads some values through deferred ones, not element by element."""

    through: frozenset[Value] = frozenset()

    def may_overwrite(self, old: Value, new: Value) -> bool:
        return old not in self.through and super().may_overwrite(old, new)


def plan(program: Program) -> Plan:
    """The memory of a program in the C++ core, where deferred values have none."""
    found = deferred(program)

    def roots(value: Value) -> Iterator[Value]:
        value = base(value)
        if value in found:
            for x in value.operands:
                yield from roots(x)
        else:
            yield value

    instructions: list[Instruction] = []
    for value in program.values:
        if value.kind in ("source", "view") or value in found:
            continue
        instruction = Reading(written=[value], operands=list(dict.fromkeys(r for x in value.operands for r in roots(x))))
        instruction.through = frozenset(r for x in value.operands if base(x) in found for r in roots(x))
        instructions.append(instruction)
    return Plan(program, instructions)


def deferred(program: Program) -> set[Value]:
    """The values that need no memory."""
    readers: Readers = defaultdict(list)
    for value in program.values:
        for x in dict.fromkeys(value.operands):
            readers[x].append(value)
    for value in program.outputs.values():
        readers[value] += [value, value]  # it is kept: no rule has two equal readers
    found: set[Value] = set()
    for rule in RULES:
        for value in program.values:
            found.update(rule(value, readers, found))
    return found


def shared(DX: Value, readers: Readers, found: set[Value]) -> Iterable[Value]:
    """unstack((h 1ᵀ) ⊙ [R ≥ 0], P) E, with R = S - max(S)_row 1ᵀ, h = D ⊙ 1/([R ≥ 0] 1) and S = stack(X Eᵀ, P)

    The gradients D of maxima go to the greatest elements of windows, in equal shares.
    """
    match DX:
        case Value(
            operation="scatter",
            operands=(
                E,
                Value(
                    operation="unstack",
                    operands=(
                        Value(
                            operation="gate",
                            operands=(
                                Value(operation="column_repeat", operands=(Value(operation="hadamard") as h,)) as H,
                                Value(
                                    operation="subtract",
                                    operands=(S, Value(operation="column_repeat", operands=(Y,)) as Z),
                                ) as R,
                            ),
                        ) as G,
                    ),
                ) as V,
            ),
        ):
            pass
        case _:
            return ()
    shares = [x for x in h.operands if x.operation == "reciprocal"]
    if Y.operation != "rows_max" or Y.operands != (S,) or not _is_of_windows(S, E) or len(shares) != 1:
        return ()
    (sums,) = shares[0].operands
    M = sums.operands[0] if sums.operation == "rows_sum" else sums
    if M.operation != "step" or M.operands != (R,) or Z not in readers[Y]:
        return ()
    inner = {V: [DX], G: [V], H: [G], h: [H], shares[0]: [h], sums: [shares[0]], M: [sums], R: [M, G], Z: [R]}
    return (G, h, shares[0], sums, M, R) if all(readers[x] == y for x, y in inner.items()) else ()


def windows(U: Value, readers: Readers, found: set[Value]) -> Iterable[Value]:
    """stack(X Eᵀ, P) B, A stack(X Eᵀ, P) and max(stack(X Eᵀ, P))_row: X is read by windows, and X Eᵀ is never written"""
    if U.operation != "gather" or not _has_rows(U.operands[1]) or len(readers[U]) != 1:
        return ()
    (S,) = readers[U]
    return (U,) if S.operation == "stack" and all(x in found or _reads_windows(x, S) for x in readers[S]) else ()


def _is_of_windows(S: Value, E: Value) -> bool:
    """Whether S is stack(X Eᵀ, P)."""
    return S.operation == "stack" and S.operands[0].operation == "gather" and S.operands[0].operands[0] is E


def _reads_windows(value: Value, S: Value) -> bool:
    """Whether a value can read the rows of S by windows."""
    if value.operation in PRODUCTS:
        return [k for k, x in enumerate(value.operands) if x is S] in ([len(value.operands) - 2], [len(value.operands) - 1])
    return value.operation == "rows_max"


def added_windows(DX: Value, readers: Readers, found: set[Value]) -> Iterable[Value]:
    """unstack(A B, P) E: the rows of A B are added to windows of the rows of DX, and A B is never written"""
    if DX.operation != "scatter" or DX.operands[1].operation != "unstack":
        return ()
    S = DX.operands[1]
    (product,) = S.operands
    return (product,) if product.operation == "matmul" and readers[product] == [S] and readers[S] == [DX] else ()


RULES: tuple[Rule, ...] = (shared, windows, added_windows)


def _has_rows(X: Value) -> bool:
    """Whether the rows of X are in memory, one element after the other."""
    while X.operation in STACKS:
        (X,) = X.operands
    return X.kind != "view" and X.operation != "number"
