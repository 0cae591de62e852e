"""Kernels of Triton, in its interpreter, against the references that proofs rest on."""

from __future__ import annotations

import torch

import matgrad as mg
from triton_support import tl, triton


@triton.jit
def tanh_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.exp(2 * tl.load(x + i, mask=i < n))
    tl.store(y + i, (e - 1) / (e + 1), mask=i < n)


@triton.jit
def softmax_kernel(y, g, dx, D, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = tl.program_id(0) * stride + i
    yi = tl.load(y + place, mask=i < D, other=0.0)
    gi = tl.load(g + place, mask=i < D, other=0.0)
    tl.store(dx + place, yi * (gi - tl.sum(yi * gi, 0)), mask=i < D)


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        tanh_kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g, dx = g.contiguous(), torch.empty_like(y)
        BLOCK = triton.next_power_of_2(y.shape[1])
        softmax_kernel[(y.shape[0],)](y, g, dx, y.shape[1], y.stride(0), BLOCK=BLOCK)
        return dx


class SoftmaxOfAnyGradient(Softmax):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        softmax_kernel[(y.shape[0],)](y, g, dx, y.shape[1], y.stride(0), BLOCK=256)
        return dx


def tanh(x, y):
    y.copy_(torch.tanh(x))


def softmax(y, g, dx):
    dx.copy_(y * (g - (y * g).sum(-1, keepdim=True)))


def test_kernels_of_triton():
    verdict = mg.prove(Tanh, x="N D", reference={tanh_kernel: tanh}).check()
    assert "tested, not proved: equal to its reference in 9 calls" in verdict.tested[0]
    mg.prove(Softmax, x="N D", reference={softmax_kernel: softmax}).check()


def test_a_kernel_for_contiguous_gradients_alone():
    verdict = mg.prove(SoftmaxOfAnyGradient, x="N D", reference={"softmax_kernel": softmax})
    assert verdict.verdict == "refuted"
    assert "(not contiguous)" in verdict.lines[0]
