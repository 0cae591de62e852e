"""Kernels for PyTorch tensors."""

from __future__ import annotations

from typing import Any

import torch

from matgrad.engines.kernels import Kernels, into


class TorchKernels(Kernels):
    """The instructions of a program on PyTorch tensors."""

    exp, log, log1p = into(torch.exp), into(torch.log), into(torch.log1p)
    sqrt, tanh, erf, reciprocal = into(torch.sqrt), into(torch.tanh), into(torch.erf), into(torch.reciprocal)
    add, subtract, hadamard = into(torch.add), into(torch.sub), into(torch.mul)
    negative, divide, power, matmul = into(torch.neg), into(torch.div), into(torch.pow), into(torch.mm)
    step = into(lambda X, out: torch.ge(X, 0, out=out))
    elements_sum = into(torch.sum, dim=(0, 1))
    columns_sum, rows_sum = into(torch.sum, dim=0, keepdim=True), into(torch.sum, dim=1, keepdim=True)
    columns_max, rows_max = into(torch.amax, dim=0, keepdim=True), into(torch.amax, dim=1, keepdim=True)

    def empty(self, shape, dtype, like):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def repeat(self, x, shape):
        return x.expand(shape)

    def run(self, code, slots):
        with torch.no_grad():
            super().run(code, slots)

    def copy(self, out, X):
        out.copy_(X)

    def scale(self, out, c, X):
        torch.mul(X, c, out=out)

    def add_scaled(self, out, Y, c, X):
        if _is_number(c):
            torch.add(Y, X, alpha=float(c), out=out)
        else:
            torch.addcmul(Y, X, c, out=out)

    def gate(self, out, A, Z):
        torch.mul(A, Z >= 0, out=out)

    def product_sum(self, out, beta, C, alpha, A, B):
        if not _is_number(alpha):  # a scalar on a device: the host must not wait for it
            A, alpha = alpha * A, 1
        if not _is_number(beta):
            C, beta = beta * C, 1
        if not (abs(alpha) > 0 and abs(beta) > 0):  # addmm leaves out what has the factor 0 or nan
            torch.add(beta * C, alpha * (A @ B), out=out)
        else:
            torch.addmm(C, A, B, beta=float(beta), alpha=float(alpha), out=out)


def _is_number(c: Any) -> bool:
    """Whether c can be read without waiting for a device."""
    return not isinstance(c, torch.Tensor) or c.device.type == "cpu"
