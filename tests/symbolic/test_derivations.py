"""The paper's lemmas and derivations hold, and every altered step is found and named."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import sympy as sp

from matgrad.inspection.verdicts import Check
from matgrad.symbolic.checks.equality import compare, random_point, symbols
from matgrad.symbolic.derivations import Derivation, Step, check_derivation, derivations
from matgrad.symbolic.derivations import steps as steps_module
from support import DATA

ALL = derivations()
PAPER = DATA.parent / "paper.tex"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside the checkout")


@cache
def compare_once(found: sp.ImmutableMatrix, expected: sp.ImmutableMatrix):
    return compare(found.as_mutable(), expected.as_mutable())


@pytest.fixture(autouse=True)
def _comparisons_are_kept(monkeypatch):
    """Two matrices are compared once, as every altered step comes after the same unaltered ones."""
    monkeypatch.setattr(steps_module, "compare", lambda a, b: compare_once(a.as_immutable(), b.as_immutable()))


@cache
def checked(derivation: Derivation) -> Check:
    return check_derivation(derivation)


@cache
def steps_of(derivation: Derivation) -> tuple[Step, ...]:
    return tuple(derivation.steps())


def each(test):
    return pytest.mark.parametrize("derivation", ALL, ids=lambda d: d.name)(test)


def is_zero(A: sp.Matrix) -> bool:
    """Whether all elements are zero at a random point."""
    variables = sorted(A.free_symbols, key=str)
    values = dict(zip(variables, map(sp.Float, random_point(variables, random.Random(0))), strict=True))
    return all(abs(sp.N(x.xreplace(values))) < 1e-9 for x in A)


def alterations(right: sp.Matrix) -> Iterator[tuple[str, sp.Matrix]]:
    """Matrices that differ from `right`, with the name of the difference."""
    m, n = right.shape
    yield "last element + 1", right + sp.Matrix(m, n, lambda i, j: int((i, j) == (m - 1, n - 1)))
    if not is_zero(right):
        yield "sign", -right
        yield "zero", right * 0
    if m != n or not is_zero(right - right.T):
        yield "transposed", right.T


# -- they hold ---------------------------------------------------------------------------------


@each
def test_derivation_holds(derivation):
    check = checked(derivation)
    assert check.ok, check.message
    assert (check.name, check.label, check.sizes) == (derivation.name, derivation.label, derivation.sizes)
    assert check.message == ""
    assert check.seconds < 20, f"{check.name}: {check.seconds} s"


def test_names_differ():
    assert len({d.name for d in ALL}) == len(ALL)


@each
def test_location_is_that_of_the_function_with_the_steps(derivation):
    check = checked(derivation)
    file, line = check.location.split(":")
    definition, docstring = Path(file).read_text().splitlines()[int(line) - 1 :][:2]
    assert definition.startswith(f"def {derivation.name.replace(' ', '_')}(")
    assert docstring.strip().strip('"') == check.source


# -- nothing is vacuous ------------------------------------------------------------------------


@each
def test_sizes_are_at_least_three_and_all_different(derivation):
    sizes = [int(size) for size in re.findall(r"=(\d+)", derivation.sizes)]
    assert min(sizes) >= 3
    assert len(set(sizes)) == len(sizes)


def test_only_column_sums_of_normalized_columns_are_zero():
    zero = [step.text for d in ALL for step in steps_of(d) if is_zero(step.right)]
    assert zero == ["1_Nᵀ r = 0", "1_Nᵀ z = 0, as z = σ^(-1/2) r"]


@pytest.mark.parametrize(
    ("name", "gradient", "size"),
    [
        ("softmax layer DZ", "DY", (3, 5)),
        ("log softmax layer DZ", "DY", (3, 5)),
        ("batch normalization column", "Dz", (4, 1)),
        ("batch normalization DX", "DZ", (4, 3)),
    ],
)
def test_upstream_gradient_is_arbitrary(name, gradient, size):
    """Each element of a gradient that is compared depends on the symbols of the upstream gradient."""
    (derivation,) = (d for d in ALL if d.name == name)
    G = symbols(gradient, *size)
    gradients = [s for s in steps_of(derivation) if s.left.free_symbols >= set(G)]
    assert len(gradients) >= 2
    assert all(x.free_symbols & set(G) for s in gradients for x in (*s.left, *s.right))


def test_column_sum_is_zero_only_under_its_assumption():
    """Where z is not built from a centered r, the last step of the column's derivation does not hold."""
    N, z, Dz = 4, symbols("z", 4, 1), symbols("Dz", 4, 1)
    I, one = sp.eye(N), sp.ones(N, 1)
    product = (N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N) @ Dz
    assert not compare(product, (N * I - one @ one.T) @ Dz - z @ z.T @ Dz).ok
    assert not is_zero(one.T @ z)


