"""The teeth of the proofs: every mutant of the package that computes something else is refused."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor

import pytest
from equivalents import EQUIVALENT
from mutants import Mutant, Target, mutants, targets, unchanged
from mutation import patched
from special_mutants import ATTRIBUTES, names_of, special_mutants

from matgrad.judges.suite import ALL_SIZES, cases

# equivalent, but only because NumPy broadcasts, or for some α: proofs are for all of them
ONLY_IN_NUMBERS = ("NumPy broadcasts", "NumPy repeats", "0 < α < 1")
# what proofs are not about: the initial state, defaults, and optimizers
KINDS = ("size", "range")
# which the sample of the symbolic checks leaves out, as those take seconds for one mutant
SLOW_OWNERS = ("SoftmaxLayer", "LogSoftmaxLayer", "SReLULayer")


def refused_by(target: Target) -> str:
    """The first equation of those with the target that is not proved; '' if all are."""
    checks = (check for case in cases(names_of(target), judges=[ALL_SIZES]) for check in case.run())
    return next((f"{check.name} [{check.sizes}]" for check in checks if not check.ok), "")


def refusal(mutant: Mutant) -> str:
    with patched(mutant):
        return refused_by(mutant.target)


def is_wrong(mutant: Mutant) -> bool:
    """Whether the verdict on a mutant is wrong: those that compute something else, and only those, must be refused."""
    reason = EQUIVALENT.get(mutant.key, "")
    if reason.startswith(ONLY_IN_NUMBERS):
        return False
    return bool(refusal(mutant)) == bool(reason)


def is_wrong_by_number(number: int) -> bool:
    return is_wrong(mutants()[number])


@pytest.mark.parametrize("target", targets()[::12], ids=str)
def test_patching_alone_is_not_noticed(target: Target):
    assert refusal(unchanged(target)) == ""


def test_a_sample_of_mutants_is_refused():
    sample = random.Random(5).sample(mutants(), 22)
    for owner in SLOW_OWNERS:
        sample += random.Random(5).sample([m for m in mutants() if m.target.owner.__name__ == owner], 2)
    assert not [str(mutant) for mutant in sample if is_wrong(mutant)]


def test_equivalent_mutants_are_proved():
    equivalent = [mutant for mutant in mutants() if mutant.key in EQUIVALENT]
    assert len(equivalent) > 20
    assert not [str(mutant) for mutant in equivalent[::3] if is_wrong(mutant)]


def test_a_sample_of_mutants_that_are_right_almost_everywhere_is_refused():
    listed = [m for m in special_mutants() if m.kind in KINDS]
    assert len(listed) > 300
    assert not [str(m) for m in random.Random(6).sample(listed, 12) if differs(m) and not refusal(m)]


def differs(mutant: Mutant) -> bool:
    """Whether it computes something else than the original; those that do not are never reached, or cancel."""
    from special_mutants import differs_from, values

    original = values(mutant.target)
    with patched(mutant):
        return differs_from(original, mutant.target)


@pytest.mark.parametrize(("cls", "name", "value"), [x for x in ATTRIBUTES if "Optimizer" not in x[0].__name__], ids=str)
def test_wrong_constants_and_flags_are_refused(monkeypatch: pytest.MonkeyPatch, cls: type, name: str, value):
    monkeypatch.setattr(cls, name, value)
    assert refused_by(Target(cls, name))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_is_refused():
    numbers = range(len(mutants()))
    with ProcessPoolExecutor(2) as pool:
        wrong = pool.map(is_wrong_by_number, numbers, chunksize=8)
        assert not [str(mutants()[i]) for i, is_it in zip(numbers, wrong, strict=True) if is_it]
