"""Every rewriting of a program is proved for all sizes, and a rule that is wrong is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import matgrad as mg
from cli_support import succeed
from matgrad.matrix_operations import (
    columns_sum,
    exp,
    hadamard,
    ones,
    row_repeat,
    rows_max,
    rows_sum,
    stack,
    step,
    unstack,
)
from matgrad.program import Program, Value, record, rules, sharding
from matgrad.program.passes import Equality, Shares, proved, shares
from matgrad.program.sharding import COLUMNS, ROWS, SUM, WHOLE, sharded

MODELS = [
    ("ReLU;BatchNormalization;Softmax", [4, 5, 3], "CrossEntropy", {}),
    ("GELU;LayerNormalization;LogSoftmax", [4, 6, 3], "LogProbability", {}),
    ("SReLU;Linear", [4, 7, 3], "SquaredError", {"optimizers": "Adam"}),
    ("ReLU;Linear", [6, 8, 3], "SoftmaxCrossEntropy", {"densities": "ER(0.5)", "optimizers": "Momentum(0.9)"}),
    ("Conv(2, 3, act=ReLU);MaxPool(2);Linear", ["8x8x1", 3], "SoftmaxCrossEntropy", {}),
]


def of_model(layers, sizes, loss, settings) -> Program:
    """A training step as it is recorded."""
    mg.manual_seed(1)
    return mg.create_model(layers, sizes, **settings).program(loss=loss, batch_size=10, fused=False)


def of_every_rule() -> Program:
    """A program in which rules apply that training steps have no use for."""

    def f(C, D, b, **_):
        return {
            "C": hadamard(C.T.T, step(D)) - 3 * ones(3, 5, like=C) + 1 * row_repeat(b, 3),
            "D": unstack(stack(D, 5), 5) + 2 * C,
            "b": columns_sum(C) - rows_sum((C + D).T).T,
        }

    shapes = {"C": (3, 5), "D": (3, 5), "b": (1, 5)}
    return record(lambda _, inputs: f(**inputs), {name: (shape, "float64") for name, shape in shapes.items()})


def test_every_rule_is_proved():
    fired: Counter[str] = Counter()
    for program in (*(of_model(*model) for model in MODELS), of_every_rule()):
        equality = Equality()
        proved(program, equality)
        assert not equality.unproved, equality
        fired += equality.proved
    known = (*rules.SIMPLIFICATIONS, *rules.TRANSPOSITIONS, *rules.FUSIONS, rules.contiguous)
    assert {rule.__name__ for rule in known} <= {*fired}


def of_operands(name: str, change) -> rules.Rule:
    """The rule of this name, with something else done to the operands of its result."""

    def mutant(value: Value, uses: rules.Uses) -> Value | None:
        found = getattr(rules, name)(value, uses)
        return found if found is None else replace(found, operands=change(found.operands))

    mutant.__name__ = name
    return mutant


MUTANTS = {
    "gated": [lambda x: x[::-1], lambda x: (x[1], x[1])],
    "added_scaled": [lambda x: (x[2], x[1], x[0]), lambda x: (x[0], replace(x[1], number=7.0), x[2])],
    "summed_into_product": [
        lambda x: (*x[:2], x[0], *x[3:]) if len(x) == 5 else (*x[:1], x[3], x[2], x[1], *x[4:]),
        lambda x: (
            *x[:-4],
            replace(x[-4], order=0),
            *x[-3:-1],
            replace(x[-1], operation="negative", operands=(x[-1],)),
        ),
    ],
    "scaled_constant": [lambda x: (replace(x[0], number=5.0),)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_refused(name, monkeypatch):
    for number, change in enumerate(MUTANTS[name]):
        for group in ("SIMPLIFICATIONS", "FUSIONS"):
            own = getattr(rules, group)
            mutants = tuple(of_operands(name, change) if rule.__name__ == name else rule for rule in own)
            monkeypatch.setattr(rules, group, mutants)
        programs = [of_model(*MODELS[0]), of_model(*MODELS[3]), of_every_rule()]
        found = Equality()
        for program in programs:
            proved(program, found)
        assert {x.rule for x in found.unproved} == {name}, (number, str(found))
        monkeypatch.undo()


def test_an_output_that_is_another_value_is_refused(monkeypatch):
    program, equality = of_every_rule(), Equality()
    own = rules.optimized
    monkeypatch.setattr(
        rules,
        "optimized",
        lambda p, watch: (q := own(p, watch)) and Program(q.inputs, q.outputs | {"C": q.outputs["D"]}),
    )
    proved(program, equality)
    assert "the output C" in str(equality)


def test_the_command_proves_a_compilation():
    text = succeed("program", "--layers", "ReLU;Linear", "--layer-sizes", "4;5;3", "--batch-size", "7", "--prove")
    assert "proved for all sizes" in text
    assert "NOT PROVED" not in text
    layers = ("--layers", "ReLU;Linear", "--layer-sizes", "4;5;3", "--batch-size", "7")
    assert "consecutive rows" in succeed("program", *layers, "--ranks", "2", "--prove")


@pytest.mark.parametrize("placements", [sharding.data_parallel, sharding.shared_optimizer])
def test_ranks_together_have_what_one_has(placements):
    for model in MODELS:
        program, found = of_model(*model), Shares()
        sharded(program, placements(program, 2), 0, 2, found.prove)
        known = ("sparse", "sampled", "scatter", "gather")  # which have no entries in index notation
        assert all(line.removeprefix("NOT PROVED: ").startswith(known) for line in found.unproved), found
        assert {ROWS, SUM} <= {*found.proved}


def test_a_wrong_way_to_share_out_is_refused():
    def f(A, B, C, **_):
        return {"y": A @ B, "z": hadamard(C, C), "u": columns_sum(C), "v": rows_max(C)}

    shapes = {"A": (4, 6), "B": (6, 8), "C": (4, 8)}
    program = record(lambda _, inputs: f(**inputs), {name: (shape, "float64") for name, shape in shapes.items()})
    product, square, total, greatest = (program.outputs[name] for name in "yzuv")
    right = [
        (product, [ROWS, WHOLE], ROWS),
        (product, [COLUMNS, ROWS], SUM),
        (product, [SUM, WHOLE], SUM),
        (square, [SUM, WHOLE], SUM),
        (total, [ROWS], SUM),
        (total, [COLUMNS], COLUMNS),
        (greatest, [COLUMNS], SUM),  # the maximum over the ranks
    ]
    for value, needs, placement in right:
        assert shares(value, needs, placement), (value.operation, needs, placement)
        for wrong in {*sharding.Placement} - {placement}:
            assert not shares(value, needs, wrong), (value.operation, needs, wrong)
    assert not shares(square, [SUM, SUM], SUM)
    assert not shares(product, [COLUMNS, WHOLE], SUM)


def test_a_wrong_sharder_is_refused(monkeypatch):
    shapes = {"C": ((4, 8), "float64"), "d": ((1, 8), "float64")}
    program = record(lambda _, inputs: {"d": exp(columns_sum(inputs["C"]))}, shapes)
    for is_mutant in (False, True):
        found = Shares()
        if is_mutant:  # e^Σ is not Σ e^x
            monkeypatch.setattr(sharding._Sharder, "_stays_sum", lambda self, x: self.own[x.operands[0]][1] == SUM)
        sharded(program, {"C": ROWS}, 0, 2, found.prove)
        assert ("exp of operands in sum" in str(found)) is is_mutant
