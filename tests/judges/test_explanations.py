"""Explanations of proofs: every step is equal to an earlier one, or a definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

import matgrad as mg
from cli_support import run, succeed
from composites import ShortcutLayer
from matgrad.index_notation.expressions import Expression, as_expression, is_equal
from matgrad.index_notation.text import Text
from matgrad.inspection.verdicts import Check
from matgrad.judges import prove_layer
from matgrad.judges.algebra import Subject
from matgrad.judges.claims import of_layer
from matgrad.judges.explanations import Explanation, Line
from matgrad.judges.index_judge import put
from matgrad.judges.suite import ALL_SIZES, Case, cases, explain, explained

SOFTMAX = """\
  2. definition of Y by feedforward
       Y = stable_softmax(Z)
       Y_ij = exp(Z_ij) / (Σ_k exp(Z_ik))
  3. chain rule: L depends on Z_ij by way of Y
       DZ_ij = Σ_kl DY_kl·∂Y_kl/∂Z_ij
"""


def fail(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code
    return result.output


def gaps(explanation: Explanation) -> list[Line]:
    """The lines that are not proved to be equal to an earlier one: none, or the explanation is wrong.

    That is the line before or, if a left side is repeated, the line where it was first.
    """

    def expanded(e: Expression) -> Expression:
        for V, value in explanation.definitions:
            e = put(e, V, value)
        return e

    values: dict[str, Expression | None] = {}
    name, found = "", []
    for line in explanation.lines:
        name = line.left(Text()) if line.left else name
        before = values.setdefault(name, line.value) if line.other is None else line.other
        if before is not line.value and (
            before is None or line.value is None or not is_equal(expanded(before), expanded(line.value))
        ):
            found.append(line)
    return found


def is_sound(explanation: Explanation) -> bool:
    """Whether it has no gaps, and LaTeX that pdflatex can read."""
    latex = explanation.latex()
    balanced = latex.count("{") == latex.count("}") and latex.count(r"\left(") == latex.count(r"\right)")
    return bool(explanation.lines) and not gaps(explanation) and str(explanation).isprintable is not None and balanced


def unsound(chosen: list[Case]) -> list[tuple[str, str]]:
    found: list[tuple[Case, Check]] = [(case, check) for case in chosen for check in case.run()]
    assert found
    return [(check.name, check.sizes) for case, check in found if not is_sound(explained(case.subject, check))]


def test_explanations_are_sound():
    names = ("Softmax", "BatchNormalization", "Dropout", "GELU", "SoftmaxCrossEntropy", "log_softmax")
    chosen = [case for case in cases(names, judges=[ALL_SIZES]) if case.subject.is_basic]
    assert len(chosen) > 5
    assert not unsound([*chosen, *cases(("chain rule", "softmax derivation"), judges=[ALL_SIZES])])


@pytest.mark.slow
def test_all_explanations_are_sound():
    assert not unsound(cases(judges=[ALL_SIZES]))


def test_layers_with_parts():
    for check in prove_layer(ShortcutLayer):
        if not check.note:
            assert is_sound(explained(Subject("residual", of_layer, ShortcutLayer), check)), check.name


def test_a_wrong_step_is_a_gap():
    explanation = explain("SoftmaxLayer.DZ")
    assert not gaps(explanation)
    for k, line in enumerate(explanation.lines):
        if k > 3 and line.value is not None:
            lines = [*explanation.lines]
            lines[k] = replace(line, value=line.value + as_expression(1))
            assert gaps(replace(explanation, lines=lines)), line.rule


def test_rules_are_named():
    rules = [line.rule for line in explain("SoftmaxLayer.DZ").lines]
    assert rules[0].startswith("given")
    assert rules[3].startswith("product rule; the derivative of exp is exp")
    assert "power rule" in rules[3]
    assert rules[4] == "definition of Y"
    text = str(explain("BatchNormalizationLayer.DX"))
    assert "chain rule: L depends on R_ij by way of Sigma, Z" in text
    assert "DR_ij = 2·DSigma_j·R_ij / N + DZ_ij·inv_sqrt_Sigma_j" in text
    assert r"\frac{\partial Y_{kl}}{\partial Z_{ij}}" in explain("SoftmaxLayer.DZ").latex()


def test_the_command(tmp_path):
    out = succeed("verify", "--all-sizes", "--explain", "SoftmaxLayer.DZ", "--latex", tmp_path / "softmax.tex")
    assert SOFTMAX in out
    assert "DZ = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))" in out
    assert r"\item chain rule" in (tmp_path / "softmax.tex").read_text()
    out = succeed("verify", "--all-sizes", "--explain", "ActivationLayer.DZ", "--layer", "GELU")
    assert "erf" in out
    assert "SoftmaxLayer.DW, SoftmaxLayer.DX, SoftmaxLayer.DZ" in fail(
        "verify", "--all-sizes", "--layer", "Softmax", "--explain", "SoftmaxLayer.DQ"
    )
    assert "--all-sizes" in fail("verify", "--explain", "SoftmaxLayer.DZ")


def test_an_unknown_name_is_said_before_anything_is_proved(monkeypatch):
    monkeypatch.setattr("matgrad.judges.suite.Case.run", lambda case: pytest.fail(f"{case.name} is proved"))
    for name in ("SoftmaxLayr.DZ", "DZ", ""):
        with pytest.raises(ValueError, match=f"unknown equation '{name}'; known are those.* of .*SoftmaxLayer"):
            explain(name)


def test_what_is_not_proved_is_not_explained(monkeypatch):
    def backpropagate(self, Y, DY):
        self.DX = DY

    monkeypatch.setattr(mg.DropoutLayer, "backpropagate", backpropagate)
    with pytest.raises(ValueError, match="not proved"):
        explain("DropoutLayer.DX", ("Dropout",))
