"""Kernels that code calls: their references stand for them in proofs, and are compared with them where they run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import matgrad as mg


class Launcher:
    """kernel[grid](…), as Triton has it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return self.kernel


def on_gpu(x, y, BLOCK):
    raise RuntimeError("no GPU")


def of_blocks(x, y, BLOCK):
    if not x.numel():
        raise ValueError("no blocks")
    y.copy_(torch.tanh(x))


def of_one_block(x, y, BLOCK):
    y[:, :BLOCK] = torch.tanh(x[:, :BLOCK])


def of_rows_in_memory(x, y, BLOCK):
    y.copy_(torch.tanh(torch.as_strided(x, x.shape, (x.shape[1], 1))))


kernel = Launcher(on_gpu)


class Launched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        kernel[(x.shape[0],)](x, y, BLOCK=16)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


def tanh(x, y):
    y.copy_(torch.tanh(x))


def test_references_of_kernels():
    for key in (kernel, "kernel"):
        verdict = mg.prove(Launched, x="N D", reference={key: tanh})
        assert verdict.verdict == "proved", verdict
        assert verdict.assumptions == ["kernel computes what its reference does"]
        assert verdict.tested == ["kernel: neither tested nor proved, as it does not run here: RuntimeError: no GPU"]
    assert mg.prove(Launched, x="N D", reference={kernel: lambda x, y: y.copy_(x)}).verdict == "refuted"
    assert mg.prove(Launched, x="N D").verdict == "refused"
    with pytest.raises(ValueError, match="the code has no global variable"):
        mg.prove(Launched, x="N D", reference={"kernels": tanh})


def test_a_kernel_that_runs_is_compared(monkeypatch):
    monkeypatch.setattr(kernel, "kernel", of_blocks)
    verdict = mg.prove(Launched, x="N D", reference={kernel: tanh}).check()
    kinds = "several sizes, not contiguous, ties, large numbers, large, sizes of 1"
    assert verdict.tested == [
        f"kernel: tested, not proved: equal to its reference in 7 calls ({kinds})",
        "kernel fails (empty): ValueError: no blocks",
    ]
    assert verdict.tested == verdict.as_json()["tested"]
    assert verdict.tested[1] in str(verdict)


@pytest.mark.parametrize(("wrong", "kind"), {of_one_block: "large", of_rows_in_memory: "not contiguous"}.items())
def test_a_kernel_that_differs_is_refuted(wrong, kind, monkeypatch):
    monkeypatch.setattr(kernel, "kernel", wrong)
    verdict = mg.prove(Launched, x="N D", reference={kernel: tanh})
    assert verdict.verdict == "refuted"
    assert f"({kind}): argument 2[" in verdict.lines[0]
    witness = verdict.witness
    assert witness.name == "kernel"
    y = torch.zeros(witness.arguments["x"].shape)
    wrong(torch.as_tensor(witness.arguments["x"]), y, BLOCK=16)
    assert float(y[witness.place]) == pytest.approx(witness.returned)
    assert witness.true == pytest.approx(float(torch.tanh(torch.tensor(witness.arguments["x"]))[witness.place]))


def product_of_gradient(y, g, more):
    return y * g + (g > 1) * more


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.exp(x))
        return torch.exp(x)

    @staticmethod
    def backward(ctx, g):
        return product_of_gradient(*ctx.saved_tensors, g, 0)


def test_a_kernel_in_backward_is_compared_by_the_names_of_its_arguments():
    def reference(g, y):
        return y * g

    def wrong(g, y):
        return y * g * (1 + 1e-3 * (g > 1))

    assert "8 calls" in "".join(mg.prove(InBackward, x="N", reference={"product_of_gradient": reference}).tested)
    verdict = mg.prove(InBackward, x="N", reference={"product_of_gradient": wrong})
    assert verdict.verdict == "refuted", verdict
