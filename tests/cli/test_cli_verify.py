"""`matgrad verify`: the table, exit status, JSON, LaTeX, plugins, and what is said of a wrong equation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_support import run, succeed
from matgrad.judges.suite import cases

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

STEEP = """
import matgrad as mg
from matgrad.matrix_operations import columns_sum, product_on, tanh


class SteepActivation(mg.ActivationFunction):
    def __call__(self, X):
        return tanh(X)

    def gradient(self, X):
        return 1 - tanh(X)


class BiasedLayer(mg.LinearLayer):
    def backpropagate(self, Y, DY):
        X, W = self.X, self.W

        DW = product_on(W, DY.T, X)
        Db = 2 * columns_sum(DY)
        DX = DY @ W

        self.DW, self.Db, self.DX = DW, Db, DX
"""


def test_one_layer():
    lines = succeed("verify", "--layer", "Linear").splitlines()

    assert re.fullmatch("equation and its source +all sizes +SymPy +numbers", lines[0])
    (row,) = (line for line in lines if line.startswith("LinearLayer.DW"))
    assert re.search(r"linear\.py:\d+ +proved 2 +right 4 +right 12$", row)
    assert len([line for line in lines if line.startswith("LinearLayer.DW ")]) == 1
    assert max(map(len, lines)) <= 100
    found = [re.fullmatch(r"(.+): (\d+) of \2 checks (?:proved|right)", line) for line in lines[-7:-4]]
    assert [match[1] for match in found] == ["all sizes", "SymPy", "numbers"]
    assert re.fullmatch(r"in \d+ s", lines[-4])


def test_json_and_latex(tmp_path):
    output = succeed("verify", "--layer", "HyperbolicTangent", "--json", "--latex", tmp_path / "notes.tex")

    found = json.loads(output)
    assert found["wrong"] == 0
    assert found["not_proved"] == 0
    fields = {
        "name",
        "location",
        "label",
        "sizes",
        "method",
        "seconds",
        "ok",
        "message",
        "source",
        "note",
        "given",
        "cause",
        "judge",
    }
    assert fields == set(found["checks"][0])
    assert {check["judge"] for check in found["checks"]} == {"all sizes", "SymPy", "numbers"}
    text = (tmp_path / "notes.tex").read_text()
    assert r"\mathsf{D}Z = \mathsf{D}Y \odot \mathrm{act}'(Z)" in text
    assert text.startswith(r"\documentclass")


def test_a_plugin_is_verified():
    names = ("Scale", "Shortcut", "SquaredReLU", "PseudoHuber")
    output = succeed("verify", "--plugin", DOCS / "custom.py", *(x for name in names for x in ("--layer", name)))
    assert re.search(r"^note: ScaleLayer\.feedforward .*custom\.py:\d+: feedforward has no def", output, re.MULTILINE)
    assert {"ScaleLayer.Ds", "SquaredReLUActivation.gradient", "PseudoHuberLoss.gradient"} <= set(output.split())
    assert {"ShortcutLayer.DX", "ShortcutLayer.1 ActivationLayer.DZ", "ShortcutLayer.2 LinearLayer.DW"} <= {
        re.split("  +", line)[0] for line in output.splitlines()
    }


def test_a_wrong_equation_ends_with_status_1_and_is_shown(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.syspath_prepend(DOCS)
    result = run("verify", "--plugin", tmp_path / "wrong.py", "--layer", "Wrong", "--latex", tmp_path / "notes.tex")

    assert result.exit_code == 1
    assert "WrongLayer.DX is wrong at row 1, column 1:" in result.stdout
    assert re.search(r"found +X_11\*s_11\*\*2\n +expected +G_11\*s_11", result.stdout)
    assert re.search(r"wrong\.py:\d+: DX = hadamard\(row_repeat\(s, N\), Y\)", result.stdout)
    assert "Wrong" not in (tmp_path / "notes.tex").read_text()


def test_wrong_is_the_cause_alone(tmp_path):
    """A wrong derivative makes no line of the layer WRONG, whose equations are right; in Db nothing else is wrong."""
    (tmp_path / "steep.py").write_text(STEEP)
    result = run("verify", "--plugin", tmp_path / "steep.py", "--layer", "Steep", "--layer", "Biased")

    assert result.exit_code == 1
    assert re.findall(r"^(\S+) .*WRONG", result.stdout, re.MULTILINE) == ["SteepActivation.gradient", "BiasedLayer.Db"]
    assert "WRONG: SteepActivation.gradient\nWRONG: BiasedLayer.Db" in result.stdout


def test_proofs_for_all_sizes():
    lines = succeed("verify", "--all-sizes", "--layer", "Softmax", "--layer", "chain rule").splitlines()

    (row,) = (line for line in lines if line.startswith("SoftmaxLayer.DZ"))
    assert re.search(r"linear\.py:\d+ +proved 2$", row)
    assert re.fullmatch(r"all sizes: (\d+) of \1 checks proved", lines[-5])
    assert "where a condition" in lines[-2]
    found = json.loads(succeed("verify", "--all-sizes", "--layer", "GELU", "--json"))
    assert found["not_proved"] == 0
    assert {check["method"] for check in found["checks"]} == {"proof"}


def test_what_is_not_proved_ends_with_status_1_and_is_shown(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.syspath_prepend(DOCS)
    result = run("verify", "--all-sizes", "--plugin", tmp_path / "wrong.py", "--layer", "Wrong")

    assert result.exit_code == 1
    assert "WrongLayer.DX is not proved: the canonical forms of the entries differ" in result.stdout
    assert re.search(r"found +X_ij·s_j\^2\n +expected +G_ij·s_j", result.stdout)
    assert re.search(r"UNPROVED 2$", result.stdout, re.MULTILINE)
    assert run("verify", "--all-sizes", "--layer", "Momentum").exit_code == 2


def test_the_suite_covers_the_package():
    names = {case.name for case in cases()}
    assert {"Linear", "SReLU", "GELU", "NegativeLogLikelihood", "stable_log_softmax", "AdamW", "chain rule"} <= names
    assert 0 < len(cases(quick=True)) < len(cases()) / 3


# -- no vacuous verdict --------------------------------------------------------------------------

MISTAKES = """
import numpy as np
import matgrad as mg
from matgrad.matrix_operations import columns_sum, hadamard


