"""The verifier's teeth: every mutant of the package that computes something else is noticed."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from equivalents import EQUIVALENT
from mutants import Target, mutants, targets, unchanged
from mutation import differs, everything, judge_all, judge_special, killed_by, patched, report
from special_mutants import ATTRIBUTES, LISTED, special_mutants, verdict_of_verify

import matgrad as mg
from matgrad import layers, softmax_functions
from matgrad.judges.sympy_judge import check_layer
from matgrad.layers import linear

# whose checks take seconds: the proofs have mutants of these in their sample
SLOW_OWNERS = ("SoftmaxLayer", "LogSoftmaxLayer", "SReLULayer")
KINDS = {
    *("drop a term", "drop a factor", "drop a transpose", "drop a minus", "drop a function", "flip a sign", "swap"),
    *("swap names", "swap sizes", "near function", "times 2", "negative", "zero", "one branch", "change a number"),
}


def test_every_equation_has_mutants_of_several_kinds():
    assert len(mutants()) > 1400
    assert {mutant.kind for mutant in mutants()} >= KINDS
    # the errata of the paper; those that are missing are found by a rule as well
    assert sum(mutant.kind.startswith("ERRATA") for mutant in mutants()) >= 8
    counts = Counter(mutant.target for mutant in mutants())
    # these two only pass something on
    few = {"softmax_functions.stable_softmax_jacobian", "softmax_functions.stable_log_softmax_jacobian"}
    for target in targets():
        assert counts[target] >= (4 if str(target) not in few else 3), target


def test_patching_alone_changes_nothing():
    assert not [str(target) for target in targets() if differs(unchanged(target))]


def is_quick(target: Target) -> bool:
    return target.owner.__name__ not in SLOW_OWNERS


QUICK = [target for target in targets() if is_quick(target)][::10]


@pytest.mark.parametrize(
    "target", [pytest.param(x, id=str(x), marks=() if x in QUICK else pytest.mark.slow) for x in targets()]
)
def test_patching_alone_is_not_noticed_by_the_verifier(target: Target):
    assert killed_by(unchanged(target)) == ""


def test_a_patch_reaches_every_reference_and_is_taken_back():
    original = softmax_functions.stable_softmax
    mutant = next(m for m in mutants() if m.target.name == "stable_softmax" and m.kind == "zero")
    with patched(mutant):
        assert softmax_functions.stable_softmax is linear.stable_softmax is not original
    with pytest.raises(KeyError), patched(mutant):
        raise KeyError
    assert softmax_functions.stable_softmax is linear.stable_softmax is original
    backpropagate = vars(layers.LinearLayer)["backpropagate"]
    with patched(unchanged(Target(layers.LinearLayer, "backpropagate"))):
        assert vars(layers.LinearLayer)["backpropagate"] is not backpropagate
    assert vars(layers.LinearLayer)["backpropagate"] is backpropagate


def test_the_message_shows_the_equation_of_the_mutant():
    target = Target(layers.LinearLayer, "backpropagate")
    mutant = next(m for m in mutants() if m.target == target and m.after == "2 * columns_sum(DY)")
    with patched(mutant):
        wrong = [check for check in check_layer(mg.LinearLayer(2, 4)) if not check.ok]
    assert [check.name for check in wrong] == ["LinearLayer.Db"]
    assert "Db = 2 * columns_sum(DY)" in wrong[0].message


def test_equivalent_mutants_are_few_and_have_a_reason():
    equivalent = {mutant.key: mutant for mutant in mutants() if not differs(mutant)}
    unknown = [str(mutant) for key, mutant in equivalent.items() if key not in EQUIVALENT]
    assert not unknown, "equivalent, but no reason is given:\n" + "\n".join(unknown)
    stale = EQUIVALENT.keys() - equivalent.keys()
    assert not stale, f"these differ from torch, or are not generated: {stale}"
    assert len(equivalent) < 0.03 * len(mutants())


def test_a_sample_of_mutants_is_killed():
    quick = [i for i, mutant in enumerate(mutants()) if is_quick(mutant.target)]
    numbers = random.Random(4).sample(quick, 25)
    verdicts = judge_all(numbers)
    print(report(verdicts))
    assert not [str(v.mutant) for v in verdicts if v.survives]


# -- right almost everywhere ---------------------------------------------------------------------


def test_there_are_mutants_of_every_special_kind():
    assert {mutant.kind for mutant in special_mutants()} == {"size", "range", "state", "default", "second step"}
    assert len(special_mutants()) > 300


@pytest.mark.parametrize("number", range(4), ids=lambda number: str(special_mutants()[number].target))
def test_the_mutants_that_passed_all_tests_of_version_0_2_are_killed(number: int):
    verdict = judge_special(special_mutants()[number])
    assert verdict.killed_by, verdict.mutant


@pytest.mark.parametrize(("cls", "name", "value"), ATTRIBUTES, ids=str)
def test_wrong_constants_and_flags_are_noticed(monkeypatch: pytest.MonkeyPatch, cls: type, name: str, value):
    monkeypatch.setattr(cls, name, value)
    assert verdict_of_verify(Target(cls, name)) is not None


def test_a_sample_of_special_mutants_is_killed():
    first = len(mutants())
    quick = [i for i, mutant in enumerate(special_mutants(), start=first) if is_quick(mutant.target)]
    listed = random.Random(1).sample([i for i in quick if i < first + len(LISTED)], 6)
    generated = random.Random(2).sample([i for i in quick if i >= first + len(LISTED)], 8)
    verdicts = judge_all([*listed, *generated])
    print(report(verdicts))
    assert not [str(v.mutant) for v in verdicts if v.survives]
    assert sum(v.equivalent for v in verdicts) < 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_is_killed():
    verdicts = judge_all(range(len(everything())), processes=2)
    print(report(verdicts))
    assert not [str(v.mutant) for v in verdicts if v.survives]
