"""Typed equations, in the notation of the table and in LaTeX: proved, refuted, or one line that says what is wrong."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch

import matgrad as mg
from cli_support import run, succeed

LINEAR = r"""
W \in \mathbb{R}^{K \times D}
b \in \mathbb{R}^{1 \times K}
Z = X W^\top + 1_N b
Y = \sigma(Z)
\mathsf{D}Z = \mathsf{D}Y \odot \sigma'(Z)
\mathsf{D}W = \mathsf{D}Z^\top X
\mathsf{D}b = 1_N^\top \mathsf{D}Z
\mathsf{D}X = \mathsf{D}Z W
"""
RIGHT = {
    "the paper's layer": LINEAR,
    "softmax in LaTeX": r"Y = \mathrm{softmax}(X); DX = Y \odot (DY - \mathrm{diag}(DY \cdot Y^\top) \cdot 1_D^\top)",
    "softmax": "Y = softmax(X); DX = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), D))",
    "fractions and powers": r"Y = \frac{1}{2 N} X^2 - 3 e^{X}; DX = \frac{X \odot DY}{N} - 3 DY \odot e^X",
    "a row vector": "a: 1 D; Y = hadamard(row_repeat(a, N), X)\nDa = columns_sum(hadamard(DY, X))",
}
WRONG = {
    "a factor": (LINEAR.replace("b = 1_N", r"b = \frac{1}{N} 1_N"), "∂/∂b_i: true = returned · N"),
    "a missing term": ("Y = softmax(X); DX = hadamard(Y, DY)", "true − returned = -Y_ij·(Σ_k DY_ik·Y_ik)\n"),
    "a term in names": (
        "S: L M; V: M P; A = softmax(S); Y = A @ V; DA = DY @ V.T; DS = hadamard(A, DA)",
        "true − returned = -A_ij·(Σ_kl A_ik·DY_il·V_kl)\n",
    ),
    "without what is zero": (
        "R = X - row_repeat(columns_mean(X), N); s = inv_sqrt(columns_mean(hadamard(R, R))); "
        "Y = hadamard(row_repeat(s, N), R); DX = hadamard(row_repeat(s, N), DY - row_repeat(columns_mean(DY), N))",
        "true − returned = -R_ij·s_j^3·(Σ_k DY_kj·R_kj) / N\n",
    ),
    "a sign": (r"Y = X \odot X; DX = -2 X \odot DY", "∂/∂X_ij: true = returned · -1"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_equations_are_proved(name: str):
    verdict = mg.prove(RIGHT[name])
    assert verdict.verdict == "proved", verdict


@pytest.mark.parametrize("name", WRONG)
def test_wrong_equations_are_refuted(name: str):
    text, missing = WRONG[name]
    verdict = mg.prove(text)
    assert verdict.verdict == "refuted", verdict
    assert missing in str(verdict)


def test_a_notebook_may_replace_input(monkeypatch):
    monkeypatch.setattr(builtins, "input", lambda: "")
    mg.prove(RIGHT["softmax"]).check()


def test_a_witness_has_the_gradient_of_autograd():
    witness = mg.prove(WRONG["a missing term"][0]).witness
    X = torch.tensor(witness.arguments["X"], requires_grad=True)
    (true,) = torch.autograd.grad(torch.softmax(X, 1), X, torch.tensor(witness.gradients[0]))
    np.testing.assert_allclose(true[witness.place].item(), witness.true, rtol=1e-8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Y = softmax(X)", "expected gradients after the equation of Y"),
        ("Y = X; DQ = X", "DQ: expected the gradient of one of X, Y, other than Y"),
        ("Y = X; DX = hadamrd(X, DY)", "unknown operation 'hadamrd'"),
        (r"Y = X + \frac{X}; DX = DY", "expected an operand, found the end of it"),
        (r"Y = \foo X; DX = DY", "foo is not defined"),
        (r"Y = (X; DX = 2 \cdot DY", "expected '\\)', found the end of it"),
    ],
)
def test_errors_are_one_line(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        mg.prove(text)


def test_sizes_that_do_not_fit_are_refuted_with_the_equation():
    verdict = mg.prove("Y = X; DX = DY @ X")
    assert verdict.verdict == "refuted"
    assert "'DX = DY @ X'" in str(verdict)


def test_the_command(tmp_path):
    path = tmp_path / "layer.tex"
    path.write_text(LINEAR)
    assert "for all sizes D, K, N: ∂/∂W, ∂/∂b, ∂/∂X" in succeed("prove", path)
    assert "PROVED" in succeed("prove", "W: K D", "Y = X @ W.T", "DX = DY @ W", "DW = DY.T @ X")
    assert run("prove", "Y = softmax(X)", "DX = hadamard(Y, DY)").exit_code == 1