# -- an altered step is found ------------------------------------------------------------------


@each
def test_every_altered_step_is_reported(derivation):
    steps = steps_of(derivation)
    for index, step in enumerate(steps):
        for kind, right in alterations(step.right):
            altered = (*steps[:index], replace(step, right=right), *steps[index + 1 :])
            check = check_derivation(replace(derivation, steps=lambda altered=altered: altered))

            context = f"{derivation.name}, step {index + 1} ({step.text})"
            assert not check.ok, f"{context}, {kind}"
            assert check.message.startswith(f"{context} is wrong"), f"{kind}: {check.message}"
            if right.shape != step.left.shape:
                assert ": found a matrix of size" in check.message
                continue
            row, column = map(int, re.search(r"at row (\d+), column (\d+):", check.message).groups())
            assert f"found     {step.left[row, column]}\n" in check.message
            assert f"expected  {right[row, column]}\n" in check.message
            if kind == "last element + 1":
                assert (row + 1, column + 1) == right.shape


def test_message_names_step_row_column_and_both_entries():
    x = symbols("x", 2, 3)

    def steps() -> list[Step]:
        """x = x"""
        wrong = x.copy()
        wrong[1, 2] = -x[1, 2]
        return [Step("x = x", x, x), Step("the sign", x, wrong)]

    check = check_derivation(Derivation("test", "eq:none", "m=2 n=3", steps))
    assert not check.ok
    first, *rest = check.message.splitlines()
    assert first == "test, step 2 (the sign) is wrong at row 1, column 2:"
    assert rest == ["  found     x_23", "  expected  -x_23", f"  in {check.location}: x = x"]
    assert re.fullmatch(r".*test_derivations\.py:\d+", check.location)
    assert check.source == "x = x"


def test_derivation_without_steps_does_not_hold():
    check = check_derivation(Derivation("nothing", "eq:none", "", lambda: []))
    assert not check.ok
    assert check.message == "nothing has no steps"


# -- the paper ---------------------------------------------------------------------------------


@needs_paper
@each
def test_label_is_in_the_paper(derivation):
    assert rf"\label{{{derivation.label}}}" in PAPER.read_text()


@needs_paper
def test_every_equation_with_a_label_is_covered():
    labels = set(re.findall(r"\\label\{(eq:[^}]*)\}", PAPER.read_text()))
    assert len(labels) >= 25
    assert labels - {d.label for d in ALL} == set()


@needs_paper
def test_every_lemma_property_and_derivation_is_covered():
    """Where an environment or a derivation has no label of its own, its name says which it is."""
    paper = PAPER.read_text()
    covered = {d.label for d in ALL}
    for text in re.findall(r"\\begin\{(?:lemma|property)\}(.*?)\\end\{(?:lemma|property)\}", paper, re.DOTALL):
        inside = set(re.findall(r"\\label\{(eq:[^}]*)\}", text))
        assert inside
        assert inside <= covered
    sections = re.findall(r"\\subsection\{Derivations\}(.*?)\n\\(?:sub)?section", paper, re.DOTALL)
    titles = [title.replace("-", " ") for text in sections for title in re.findall(r"\\paragraph\{([^}]*)\}", text)]
    assert len(titles) == 7
    for title in titles:
        kind = title.removesuffix(" layer").removesuffix(" loss")
        assert any(d.name.startswith(kind) for d in ALL), title
