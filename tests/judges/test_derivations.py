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
from matgrad.inspection.equations import METHODS, equations, label_of
from matgrad.inspection.verdicts import Check
from matgrad.judges import sympy_judge
from matgrad.judges.algebra import Lemma, Step, Subject
from matgrad.judges.claims import of_lemma
from matgrad.judges.equality import compare, random_point, symbols
from matgrad.judges.lemmas import LEMMAS as ALL
from matgrad.judges.sympy_judge import SymPyAlgebra, verdicts
from matgrad.loss_functions import LOSSES
from matgrad.specifications.models import LAYERS
from support import DATA

PAPER = DATA.parent / "paper.tex"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside the checkout")


def check_lemma(lemma: Lemma) -> Check:
    (check,) = verdicts(Subject(lemma.name, of_lemma, lemma))
    return check


@cache
def steps_of(name: str) -> tuple[Step, ...]:
    (lemma,) = (lemma for lemma in ALL if lemma.name == name)
    return tuple(lemma.steps(SymPyAlgebra(lemma.sizes)))


@cache
def compare_once(found: sp.ImmutableMatrix, expected: sp.ImmutableMatrix):
    return compare(found.as_mutable(), expected.as_mutable())


@pytest.fixture(autouse=True)
def _comparisons_are_kept(monkeypatch):
    """Two matrices are compared once, as every altered step comes after the same unaltered ones."""
    monkeypatch.setattr(sympy_judge, "compare", lambda a, b: compare_once(a.as_immutable(), b.as_immutable()))


def is_zero(A: sp.Matrix) -> bool:
    """Whether all elements are zero at a random point."""
    A = sympy_judge._independent(A)
    variables = sorted(A.free_symbols, key=str)
    values = dict(zip(variables, map(sp.Float, random_point(variables, random.Random(0))), strict=True))
    return all(abs(sp.N(x.xreplace(values))) < 1e-9 for x in A)


def alterations(right: sp.Matrix) -> Iterator[sp.Matrix]:
    """Matrices that differ from `right`: the first in its last element, others by sign, in all elements, in size."""
    m, n = right.shape
    yield right + sp.Matrix(m, n, lambda i, j: int((i, j) == (m - 1, n - 1)))
    if not is_zero(right):
        yield from (-right, right * 0)
    if m != n or not is_zero(right - right.T):
        yield right.T


@pytest.mark.parametrize("lemma", ALL, ids=lambda lemma: lemma.name)
def test_a_lemma_holds_and_every_altered_step_is_found(lemma):
    check = check_lemma(lemma)
    assert check.ok, check.message
    assert (check.name, check.label, check.message) == (lemma.name, lemma.label, "")
    file, line = check.location.split(":")
    _, definition, docstring = Path(file).read_text().splitlines()[int(line) - 1 :][:3]
    assert definition.startswith(f"def {lemma.name.replace(' ', '_')}(")
    assert docstring.strip().strip('"') == check.source

    steps = steps_of(lemma.name)
    for index, step in enumerate(steps):
        for kind, right in enumerate(alterations(step.right)):
            altered = [*steps[:index], step._replace(right=right), *steps[index + 1 :]]
            message = check_lemma(Lemma(lemma.name, lemma.label, lambda a, altered=altered: altered, {})).message
            assert message.startswith(f"{lemma.name} does not hold: step {index + 1} ({step.text}) is wrong")
            if right.shape != step.left.shape:
                assert "found a matrix of size" in message
            elif kind == 0:
                m, n = right.shape
                assert f"at row {m}, column {n}:" in message


# -- nothing is vacuous ------------------------------------------------------------------------


def test_names_and_sizes_differ():
    assert len({lemma.name for lemma in ALL}) == len(ALL)
    for lemma in ALL:
        sizes = list(lemma.sizes.values())
        assert min(sizes) >= 3
        assert len(set(sizes)) == len(sizes)


def test_only_column_sums_of_normalized_columns_are_zero():
    zero = [step.text for lemma in ALL for step in steps_of(lemma.name) if is_zero(step.right)]
    assert zero == ["1_Nᵀ r = 0", "1_Nᵀ z = 0, as z = σ^(-1/2) r"]


@pytest.mark.parametrize(("kind", "gradient"), [("centering", "Dr"), ("scaling", "Dz"), ("column", "Dz")])
def test_the_upstream_gradient_is_arbitrary(kind, gradient):
    """Each element of a gradient that is compared depends on the symbols of the upstream gradient."""
    (lemma,) = (lemma for lemma in ALL if lemma.name == f"batch normalization {kind}")
    G = set(symbols(gradient, lemma.sizes["N"], 1))
    gradients = [step for step in steps_of(lemma.name) if step.left.free_symbols >= G]
    assert len(gradients) >= 2
    assert all(x.free_symbols & G for step in gradients for x in (*step.left, *step.right))


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
    assert first == "test does not hold: step 2 (the sign) is wrong at row 2, column 3:"
    assert rest == ["  found     x_23", "  expected  -x_23", f"  in {check.location}: x = x"]
    assert re.fullmatch(r".*test_derivations\.py:\d+", check.location)


def test_lemma_without_steps_does_not_hold():
    check = check_lemma(Lemma("nothing", "eq:none", lambda a: [], {}))
    assert not check.ok
    assert check.message.startswith("nothing does not hold: it has no steps")


def test_column_sum_is_zero_only_under_its_assumption():
    """Where z is not built from a centered r, the last step of the column's derivation does not hold."""
    N, z, Dz = 4, symbols("z", 4, 1), symbols("Dz", 4, 1)
    I, one = sp.eye(N), sp.ones(N, 1)
    product = (N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N) @ Dz
    problem = compare(product, (N * I - one @ one.T) @ Dz - z @ z.T @ Dz)
    assert problem


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


@needs_paper
def test_every_lemma_property_and_derivation_of_the_appendix_is_covered():
    """Where an environment or a derivation has no label of its own, its name says which it is."""
    paper, covered = PAPER.read_text(), {lemma.label for lemma in ALL}
    for text in re.findall(r"\\begin\{(?:lemma|property)\}(.*?)\\end\{(?:lemma|property)\}", paper, re.DOTALL):
        inside = set(re.findall(r"\\label\{(eq:[^}]*)\}", text))
        assert inside
        assert inside <= covered
    sections = re.findall(r"\\subsection\{Derivations\}(.*?)\n\\(?:sub)?section", paper, re.DOTALL)
    titles = [title.replace("-", " ") for text in sections for title in re.findall(r"\\paragraph\{([^}]*)\}", text)]
    assert len(titles) == 7
    for title in titles:
        kind = title.removesuffix(" layer").removesuffix(" loss")
        assert any(lemma.name.startswith(kind) for lemma in ALL), title
