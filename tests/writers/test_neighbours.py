"""Sizes T - 1 and T + 1: slices, padding, rolls, windows and joined tensors, with small sizes and what is refused."""

from __future__ import annotations

import neighbours
import pytest
import torch
import torch.nn.functional as F
from neighbours import RIGHT, WRONG

import matgrad as mg


@pytest.mark.parametrize(("function", "said"), RIGHT.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_right_ones(function, said):
    verdict = mg.prove(function, said)
    assert verdict.verdict == "proved", verdict


@pytest.mark.parametrize(("function", "said"), WRONG.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_wrong_ones(function, said):
    verdict = mg.prove(function, said)
    assert verdict.verdict == "refuted", verdict
    assert verdict.witness.returned != pytest.approx(verdict.witness.true, rel=1e-4)


def test_what_small_sizes_are_said_to_do():
    verdict = mg.prove(neighbours.DiffJoined, x="N T")
    assert verdict.assumptions == ["T > 2"]
    assert verdict.tested[1] == "T = 2: tested, not proved: right by finite differences"
    verdict = mg.prove(neighbours.WithClassToken, x="B T C", c="C")
    assert verdict.assumptions == ["T_plus_1 = T + 1"]
    verdict = mg.prove(neighbours.FirstAndLastPut, x="N T")
    assert "T = 1" in str(verdict)  # of which the sum of both gradients is wanted
    assert verdict.witness.sizes["T"] == 1


class Next(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x[:, 1:] * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return F.pad(g * y, (1, 0)), g * x[:, 1:]


def test_a_size_that_is_one_less_can_be_given():
    assert mg.prove(Next, x="N T", y="N T-1").verdict == "proved"
    assert mg.prove(Next, x="N T+1", y="N T").verdict == "proved"
    assert mg.prove(Next, x="N T", y="N T").verdict in ("refuted", "refused")


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return torch.cat([x, y], 1)

    @staticmethod
    def backward(ctx, g):
        return None


class Greatest(Refused):
    @staticmethod
    def forward(ctx, x, y):
        return x[:, 1:].amax(1) + y.amax(1)


def test_what_is_refused_has_its_line():
    assert "in test_neighbours.py:" in str(mg.prove(Greatest, x="N T", y="N T"))
    assert mg.prove(Greatest, x="N T", y="N T").verdict == "refused"


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[:, 2:-1] - x[:, 1:-2],
        lambda x: x[:, -2:] * x[:, :2],
        lambda x: x[:, 1].unsqueeze(1) * x[:, -3:-1],
        lambda x: F.pad(x, (0, 0, 1, 2, 1, 0), value=2.5)[:, 1:],
        lambda x: torch.roll(x, (2, -1), (1, 2)),
        lambda x: x.unfold(1, 2, 1).sum(-1),
        lambda x: torch.diff(x, n=2, dim=1),
        lambda x: x.narrow(1, 1, x.shape[1] - 2).flip(1),
        lambda x: torch.cumsum(x[:, 1:], 1) * x[:, :-1],
        lambda x: torch.softmax(x[:, 1:], 1) * torch.tril(x @ x.mT)[:, 1:, :1],
        lambda x: x[:, 1:].var(1) + x[:, :-1].mean(1),
        lambda x: torch.cat([x[:, -1:], x * 2, x[:, :2]], 1)[:, 3:],
        lambda x: F.conv2d(x[:, None], torch.arange(6.0).view(1, 1, 2, 3), padding=1, dilation=(1, 2)),
    ],
)
def test_operations_compute_what_those_of_torch_do(f):
    class WithoutGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return f(x)

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * 0

    verdict = mg.prove(WithoutGradient, x="N T D")
    assert verdict.verdict == "refuted", verdict  # with forms, of a model that has the numbers of the code
    assert "true − returned = " in str(verdict)
