"""Memory of collectives: what they read and write has named buffers of its own, and is copied where it must be."""

from __future__ import annotations

import pytest

from matgrad.program import Program, Value, optimized
from matgrad.program.buffers import Plan, exchanged
from matgrad.program.rules import with_separate_exchange, with_separate_outputs

A = Value("input", (), (4, 3), name="a")
STEP = Value("input", (), (), name="eta")


def of(operation: str, *operands: Value, shape=(4, 3), order: int = 1) -> Value:
    return Value(operation, operands, shape, order=order)


def program(*outputs: Value, inputs: tuple[Value, ...] = (A, STEP)) -> Program:
    return Program({x.name: x for x in inputs}, {f"y{i}": value for i, value in enumerate(outputs)})


SQUARE = of("hadamard", A, A)
SUM = of("all_reduce", SQUARE, order=2)


def names(found: Program) -> list[tuple[str, str]]:
    return [(value.operation, name) for value, name in exchanged(found).items()]


def copies(found: Program) -> list[str]:
    """The operations of what is copied."""
    return [value.operands[0].operation for value in found.values if value.operation == "copy"]


def test_names_follow_the_order_of_the_program_and_collectives_in_place_keep_them():
    received = of("receive", of("send", SQUARE, order=2), order=3)
    part = of("reduce_scatter_rows", of("exp", received, order=4), shape=(2, 3), order=5)
    assert names(program(of("all_gather_rows", part, order=6))) == [
        ("hadamard", "exchange 0"),
        ("send", "exchange 0"),
        ("receive", "exchange 0"),
        ("exp", "exchange 1"),
        ("reduce_scatter_rows", "exchange 2"),
        ("all_gather_rows", "exchange 3"),
    ]
    assert exchanged(program(SQUARE)) == {}


def test_nothing_else_is_ever_in_an_exchanged_buffer():
    later = SUM
    for i in range(3):  # each could work in place, and the first be in the memory of an output
        later = of("exp", later, order=3 + i)
    found = Plan(program(later))
    held = [value.operation for value, buffer in found.buffers.items() if buffer.name == "exchange 0"]
    assert held == ["hadamard", "all_reduce"]


def test_an_output_that_is_exchanged_is_copied_to_its_own_buffer_at_the_end():
    taken = of("take_rows", SQUARE, shape=(2, 3), order=2)
    found = Plan(program(taken, SQUARE))
    assert [(to.name, source.name) for to, source in found.copies] == [("y0", "exchange 1"), ("y1", "exchange 0")]


S, W = Value("support", (), (5, 4, 3), name="S"), Value("input", (), (1, 3), name="w")
PRODUCT = of("sparse_product", S, W, SQUARE, shape=(5, 3), order=2)
UNSUITABLE = {
    "an input": program(of("take_rows", A, shape=(2, 3))),
    "a view": program(of("all_max", of("transpose", SQUARE, shape=(3, 4)), shape=(3, 4), order=2)),
    "a number": program(of("all_reduce", Value("number", number=2), shape=())),
    "a scalar of the caller": program(of("all_reduce", STEP, shape=())),
    "a sparse product": program(of("all_gather_rows", PRODUCT, shape=(10, 3), order=3), inputs=(A, W)),
    "a dense factor": program(of("take_rows", SQUARE, shape=(2, 3), order=1), PRODUCT, inputs=(A, W)),
    "a value that is read later": program(of("add", SUM, of("exp", SQUARE, order=3), order=4)),
    "a value whose view is read later": program(of("transpose", SQUARE, shape=(3, 4), order=3), SUM),
    "an output": program(SUM, SQUARE),
    "a value that is read before, now": program(of("add", SUM, of("exp", SQUARE, order=1), order=4)),
    "a value of which a part of the sum is taken": program(
        of("exp", SQUARE, order=1), of("reduce_scatter_rows", SQUARE, shape=(2, 3), order=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUITABLE)
def test_what_a_collective_cannot_have_alone_is_copied_before_it(case: str):
    before = UNSUITABLE[case]
    after = with_separate_exchange(before)
    collective = next(value for value in before.values if value.kind == "collective")
    assert copies(after) == [collective.operands[0].operation]
    assert next(value for value in after.values if value.kind == "collective").operands[0].operation == "copy"
    Plan(with_separate_outputs(after))
    assert [value.operation for value in with_separate_exchange(after).values] == [x.operation for x in after.values]


@pytest.mark.parametrize("case", ["an input", "a view", "a number", "a value that is read later", "an output"])
def test_a_plan_refuses_what_should_have_been_copied(case: str):
    with pytest.raises(ValueError, match="copy of"):
        Plan(UNSUITABLE[case])


def test_collectives_of_one_value_have_a_copy_each():
    found = with_separate_exchange(program(SUM, of("all_max", SQUARE, order=3)))
    assert copies(found) == ["hadamard", "hadamard"]
    assert [name for _, name in names(found)] == ["exchange 0", "exchange 0", "exchange 1", "exchange 1"]


@pytest.mark.parametrize(
    "fine",
    [
        program(SUM),
        program(of("receive", of("send", SQUARE, order=2), order=3)),
        program(of("take_rows", SQUARE, shape=(2, 3), order=2), SQUARE),  # not in place
        program(of("exp", of("all_max", SUM, order=3), order=4)),
    ],
    ids=str,
)
def test_what_a_collective_has_alone_is_not_copied(fine: Program):
    assert with_separate_exchange(fine).values == fine.values


def test_a_sparse_product_reads_a_copy_of_the_result_of_a_collective():
    product = of("sparse_product", S, W, SUM, shape=(5, 3), order=3)
    found = with_separate_exchange(optimized(program(product, inputs=(A, W))))
    assert copies(found) == ["all_reduce", "sparse_product"]  # the second for the output
    assert next(value for value in found.values if value.operation == "sparse_product").operands[2].operation == "copy"
