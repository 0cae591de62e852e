"""The paper's lemmas and derivations hold for SymPy, and every altered step is found and named."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import sympy as sp

from matgrad.activation_functions import ACTIVATIONS
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.verdicts import label_of
from matgrad.loss_functions import LOSSES
from matgrad.proofs.statements import Lemma, Step
from matgrad.specifications.models import LAYERS
from matgrad.symbolic.derivations import SymPyAlgebra, check_lemma, statements
from matgrad.symbolic.equality import compare, random_point, symbols
from support import DATA

ALL = statements()
PAPER = DATA.parent / "paper.tex"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside the checkout")


@cache
def steps_of(name: str) -> tuple[Step, ...]:
    (lemma,) = (lemma for lemma in ALL if lemma.name == name)
    return tuple(lemma.steps(SymPyAlgebra()))


def each(test):
    return pytest.mark.parametrize("lemma", ALL, ids=lambda lemma: lemma.name)(test)


def is_zero(A: sp.Matrix) -> bool:
    """Whether all elements are zero at a random point."""
    variables = sorted(A.free_symbols, key=str)
    values = dict(zip(variables, map(sp.Float, random_point(variables, random.Random(0))), strict=True))
    return all(abs(sp.N(x.xreplace(values))) < 1e-9 for x in A)


def alterations(right: sp.Matrix) -> Iterator[sp.Matrix]:
    """Matrices that differ from `right`."""
    m, n = right.shape
    yield right + sp.Matrix(m, n, lambda i, j: int((i, j) == (m - 1, n - 1)))
    if right.atoms(sp.Function) - right.atoms(sp.exp, sp.log, sp.Max):
        return
    if not is_zero(right):
        yield -right
    if m != n or not is_zero(right - right.T):
        yield right.T


@each
def test_lemma_holds(lemma):
    check = check_lemma(lemma)
    assert check.ok, check.message
    assert (check.name, check.label, check.message) == (lemma.name, lemma.label, "")
    file, line = check.location.split(":")
    definition, docstring = Path(file).read_text().splitlines()[int(line) - 1 :][:2]
    assert definition.startswith(f"def {lemma.name.replace(' ', '_')}(")
    assert docstring.strip().strip('"') == check.source


def test_no_lemma_is_vacuous():
    assert len({lemma.name for lemma in ALL}) == len(ALL)
    for lemma in ALL:
        sizes = list(lemma.sizes.values())
        assert min(sizes) >= 3
        assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    "lemma", [pytest.param(x, id=x.name, marks=() if i % 4 == 0 else pytest.mark.slow) for i, x in enumerate(ALL)]
)
def test_every_altered_step_is_reported(lemma):
    steps = steps_of(lemma.name)
    for index, step in enumerate(steps):
        for right in alterations(step.right):
            altered = Lemma(lemma.name, lemma.label, lambda a, step=step, right=right: [step._replace(right=right)], {})
            check = check_lemma(altered)
            assert not check.ok, f"{lemma.name}, step {index + 1} ({step.text})"
            assert check.message.startswith(f"{lemma.name} is wrong: step 1 ({step.text}) is wrong")


def test_message_names_step_row_column_and_both_entries():
    x = symbols("x", 2, 3)

    def steps(a: SymPyAlgebra) -> list[Step]:
        """x = x"""
        wrong = x.copy()
        wrong[1, 2] = -x[1, 2]
        return [Step("x = x", x, x), Step("the sign", x, wrong)]

    check = check_lemma(Lemma("test", "eq:none", steps, {}))
    assert not check.ok
    first, *rest = check.message.splitlines()
    assert first == "test is wrong: step 2 (the sign) is wrong at row 1, column 2:"
    assert rest == ["  found     x_23", "  expected  -x_23", f"  in {check.location}: x = x"]
    assert re.fullmatch(r".*test_derivations\.py:\d+", check.location)


def test_lemma_without_steps_does_not_hold():
    check = check_lemma(Lemma("nothing", "eq:none", lambda a: [], {}))
    assert not check.ok
    assert check.message.startswith("nothing is wrong: it has no steps")


def test_column_sum_is_zero_only_under_its_assumption():
    """Where z is not built from a centered r, the last step of the column's derivation does not hold."""
    N, z, Dz = 4, symbols("z", 4, 1), symbols("Dz", 4, 1)
    I, one = sp.eye(N), sp.ones(N, 1)
    product = (N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N) @ Dz
    assert not compare(product, (N * I - one @ one.T) @ Dz - z @ z.T @ Dz).ok


@needs_paper
def test_every_equation_with_a_label_is_covered():
    """By a lemma, or beside an equation in the source of a layer, loss or activation function."""
    layers = [*LAYERS.values()]
    names = [(cls, e.name) for cls in layers for method in METHODS for e in equations(cls, method)]
    names += [(cls, name) for cls in (*LOSSES.values(), *ACTIVATIONS.values()) for name in ("value", "gradient")]
    names += [(cls, f"D{parameter}") for cls in layers for parameter in ("X", *cls.parameters)]
    covered = {lemma.label for lemma in ALL} | {label_of(*name) for name in names}
    labels = set(re.findall(r"\\label\{((?:eq|appendix):[^}]*)\}", PAPER.read_text()))
    assert {lemma.label for lemma in ALL} <= labels
    equation_labels = {label for label in labels if label.startswith("eq:")}
    assert len(equation_labels) >= 25
    definitions = {"eq:linear-layer-feedforward", "eq:softmax-layer-feedforward"}  # Y, which has no label in the source
    assert equation_labels - covered == definitions
