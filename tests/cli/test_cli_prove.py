"""`matgrad prove`: what is printed, JSON, the exit status, and errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import jsonschema
import pytest

import matgrad as mg
from cli_support import run, succeed
from support import PATIENCE

LOSSES = """
import torch


class SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, t):
        ctx.save_for_backward(torch.softmax(z, dim=1), t)
        return -(t * torch.log_softmax(z, dim=1)).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        return g * (p - t) / p.shape[0], None


def square(x, p):
    return kernel(x)


def kernel(x):
    raise NotImplementedError


def square_kernel(x):
    return x * x


def square_backward(x, g):
    return 2 * x * g
"""


@pytest.fixture
def losses(tmp_path):
    path = tmp_path / "losses.py"
    path.write_text(LOSSES)
    return path


def test_refuted_and_proved(losses):
    result = run("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K")
    assert result.exit_code == 1
    assert "SoftCrossEntropy: REFUTED" in result.output
    assert "true − returned = ((Σ_k t_ik) - 1) · g·p_ij / N" in result.output
    assert "in losses.py:14: return g * (p - t) / p.shape[0], None" in result.output
    assert "for all sizes K, N: ∂/∂z" in succeed("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K, Σ_K = 1")


TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
PLACE = {
    "artifactLocation": {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}},
    "region": {"type": "object", "properties": {"startLine": {"type": "integer", "minimum": 1}}},
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {  # what the standard requires of the properties that are written, and no others
    "$defs": {
        "rule": {
            "required": ["id"],
            "additionalProperties": False,
            "properties": {
                "id": {"type": "string"},
                "shortDescription": TEXT,
                "defaultConfiguration": {"properties": {"level": LEVEL}, "additionalProperties": False},
            },
        },
        "result": {
            "required": ["message"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "level": LEVEL,
                "message": TEXT,
                "locations": {"items": {"properties": {"physicalLocation": {"properties": PLACE}}}},
            },
        },
    },
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "items": {
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name"],
                                "properties": {"rules": {"items": {"$ref": "#/$defs/rule"}}},
                            }
                        },
                    },
                    "results": {"items": {"$ref": "#/$defs/result"}},
                },
            }
        },
    },
}


@pytest.fixture
def claimed(tmp_path):
    path = tmp_path / "claimed.py"
    text = LOSSES.replace("import torch", "import torch\n\nimport matgrad as mg", 1)
    text = text.replace("class Soft", '@mg.proved(z="N K", t="N K")\nclass Soft')
    path.write_text(f'{text}\n\nmg.proved(x="N D", backward=square_backward)(square_kernel)\n')
    return path


def test_several_functions_and_those_with_a_decorator(losses, claimed):
    words = [f"{losses}:SoftCrossEntropy", "z=N K", "t=N K, Σ_K = 1", claimed]
    result = run("prove", *words)
    assert re.findall(r"^(\w+): (\w+)", result.output, re.MULTILINE) == [
        ("SoftCrossEntropy", "PROVED"),
        ("SoftCrossEntropy", "REFUTED"),
        ("square_kernel", "PROVED"),
    ]
    assert result.exit_code == 1
    assert "PROVED" in succeed("prove", f"{claimed}:square_kernel")
    assert succeed("prove", "--if-claimed", losses) == ""


def test_sarif_and_latex(claimed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("prove", claimed, "--sarif", "found.sarif", "--latex", "found.tex").exit_code == 1
    log = json.loads(Path("found.sarif").read_text())
    (found,) = log["runs"][0]["results"]
    jsonschema.validate(log, SARIF)
    assert found["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "claimed.py"},
        "region": {"startLine": 17},
    }
    assert found["message"]["text"].startswith("SoftCrossEntropy\n∂/∂t: None is returned")
    latex = Path("found.tex").read_text()
    assert r"((\sum_{k} t_{ik}) - 1) \cdot \frac{g\,p_{ij}}{N}" in latex
    assert r"\frac{\partial}{\partial x_{ij}} = 2\,g_{ij}\,x_{ij}" in latex


def pytest_run(*arguments, cwd):
    environment = os.environ | {"PYTHONPATH": str(Path(mg.__file__).parents[1])}
    plugin = (
        [] if any(e.value == "pytest_matgrad" for e in entry_points(group="pytest11")) else ["-p", "pytest_matgrad"]
    )
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE)


def test_the_plugin_of_pytest(claimed):
    (claimed.parent / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure(config):\n    print('imported:', 'matgrad' in sys.modules)"
    )
    done = pytest_run("--matgrad", "-v", cwd=claimed.parent)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "claimed.py::SoftCrossEntropy FAILED" in done.stdout
    assert re.search(r"^claimed.py:SoftCrossEntropy: REFUTED  \([\d.]+ s\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^claimed.py:square_kernel: PROVED", done.stdout, re.MULTILINE)
    assert "true − returned = ((Σ_k t_ik) - 1) · g·p_ij / N" in done.stdout
    assert "Traceback" not in done.stdout
    without = pytest_run(cwd=claimed.parent)
    assert without.returncode == 5, without.stdout  # pytest's for no tests
    assert "imported: False" in without.stdout


def test_json(losses):
    result = run("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K", "--json")
    (found,) = json.loads(result.output)
    assert (found["verdict"], found["gradients"]) == ("refuted", ["z"])
    witness = found["witness"]
    N, K = witness["sizes"]["N"], witness["sizes"]["K"]
    assert (len(witness["arguments"]["z"]), len(witness["arguments"]["t"][0])) == (N, K)
    assert witness["returned"] != witness["true"]


def test_a_function_with_a_backward_and_the_reference_of_a_kernel(losses):
    options = ("prove", f"{losses}:square", "x=N D", "p=2", "--backward", "square_backward")
    assert run(*options).exit_code == 2
    assert "if kernel computes what its reference does" in succeed(*options, "--reference", "kernel=square_kernel")


def test_arguments_that_must_have_a_gradient(losses):
    result = run("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K", "--wrt", "t")
    assert result.exit_code == 1
    assert "∂/∂t: None is returned" in result.output


def test_a_file_in_a_package(tmp_path):
    folder = tmp_path / "nets" / "losses"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").touch()
    (folder / "parts.py").write_text("def f(x):\n    return x * x\n")
    (folder / "whole.py").write_text("from .parts import f\n\n\ndef backward(x, g):\n    return 2 * x * g\n")
    assert "PROVED" in succeed("prove", f"{folder / 'whole.py'}:f", "x=N", "--backward", "backward")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["losses"], "expected FILE:NAME"),
        (["z=N K"], "expected FILE:NAME"),
        (["LOSSES"], "no function in it has @mg.proved"),
        (
            ["BROKEN"],
            "broken.py cannot be imported: NameError: name 'undefined' is not defined, in broken.py:1: undefined",
        ),
        (["nothing.py:f"], "there is no such file"),
        (["nothing:f"], "expected a Python file"),
        (["LOSSES:Focal"], "has no 'Focal'; it has SoftCrossEntropy, square"),
        (["LOSSES:SoftCrossEntropy", "z=N K"], "what is t? Give its shape"),
        (["LOSSES:SoftCrossEntropy", "x"], "expected FILE:NAME"),
        (["LOSSES:SoftCrossEntropy", "y=N"], "has no argument 'y'; it has z, t"),
        (["LOSSES:SoftCrossEntropy", "z=N-K", "t=N"], "'N-K' is no size"),
        (["LOSSES:square", "x=N", "p=1"], "square is a function without a gradient of its own"),
    ],
)
def test_bad_input(losses, arguments, message):
    broken = losses.with_name("broken.py")
    broken.write_text("undefined")
    paths = {"LOSSES": losses, "BROKEN": broken}
    result = run("prove", *(re.sub("LOSSES|BROKEN", lambda m: str(paths[m[0]]), text) for text in arguments))
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
