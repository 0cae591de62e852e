"""The paper's labels beside the equations: each is one of the paper's, and it is found for what it stands beside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import matgrad as mg
from matgrad import softmax_functions
from matgrad.inspection.equations import label_of
from matgrad.judges.sympy_judge import check_layer
from matgrad.matrix_operations import hadamard
from support import DATA

PAPER = DATA.parent / "paper.tex"
SOURCE = Path(mg.__file__).parent
FILES = [*(SOURCE / "layers").glob("*.py"), *SOURCE.glob("*_functions.py"), SOURCE / "optimizers.py"]


def labels_in(path: Path) -> list[str]:
    return re.findall(r"# ((?:eq|appendix):\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside the checkout")
def test_every_label_in_the_source_is_one_of_the_paper():
    known = set(re.findall(r"\\label\{([^}]*)\}", PAPER.read_text(encoding="utf-8")))
    found = {label for path in FILES for label in labels_in(path)}
    assert len(found) >= 16
    assert found - known == set()


SE, ENTROPY = mg.SquaredErrorLoss, mg.SoftmaxCrossEntropyLoss
EXPECTED = [
    (mg.LinearLayer, "Y", "appendix:layers"),
    (mg.LinearLayer, "DW", "eq:dLdw"),
    (mg.ActivationLayer, "DW", "appendix:layers"),  # the paper's equation is that of the linear layer
    (mg.SoftmaxLayer, "R", "appendix:layers"),
    (mg.SoftmaxLayer, "DZ", "eq:softmax-layer-backprop1"),
    (mg.SoftmaxLayer, "DW", "eq:softmax-layer-backprop2"),
    (mg.BatchNormalizationLayer, "DX", "eq:batch-normalization-backpropagation"),
    (mg.BatchNormalizationLayer, "running_mean", "appendix:layers"),
    (mg.SReLULayer, "DW", ""),
    (SE, "value", "appendix:loss-functions"),
    (ENTROPY, "gradient", "eq:softmax-cross-entropy-derivation"),
    (ENTROPY, "mean_gradient", "appendix:loss-functions"),
    (mg.GELUActivation, "value", ""),
    (mg.NesterovOptimizer, "delta", "appendix:optimization"),
    (softmax_functions.softmax, "", "eq:softmax-multiple"),
    (softmax_functions.softmax_jacobian, "", "eq:softmax-derivation"),
]


@pytest.mark.parametrize(("thing", "quantity", "label"), EXPECTED)
def test_the_label_stands_beside_the_equation(thing, quantity: str, label: str):
    assert label_of(thing, quantity) == label


def test_a_verdict_has_the_label_of_a_layer_of_ones_own():
    def a_name_so_long_that_the_equation_needs_three_lines_of_the_file(A, B, text):
        return A @ B

    class Doubled(mg.LinearLayer):  # appendix:doubled
        def backpropagate(self, Y, DY):
            super().backpropagate(Y, DY)
            DX = a_name_so_long_that_the_equation_needs_three_lines_of_the_file(
                2 * DY, self.W, "and a comment at the end of the last of them"
            )  # eq:wrong
            # eq:doubled-weights
            DW = hadamard(self.DW, self.DW)
            self.DX, self.DW = DX, DW

    found = {check.name: check.label for check in check_layer(Doubled(2, 3))}
    assert found == {
        "Doubled.DW": "eq:doubled-weights",
        "Doubled.Db": "appendix:doubled",
        "Doubled.DX": "eq:wrong",
    }
