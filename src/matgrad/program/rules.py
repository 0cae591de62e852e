"""Rules that make a program shorter or faster, each with the equation it relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from matgrad.program.operations import OPERATIONS, STACKS
from matgrad.program.program import EXAMPLES, Program, Value, number

ONES = ("gather", "scatter")  # products with a matrix that is 1 on a support
PADDED = ("sparse_product", "sparse_transposed_product")
Uses = Counter[Value]
Rule = Callable[[Value, Uses], Value | None]  # an equal value that is cheaper, if there is one
Watch = Callable[[Rule, Value, Value], None]  # is told which value a rule puts for another


def optimized(program: Program, watch: Watch | None = None) -> Program:
    """The program after all rules: simplified, then fused, with nothing dead and nothing computed twice."""
    for rules in (SIMPLIFICATIONS, TRANSPOSITIONS, FUSIONS, (contiguous,), ()):
        program = rewritten(program, rules, watch)
    return with_separate_outputs(with_plain_stacks(scalars_first(program)))


def scalars_first(program: Program) -> Program:
    """The program in which scalars made of given ones come after the inputs: they part nothing that makes one pass."""
    last = max((x.order for x in program.inputs.values()), default=0)
    return program.mapped(lambda value, x: replace(x, order=last) if x.is_free else x)


def rewritten(program: Program, rules: Iterable[Rule], watch: Watch | None = None) -> Program:
    """The program with the rules applied to every value; equal expressions become one value."""
    uses = program.uses()
    known: dict[tuple[Any, ...], Value] = {}

    def rewrite(value: Value, result: Value) -> Value:
        uses[result] = uses[value]
        for rule in rules:
            before, result = result, rule(result, uses) or result
            if watch and result is not before:
                watch(rule, before, result)
        result = known.setdefault(result.key(), result)
        uses[result] = max(uses[result], uses[value])
        return result

    return program.mapped(rewrite)


def with_separate_outputs(program: Program) -> Program:
    """The program in which every output has memory of its own.

    An output that is a view, a number, another input, another output, a sparse product or a dense factor of one becomes
    a copy of it: the C++ core has padded rows in sparse products, which the memory of an output does not have.
    """
    unsuitable, outputs = _without_own_memory(program), dict[str, Value]()
    end = max(value.order for value in program.values) + 1
    for name, value in program.outputs.items():
        is_taken = value in outputs.values() or (value.operation == "input" and value.name != name)
        copy = Value("copy", (value,), value.shape, value.dtype, order=end)
        outputs[name] = copy if is_taken or value in unsuitable else value
    return Program(program.inputs, outputs)


def with_plain_stacks(program: Program) -> Program:
    """The program in which every stack, and every unstack, is a view of rows that follow each other in memory.

    A transpose, a repetition, a number, a sparse product or a dense factor of one is copied before it is stacked.
    """
    unsuitable = _without_own_memory(program)
    copies: dict[Value, Value] = {}

    def with_copy(value: Value, result: Value) -> Value:
        if value.operation not in STACKS:
            return result
        (X,), (own,) = value.operands, result.operands
        if X.operation in STACKS or X not in unsuitable:
            return result
        copy = Value("copy", (own,), X.shape, X.dtype, equation=value.equation, order=value.order)
        return replace(result, operands=(copies.setdefault(X, copy),))

    return program.mapped(with_copy)


def with_separate_exchange(program: Program) -> Program:
    """The program in which every collective has an operand with memory of its own, which it may overwrite.

    A collective of a view, an input, a number, a sparse product or a dense factor of one becomes that of a copy; so
    does one that overwrites its operand, of a value that anything else reads, in whatever order.
    """
    unsuitable, uses = _without_own_memory(program), program.uses()

    def with_copy(value: Value, result: Value) -> Value:
        if value.kind != "collective":
            return result
        (X,) = value.operands
        # it leaves its result where its operand was, or the sum of which it takes a part
        overwrites = OPERATIONS[value.operation].in_place or value.operation.startswith("reduce_scatter")
        if X.kind != "source" and X not in unsuitable and not (overwrites and uses[X] > 1):
            return result
        copy = Value("copy", result.operands, X.shape, X.dtype, equation=value.equation, order=value.order)
        return replace(value, operands=(copy,))

    return program.mapped(with_copy)


def _without_own_memory(program: Program) -> set[Value]:
    """Views and numbers, and what has padded rows in the C++ core: sparse products and their dense factors."""
    factors = {x for value in program.values if value.kind == "sparse" for x in _dense_operands(value)}
    return factors | {x for x in program.values if x.kind == "view" or x.operation in ("number", *PADDED)}


# -- sparse examples: X Wᵀ reads rows of Wᵀ, and DWᵀ = Xᵀ DZ has rows for the features that occur -----------

TRANSPOSED = "ᵀ"  # how the name of an input ends that is stored transposed


def transposed_names(program: Program) -> set[str]:
    """The inputs W whose transposes are multiplied by sparse examples, and what optimizers keep for them."""
    products = (x for x in program.values if x.operation == "sparse_product" and _is_of_examples(x))
    factors = (x.operands[2] for x in products if x.operands[2].operation == "transpose")
    found = {x.operands[0].name for x in factors if x.operands[0].operation == "input"}
    return {
        name
        for name, x in program.inputs.items()
        for W in found
        if f"{name}.".startswith(f"{W}.") and x.shape == program.inputs[W].shape
    }


def with_transposed(program: Program, names: Iterable[str]) -> Program:
    """The program whose inputs and outputs of these names are stored transposed, with the names Wᵀ for W."""
    given = [X for name, X in program.inputs.items() if name in set(names)]
    stored = {X: replace(X, shape=X.shape[::-1], name=X.name + TRANSPOSED) for X in given}
    result = program.mapped(lambda X, new: _flip(stored[X]) if X in stored else new)
    for X, new in stored.items():
        del result.inputs[X.name]
        result.inputs[new.name] = new
        if X.name in result.outputs:
            result.outputs[new.name] = _flip(result.outputs.pop(X.name))
    return result


def _is_of_examples(value: Value) -> bool:
    """Whether an operation on a sparse matrix is one on sparse examples."""
    return value.operands[0].name == EXAMPLES


# -- simplifications ---------------------------------------------------------------------------


def transposed_twice(value: Value, uses: Uses) -> Value | None:
    """(Xᵀ)ᵀ = X"""
    is_twice = value.operation == "transpose" == value.operands[0].operation
    return value.operands[0].operands[0] if is_twice else None


def stacked_twice(value: Value, uses: Uses) -> Value | None:
    """unstack(stack(X, p), p) = X, stack(unstack(U, p), p) = U, and stack(stack(X, p), r) = stack(X, p·r)"""
    if value.operation not in STACKS or value.operands[0].operation not in STACKS:
        return None
    ((inner,),) = (x.operands for x in value.operands)
    if tuple(map(int, inner.shape)) == tuple(map(int, value.shape)):
        return inner
    return value.derived(value.operation, inner) if value.operands[0].operation == value.operation else None


def times_one(value: Value, uses: Uses) -> Value | None:
    """1·X = X"""
    return value.operands[1] if value.operation == "scale" and value.operands[0].number == 1 else None


def scaled_constant(value: Value, uses: Uses) -> Value | None:
    """c·(d·1_mn) = (c·d)·1_mn"""
    match value:
        case Value(operation="scale", operands=(Value(number=c), Value(operation="full", operands=(Value(number=d),)))):
            return None if c is None or d is None else value.derived("full", number(c * d, value.operands[0]))
    return None


SIMPLIFICATIONS: tuple[Rule, ...] = (transposed_twice, stacked_twice, times_one, scaled_constant)


# -- transpositions: what follows a sparse product stays transposed, with contiguous batches -------------


def transposed_elements(value: Value, uses: Uses) -> Value | None:
    """f(Xᵀ, Yᵀ) = f(X, Y)ᵀ"""
    if value.kind != "elementwise" or not any(map(_is_transposed, value.operands)):
        return None
    known = [y for x in value.operands if (y := x if x.is_scalar else _transpose(x, uses)) is not None]
    is_complete = len(known) == len(value.operands)
    return _transposed(value, value.derived(value.operation, *known)) if is_complete else None


TURNED = {"row_repeat": "column_repeat", "columns_sum": "rows_sum", "columns_max": "rows_max"}
TURNED |= {other: operation for operation, other in TURNED.items()} | {"all_reduce": "all_reduce"}


def turned(value: Value, uses: Uses) -> Value | None:
    """1ᵀ Xᵀ = (X 1)ᵀ, 1_m xᵀ = (x 1_mᵀ)ᵀ, and likewise for the other sums, maxima and repetitions

    Likewise Σ Xᵀ = (Σ X)ᵀ over the ranks: a matrix is sent, not a view of one.
    """
    if value.operation in TURNED and _is_transposed(value.operands[0]):
        return _transposed(value, value.derived(TURNED[value.operation], value.operands[0].operands[0]))
    return None


def _is_transposed(value: Value) -> bool:
    """Whether it is the transpose of a computed value, or of an input that is stored transposed."""
    if value.operation != "transpose":
        return False
    X = value.operands[0]
    return X.kind not in ("source", "view") or X.name.endswith(TRANSPOSED)


def _transpose(value: Value, uses: Uses) -> Value | None:
    """The transpose of an operand, if it costs nothing."""
    flipped = replace(value, shape=value.shape[::-1], name="", composed=None)
    match value:
        case Value(operation="transpose", operands=(X,)):
            return X
        case Value(operation="full", operands=(c,)):
            return replace(flipped, operands=(c,))
        case Value(operation="row_repeat" | "column_repeat", operands=(x,)):
            return replace(flipped, operation=TURNED[value.operation], operands=(_flip(x),))
        case Value(operation="matmul", operands=(A, B)) if uses[value] == 1:
            return replace(flipped, operands=(_flip(B), _flip(A)))
    return None


def _flip(value: Value) -> Value:
    """Xᵀ"""
    if value.operation == "transpose":
        return value.operands[0]
    return Value("transpose", (value,), value.shape[::-1], value.dtype, order=value.order)


def _transposed(value: Value, result: Value) -> Value:
    """The value as the transpose of `result`."""
    name = f"{value.name}ᵀ" if value.name else ""
    inner = replace(result, shape=value.shape[::-1], name=name, composed=None)
    return Value("transpose", (inner,), value.shape, value.dtype, equation=value.equation, order=value.order)


TRANSPOSITIONS: tuple[Rule, ...] = (turned, transposed_elements, transposed_twice)


def contiguous(value: Value, uses: Uses) -> Value | None:
    """A sparse product reads rows of its dense operands: what has other memory is copied once, for all products"""
    if value.kind != "sparse":
        return None

    def readable(x: Value) -> Value:
        is_bound = x.operation == "input" or x.kind == "collective"  # its memory is the caller's: rows are not padded
        is_turned = x.kind == "view" and not (value.operation in ONES and x.operation in STACKS)
        needs_copy = is_turned or (is_bound and x in _dense_operands(value))
        return replace(x, operation="copy", operands=(x,), name="", composed=None) if needs_copy else x

    return value.derived(value.operation, *map(readable, value.operands))


def _dense_operands(value: Value) -> tuple[Value, ...]:
    """The dense factors of a sparse or sampled product, which are padded in the C++ core."""
    if _is_of_examples(value) or value.operation in ("transposed_sum", "dense", *ONES):
        return ()
    return value.operands[-1:] if value.operation.startswith("sparse") else value.operands[-2:]


# -- fusions -----------------------------------------------------------------------------------


def gated(value: Value, uses: Uses) -> Value | None:
    """A ⊙ step(Z) in one pass, with elements a_ij·[z_ij ≥ 0], which are nan where a_ij is; relu is Z ⊙ step(Z)"""
    if value.operation == "hadamard":
        for A, S in (value.operands, value.operands[::-1]):
            if S.operation == "step":
                return value.derived("gate", A, *S.operands)
    return None


PRODUCT_SUMS = {
    "matmul": "product_sum",
    "sampled_product": "sampled_sum",
    "sparse_transposed_product": "transposed_sum",  # of sparse examples
}


def summed_into_product(value: Value, uses: Uses) -> Value | None:
    """β·C + α·A B is one product that starts with β·C instead of 0: biases, Δ' = μ·Δ - η·DZᵀ X

    Likewise β·C + α·(A Bᵀ)_S on a support S, and β·C + α·Xᵀ B for sparse examples X: W'ᵀ = Wᵀ - η·Xᵀ DZ.
    """
    for sign, C, P in _terms(value):
        alpha, product = _factor(P)
        is_fitting = product.operation != "sparse_transposed_product" or _is_of_examples(product)
        if product.operation in PRODUCT_SUMS and is_fitting and uses[product] == 1 and uses[P] == 1:
            beta, C = _factor(C)
            *support, A, B = product.operands
            result = value.derived(PRODUCT_SUMS[product.operation], *support, beta, C, _times(sign, alpha), A, B)
            return replace(result, equation=product.equation)  # the product takes most of the time
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
    return [(1, X, Y), (1, Y, X)] if value.operation == "add" else [(-1, X, Y)]


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