class SilentLayer(mg.Layer):
    keeps_size = True
    parameters = ("s",)

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.s = np.ones((1, input_size), dtype=np.float32)
        self.set_optimizer("GradientDescent")

    def feedforward(self, X):
        self.X = X
        return 1 * X

    def backpropagate(self, Y, DY):
        self.Ds = 7 * columns_sum(DY)
        self.DX = -3 * DY


class CrashingLayer(SilentLayer):
    def feedforward(self, X):
        self.X = X
        return np.exp(X)


class NoGradientActivation(mg.ActivationFunction):
    def __call__(self, X):
        return hadamard(X, X)


class BentActivation(NoGradientActivation):
    def gradient(self, X):
        return 3 * X


class NoMeanLoss(mg.LossFunction):
    is_mean = True

    def __call__(self, Y, T):
        return mg.SquaredErrorLoss()(Y, T)

    def gradient(self, Y, T):
        return 2 * (Y - T)


class EvenLayer(SilentLayer):
    def __init__(self, input_size, output_size):
        if input_size % 2:
            raise ValueError("expected an even size")
        super().__init__(input_size, output_size)
"""


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("Silent", [r"SilentLayer\.Ds is wrong", r"mine\.py:\d+: self\.Ds = 7 \* columns_sum\(DY\)", "DX is wrong"]),
        ("Crashing", [r"CrashingLayer\.feedforward raises TypeError", r"mine\.py:\d+: return np\.exp\(X\)"]),
        ("NoGradient", [r"NoGradientActivation\.gradient is not defined", r"mine\.py:\d+: class NoGradientActivation"]),
        ("Bent", [r"\n\nBentActivation\.gradient is wrong", r"mine\.py:\d+: return 3 \* X\n\n"]),
        ("NoMean", [r"NoMeanLoss\.is_mean is wrong"]),
        ("Even", [r"note: EvenLayer.feedforward : not checked with D=3 and K=3: expected an even size"]),
    ],
)
def test_mistakes_of_a_plugin(tmp_path, name: str, messages: list[str]):
    (tmp_path / "mine.py").write_text(MISTAKES)
    result = run("verify", "--plugin", tmp_path / "mine.py", "--layer", name)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert re.search(r"^SymPy: \d+ of [1-9]\d* checks right", result.stdout, re.MULTILINE)
    for message in messages:
        assert re.search(message, result.stdout), message


def test_nothing_to_check_is_a_failure(monkeypatch):
    monkeypatch.setattr("matgrad.judges.suite.cases", lambda only, **options: [])
    result = run("verify", "--layer", "Nothing")
    assert result.exit_code == 2
    assert "no equation was checked: Nothing" in result.stderr
    assert " of 0 " not in result.output


def test_check_refuses_a_step_that_cannot_tell(tmp_path):
    (tmp_path / "mine.py").write_text(MISTAKES)
    model = ("--plugin", tmp_path / "mine.py", "--layers", "Silent;Linear", "--layer-sizes", "3;2")
    result = run("check", *model, "--gradient-step", "1e-15")
    assert result.exit_code == 2
    assert "gradient step: expected a number from 1e-08 to 0.01" in result.stderr
    result = run("check", *model)
    assert result.exit_code == 1
    assert "layer 1 SilentLayer.Ds is wrong at row" in result.stdout


def test_check_names_a_wrong_activation_function_first(tmp_path):
    (tmp_path / "mine.py").write_text(MISTAKES)
    model = ("--plugin", tmp_path / "mine.py", "--layers", "Bent;Linear", "--layer-sizes", "3;4;2")
    result = run("check", *model)
    assert result.exit_code == 1
    assert re.search(
        r"^layer 1 BentActivation\.gradient is wrong at row .*mine\.py:\d+: return 3 \* X\)$", result.stdout, re.M
    )
