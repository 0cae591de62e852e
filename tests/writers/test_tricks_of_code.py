"""No trick makes a proof of a gradient: what is not followed, or differs on symbols, is proved for what is named."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
from types import ModuleType

import numpy as np
import pytest
import torch

import matgrad as mg

BIG = 10**5  # above all sizes with which numbers are compared
MODE, COUNTS, NUMBERS = 0, [0], itertools.count()
MODES = ModuleType("modes")
MODES.mode = 0


def caught(question):
    """The answer to a question of x, or False if there is none."""

    def is_wrong(ctx, x):
        try:
            return question(x)
        except Exception:
            return False

    return is_wrong


def counted(ctx, x):
    COUNTS[0] += 1
    return COUNTS[0] > BIG


def counted_by_name(ctx, x):
    global MODE
    MODE += 1
    return MODE > BIG


def suppressed(ctx, x):
    with contextlib.suppress(Exception):
        return x.shape[0].bit_length() > 17
    return False


def matched(ctx, x):
    match x:
        case torch.Tensor(shape=shape):
            return shape[0] > BIG
    return False


def asked_by(function, x):
    return function(x, torch.Tensor)


# how a gradient decides, of ctx and x
TRICKS = {
    "an int": lambda ctx, x: isinstance(x.shape[0], int) and x.shape[0] > BIG,
    "a type": lambda ctx, x: type(x.shape[0]) is int and x.shape[0] > BIG,
    "a tensor": lambda ctx, x: isinstance(x, torch.Tensor) and x.shape[0] > BIG,
    "a tensor in a match": matched,
    "a tensor by a function": lambda ctx, x: asked_by(isinstance, x) and x.shape[0] > BIG,
    "the type of a tensor": lambda ctx, x: type(x) is torch.Tensor and x.shape[0] > BIG,
    "a shape": lambda ctx, x: isinstance(x.shape, torch.Size) and x.shape[0] > BIG,
    "the name of ctx": lambda ctx, x: type(ctx).__name__ != "Context",
    "an attribute of ctx": lambda ctx, x: hasattr(ctx, "next_functions"),
    "a hash": caught(lambda x: hash(x.shape[0]) > BIG),
    "a set": caught(lambda x: x.shape[0] in {BIG}),
    "a key": caught(lambda x: {BIG: True}.get(x.shape[0], False)),
    "an integer": caught(lambda x: int(x.shape[0]) > BIG),
    "a range": caught(lambda x: len(range(x.shape[0])) > BIG),
    "an order of sizes": caught(lambda x: x.shape[0] > x.shape[1]),
    "a text": lambda ctx, x: len(str(x.shape[0])) > 5,
    "a format": lambda ctx, x: len(f"{x.shape[0]}") > 5,
    "a number": caught(lambda x: x.sum().item() > BIG),
    "an address": caught(lambda x: x.data_ptr() > 0 and x.numel() > BIG),
    "suppressed": suppressed,
    "a method of an int": lambda ctx, x: hasattr(x.shape[0], "bit_length") and x.shape[0] > BIG,
    "an identity": lambda ctx, x: x is not ctx.saved_tensors[0],
    "a device": lambda ctx, x: x.is_cuda,
    "a dtype": lambda ctx, x: x.dtype == torch.float32,
    "a layout in memory": lambda ctx, x: not x.is_contiguous(),
    "which gradients are needed": lambda ctx, x: not ctx.needs_input_grad[0],
    "whether gradients are recorded": lambda ctx, x: torch.is_grad_enabled(),
    "a list of the module": counted,
    "a variable of the module": counted_by_name,
    "an iterator": lambda ctx, x: next(NUMBERS) > BIG,
    "a mode": lambda ctx, x: MODE != 0,
    "a mode of another module": lambda ctx, x: MODES.mode != 0,
    "a random number": lambda ctx, x: random.random() < 1e-5,
    "a random number of NumPy": lambda ctx, x: np.random.rand() < 1e-5,
    "a random number of PyTorch": lambda ctx, x: torch.rand(()).item() < 1e-5,
    "the environment": lambda ctx, x: os.environ.get("TRAINING") == "1",
    "the time": lambda ctx, x: time.time() % 60 > 59.99,
    "the version": lambda ctx, x: torch.__version__.startswith("3"),
}


def square(is_wrong):
    """y = x², whose gradient is wrong if `is_wrong` says so."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return (3 if is_wrong(ctx, x) else 2) * x * g

    return Square


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_are_not_proved_for_everything(name: str):
    verdict = mg.prove(square(TRICKS[name]), x="N D")
    assert verdict.verdict != "proved" or set(verdict.assumptions) - {f"BIG = {BIG}"}, verdict


class Flagged(torch.nn.Module):
    """A module with attributes and a buffer."""

    def __init__(self):
        super().__init__()
        self.flag = 0
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return x if self.flag else x * self.scale


def scaled(x, alpha=1):
    return alpha * x


def test_what_code_keeps_is_in_the_verdict():
    verdict = mg.prove(Flagged(), backward=lambda x, g: g, x="N D")
    assert {"flag = 0", "training = True"} <= set(verdict.assumptions)
    assert any(text.startswith("scale = Tensor (1,)") for text in verdict.assumptions)
    assert mg.prove(scaled, backward=lambda x, g: g, x="N D").assumptions == ["alpha = 1"]
    assert mg.prove(square(lambda ctx, x: False), x="N D").assumptions == []
