"""`matgrad verify`: the table, exit status, JSON, LaTeX, plugins, and what is said of a wrong equation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_support import run, succeed
from matgrad.symbolic.suite import cases

DOCS = Path(__file__).parents[2] / "docs"

WRONG = """
import matgrad as mg
from matgrad.matrix_operations import columns_sum, hadamard, row_repeat
from custom import ScaleLayer


class WrongLayer(ScaleLayer):
    def backpropagate(self, Y, DY):
        X, s = self.X, self.s
        N, _ = X.shape

        Ds = columns_sum(hadamard(DY, X))
        DX = hadamard(row_repeat(s, N), Y)

        self.Ds, self.DX = Ds, DX
"""


def test_one_layer():
    lines = succeed("verify", "--layer", "Linear").splitlines()

    assert lines[0].split() == ["equation", "source", "paper", "sizes", "method", "seconds", "verdict"]
    (row,) = [line for line in lines if line.startswith("LinearLayer.DW") and "dropout" in line]
    assert re.search(r"layers/linear\.py:\d+ +eq:dLdw +N=3 D=2 K=4 dropout +(algebra|points) +\d+\.\d\d +right$", row)
    assert re.fullmatch(r"(\d+) of \1 equations are right, in \d+ s", lines[-1])


def test_json_and_latex(tmp_path):
    output = succeed("verify", "--layer", "HyperbolicTangent", "--json", "--latex", tmp_path / "notes.tex")

    found = json.loads(output)
    assert found["wrong"] == 0
    assert {"name", "location", "label", "sizes", "method", "seconds", "ok", "message", "source"} == set(
        found["checks"][0]
    )
    text = (tmp_path / "notes.tex").read_text()
    assert r"\mathsf{D}Z = \mathsf{D}Y \odot \mathrm{act}'(Z)" in text
    assert text.startswith(r"\documentclass")


def test_a_plugin_is_verified():
    names = ("Scale", "Residual", "SquaredReLU", "PseudoHuber")
    output = succeed("verify", "--plugin", DOCS / "custom.py", *(x for name in names for x in ("--layer", name)))
    assert {"ScaleLayer.Ds", "SquaredReLUActivation.gradient", "PseudoHuberLoss.gradient"} <= set(output.split())
    assert {"ResidualLayer.DX", "ResidualLayer.1 ActivationLayer.DZ", "ResidualLayer.2 LinearLayer.DW"} <= {
        line[:38].rstrip() for line in output.splitlines()
    }


def test_a_wrong_equation_ends_with_status_1_and_is_shown(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.syspath_prepend(DOCS)
    result = run("verify", "--plugin", tmp_path / "wrong.py", "--layer", "Wrong", "--latex", tmp_path / "notes.tex")

    assert result.exit_code == 1
    assert "WrongLayer.DX is wrong at row 0, column 0:" in result.stdout
    assert re.search(r"found +X_11\*s_11\*\*2\n +expected +G_11\*s_11", result.stdout)
    assert re.search(r"wrong\.py:\d+: DX = hadamard\(row_repeat\(s, N\), Y\)", result.stdout)
    assert "Wrong" not in (tmp_path / "notes.tex").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layer", "GELO"), "unknown equation 'GELO'; did you mean 'GELU'"),
        (("--latex", "nowhere/notes.tex"), "the folder .*nowhere does not exist"),
    ],
)
def test_bad_input(arguments, message: str):
    result = run("verify", *arguments)
    assert result.exit_code == 2
    assert re.search(message, result.stderr)
    assert not result.stdout


def test_the_suite_covers_the_package():
    names = {case.name for case in cases()}
    assert {"Linear", "SReLU", "GELU", "NegativeLogLikelihood", "stable_log_softmax", "AdamW", "chain rule"} <= names
    assert 0 < len(cases(quick=True)) < len(cases()) / 3
