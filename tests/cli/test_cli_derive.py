"""`matgrad derive`: equations, files, layers and plugins, what is printed, and the exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli_support import run, succeed
from matgrad.program import adjoint

DOCS = Path(__file__).parents[2] / "docs"
GATE = "g: 1 D = 1; Y = hadamard(row_repeat(Sigmoid(g), N), X)"


def test_equations_and_code(tmp_path):
    output = succeed("derive", GATE, "--name", "Gate")
    assert "Dg = hadamard(Sigmoid.gradient(g), columns_sum(hadamard(DY, X)))  # proved\n" in output
    assert "class GateLayer(mg.Layer):\n" in output
    assert "3 of 3 equations are proved for all sizes\n" in output
    (tmp_path / "gate.txt").write_text(GATE.replace("; ", "\n"))
    assert succeed("derive", "--file", tmp_path / "gate.txt", "--name", "Gate") == output


def test_the_code_is_a_plugin(tmp_path):
    succeed("derive", GATE, "--name", "Gate", "--save", tmp_path / "gate.py")
    assert (tmp_path / "gate.py").read_text() == succeed("derive", GATE, "--name", "Gate", "--code")
    output = succeed("verify", "--plugin", tmp_path / "gate.py", "--layer", "Gate", "--all-sizes")
    assert re.search(r"all sizes: (\d+) of \1 checks proved", output)
    layers = ("--plugin", tmp_path / "gate.py", "--layers", "Gate;ReLU;Linear", "--layer-sizes", "64;8;10")
    succeed("train", *layers, "--epochs", "1")


def test_a_layer():
    output = succeed("derive", "--layer", "Softmax", "--code")
    assert "        DZ = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))\n" in output
    assert "class DerivedSoftmaxLayer(mg.Layer):\n" in output
    assert 'create_activation("AllReLU(alpha=0.3)")' in succeed("derive", "--layer", "AllReLU(0.3)", "--code")
    assert "DX = hadamard(row_repeat(" in succeed("derive", "--layer", "BatchNormalization", "--evaluation")


def test_a_layer_of_a_plugin():
    output = succeed("derive", "--plugin", DOCS / "custom.py", "--layer", "Scale")
    assert "Ds = columns_sum(hadamard(DY, X))  # proved\n" in output
    assert "equations are proved" in succeed("derive", "--plugin", DOCS / "custom.py", "--layer", "Shortcut")


def test_json_and_latex(tmp_path):
    found = json.loads(succeed("derive", GATE, "--json", "--latex", tmp_path / "gate.tex"))
    assert found["proved"] is True
    assert found["problems"] == []
    assert found["backpropagation"][-1]["name"] == "DX"
    assert found["backpropagation"][-1]["proved"] is True
    assert (tmp_path / "gate.tex").read_text().startswith(r"\documentclass")
    assert succeed("derive", GATE, "--latex", "-").startswith(r"\documentclass")


def test_what_is_not_proved(monkeypatch):
    monkeypatch.setitem(adjoint.ADJOINTS, "tanh", lambda DY, Y, X: (DY,))
    result = run("derive", "Y = tanh(X)")
    assert result.exit_code == 1
    assert "DX = DY  # NOT PROVED" in result.stdout
    assert "1 of 2 equations are proved" in result.stdout
    assert "DX is not proved: the canonical forms of the entries differ" in result.stderr
