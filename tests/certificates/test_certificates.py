"""Certificates: theorems that Coq accepts, and those of wrong gradients, which it does not."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from matgrad.certificates.claims import (
    INSTALL,
    certified,
    gradient_certificate,
    is_installed,
    refused,
    write_certificates,
)
from matgrad.certificates.terms import NotPrintableError
from matgrad.certificates.theorems import Certificate, derivative_certificate
from matgrad.index_notation.expressions import Entry, of
from matgrad.index_notation.functions import exp as index_exp
from matgrad.index_notation.indices import Index
from matgrad.index_notation.sums import summed_over
from matgrad.matrix_operations import columns_sum, elements_sum, exp, hadamard
from matgrad.program.entries import symbols
from matgrad.program.shapes import Size
from page_support import ROOT

needs_coq = pytest.mark.skipif(not is_installed(), reason=INSTALL)
# changes of the definition of the gradient in the certificates of some equations, each of which makes it wrong
WRONG = {
    "LinearLayer_DW_all_sizes": [("(X k3 j)", "(X k3 i)"), ("sum N", "sum K")],
    "LinearLayer_Db_all_sizes": [("sum N", "2 * sum N")],
    "SoftmaxLayer_DZ_all_sizes": [("(v13 Z i j)", "1")],
    "BatchNormalizationLayer_DX_all_sizes": [("* (v", "* 2 * (v")],
    "MeanSquaredErrorLoss_gradient_all_sizes": [("(v", "2 * (v")],
}


def certificates(*names: str) -> dict[str, Certificate]:
    """The certificates of layers, losses and functions by name."""
    return {x.name: x for item in certified(names) for x in item.certificates}


def test_a_theorem_is_about_what_the_code_computes():
    text = certificates("Linear")["LinearLayer_DW_all_sizes"].text
    for line in (
        "Definition v1 (W : nat -> nat -> R) (i j : nat) : R := (W j i).",
        "Definition v2 (W : nat -> nat -> R) (i j : nat) : R := (sum D (fun k3 => ((X i k3) * (v1 W k3 j)))).",
        "Definition DW (i j : nat) : R := (sum N (fun k3 => ((v7 i k3) * (X k3 j)))).",
        "Theorem certified : is_derive (fun t => (L (put2 W a b t))) (W a b) (DW a b).",
    ):
        assert line in text


def test_a_hypothesis_says_where_a_derivative_exists():
    (found,) = [x for x in certificates("ReLU").values() if x.name.startswith("ReLUActivation_gradient")]
    assert re.search(r"Hypothesis H_l1 : forall p0 p1 : nat, .* \(X p1 p0\) <> 0\.", found.text)


def test_what_is_wrong_is_not_printed():
    X, G = (symbols(name, Size("N"), Size("K")) for name in "XG")
    value = elements_sum(hadamard(G, exp(X))).value
    derivative_certificate("right", value, X.value, hadamard(G, exp(X)).value, is_split=False)
    for wrong in (G, exp(X), hadamard(G, exp(-X)), hadamard(G, exp(X)) * 2):
        for is_split in (False, True):
            with pytest.raises(NotPrintableError):
                derivative_certificate("wrong", value, X.value, wrong.value, is_split)
    assert columns_sum(X).shape  # of the table


@needs_coq
def test_coq_accepts_what_is_right_and_refuses_what_is_wrong(tmp_path: Path):
    right = certificates("Linear")["LinearLayer_DW_all_sizes"]
    assert not refused(write_certificates(tmp_path, [right]), is_deep=False)
    wrong = Certificate(right.name, changed(right.text, *WRONG[right.name][0]), "Wrong")
    assert "Error" in refused(write_certificates(tmp_path, [wrong]), is_deep=False)


def changed(text: str, old: str, new: str) -> str:
    """The text with another definition of the claimed gradient, which is the last one."""
    lines = text.splitlines()
    place = max(i for i, line in enumerate(lines) if line.startswith("Definition D"))
    assert old in lines[place], lines[place]
    lines[place] = lines[place].replace(old, new, 1)
    return "\n".join(lines)


def test_gradients_of_foreign_code_are_printed():
    i, k = Index("i", "N"), Index("k", "K")
    z, g = (Entry(name, (i, k)) for name in "zg")
    value = summed_over([i, k], of(g) * index_exp(of(z)))
    found = gradient_certificate("Exp z", z, value, of(g) * index_exp(of(z)))
    assert "Theorem certified : is_derive" in found.text
    with pytest.raises(NotPrintableError):
        gradient_certificate("Exp z", z, value, index_exp(of(z)))


@needs_coq
@pytest.mark.slow
def test_coq_refuses_wrong_gradients(tmp_path: Path):
    found = certificates("Linear", "Softmax", "BatchNormalization", "MeanSquaredError")
    for name, changes in WRONG.items():
        for number, change in enumerate(changes):
            wrong = Certificate(name, changed(found[name].text, *change), f"Wrong{number}")
            assert "Error" in refused(write_certificates(tmp_path / name, [wrong]), is_deep=False), (name, change)


@needs_coq
@pytest.mark.slow
def test_coq_and_its_checker_accept_every_equation_that_can_be_printed(tmp_path: Path):
    found = list(certified())
    paths = write_certificates(tmp_path, (x for item in found for x in item.certificates))
    assert not refused(paths)
    record = json.loads((ROOT / "docs" / "certified.json").read_text())
    accepted = Counter(x.check.name for x in found if not x.problem)
    assert record["accepted"] == accepted, "matgrad verify --coq FOLDER --json | python docs/site/verified.py"
    assert len(accepted) > 60
