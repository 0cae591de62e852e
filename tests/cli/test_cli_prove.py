"""`matgrad prove`: what is printed, JSON, the exit status, and errors."""

from __future__ import annotations

import json

import pytest

from cli_support import run, succeed

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
    assert "true − returned = ((Σ_k t_ik) - 1) · exp(z_ij)·g / (N·(Σ_k exp(z_ik)))" in result.output
    assert "in losses.py:14: return g * (p - t) / p.shape[0], None" in result.output
    assert "for all sizes K, N: ∂/∂z" in succeed("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K, Σ_K = 1")


def test_json(losses):
    result = run("prove", f"{losses}:SoftCrossEntropy", "z=N K", "t=N K", "--json")
    found = json.loads(result.output)
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
        (["losses.py"], "expected FILE:NAME"),
        (["nothing.py:f"], "expected a Python file"),
        (["LOSSES:Focal"], "has no 'Focal'; it has SoftCrossEntropy, square"),
        (["LOSSES:SoftCrossEntropy", "z=N K"], "what is t? Give its shape"),
        (["LOSSES:SoftCrossEntropy", "x"], "expected ARGUMENT=SHAPE"),
        (["LOSSES:SoftCrossEntropy", "y=N"], "has no argument 'y'; it has z, t"),
        (["LOSSES:SoftCrossEntropy", "z=N-K", "t=N"], "'N-K': expected"),
        (["LOSSES:square", "x=N", "p=1"], "has no gradient of its own"),
    ],
)
def test_bad_input(losses, arguments, message):
    result = run("prove", *(text.replace("LOSSES", str(losses)) for text in arguments))
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
