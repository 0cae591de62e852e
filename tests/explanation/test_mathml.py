"""MathML of the equations that this package writes: well formed, with every symbol and nothing left of LaTeX."""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree

import pytest

import matgrad as mg
from matgrad.explanation.html import mathml
from matgrad.inspection.latex import function_latex, mode_latex
from matgrad.judges.suite import example_of
from matgrad.loss_functions import LOSSES
from matgrad.program.text import program_latex
from matgrad.specifications.models import LAYERS

EQUATIONS = {
    f"{equation} {k}": latex
    for layer in dict.fromkeys(LAYERS.values())
    for equation, found in mode_latex(example_of(layer)).items()
    for k, latex in enumerate(found)
}
GRADIENTS = {name: function_latex(loss().gradient) for name, loss in LOSSES.items()}


def text_of(latex: str) -> str:
    """All characters of the formula, without spaces."""
    root = ElementTree.fromstring(mathml(latex))
    assert root.tag == "{http://www.w3.org/1998/Math/MathML}math"
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", "".join(root.itertext())))


def test_nothing_of_latex_is_left():
    for name, latex in (EQUATIONS | GRADIENTS).items():
        assert not re.search(r"[\\&{}$^_]", text_of(latex).replace("one_hot(", "")), name


def test_the_lines_of_a_program():
    lines = program_latex(mg.create_model("ReLU;Softmax", [3, 4, 2]).program()).split(r"\begin{align*}")[1]
    for line in lines.split(r"\end{align*}")[0].split(r"\\"):
        assert not re.search(r"[\\&{}$^_]", text_of(line.replace("&", "")))


@pytest.mark.parametrize("latex", [r"\text{<b>&lt;i></b>}", r"\mathrm{a<b}", r"a < b", r"a \& b"])
def test_what_is_text_stays_text(latex):
    root = ElementTree.fromstring(mathml(latex))  # well formed
    assert not {element.tag.partition("}")[2] for element in root.iter()} & {"b", "i"}
