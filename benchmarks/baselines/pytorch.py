"""Native PyTorch: torch.nn, autograd and torch.optim, for dense and for sparse weights; and its products."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from baselines.products import Products
from harness.problems import Parameters
from harness.tools import TrainingTool
from matgrad.sparse.matrix import SparseMatrix, restricted

DENSE_FROM = 0.25  # the density above which PyTorch's dense product is faster than its sampled one


class PyTorch(TrainingTool):
    """nn.Sequential, nn.CrossEntropyLoss and optim.SGD with momentum.

    Not slower than SGD(foreach=True) and SGD(fused=True).
    """

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = torch.tensor(X), torch.tensor(t)

    def start(self, parameters: Parameters) -> None:
        modules: list[nn.Module] = []
        for W, b in parameters:
            modules += [self.linear(W, b), nn.ReLU()]
        self.model = nn.Sequential(*modules[:-1])
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=self.setting.learning_rate, momentum=self.setting.momentum
        )

    def linear(self, W: Any, b: np.ndarray) -> nn.Module:
        """A linear module with these weights and this bias."""
        linear = nn.Linear(W.shape[1], W.shape[0], device="meta")  # without initial weights, which would take time
        linear.weight, linear.bias = nn.Parameter(torch.tensor(W)), nn.Parameter(torch.tensor(b[0]))
        return linear

    def train(self, batches: int) -> None:
        X, t, model, optimizer, B = self.X, self.t, self.model, self.optimizer, self.setting.batch_size
        criterion = nn.CrossEntropyLoss()
        for i in range(0, batches * B, B):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(X[i : i + B]), t[i : i + B])
            loss.backward()
            self.before_step()
            optimizer.step()

    def before_step(self) -> None:
        """Nothing: dense gradients need no change."""

    def parameters(self) -> Parameters:
        linears = [module for module in self.model if isinstance(module, nn.Linear)]
        return [(x.weight.detach().numpy(), x.bias.detach().numpy()[None]) for x in linears]


# -- sparse weights ------------------------------------------------------------------------------


class MaskedPyTorch(PyTorch):
    """Sparse weights as dense weights with zeros, which stay zero because the gradients are multiplied by a mask.

    That is the cheapest correct masking: the weights are masked once, at the start.
    """

    def start(self, parameters: Parameters) -> None:
        self.supports = [W.support if isinstance(W, SparseMatrix) else None for W, _ in parameters]
        super().start([(W.to_dense() if isinstance(W, SparseMatrix) else W, b) for W, b in parameters])
        weights = [module.weight for module in self.model if isinstance(module, nn.Linear)]
        self.masks = [
            (weight, (weight.detach() != 0).to(weight.dtype))
            for weight, support in zip(weights, self.supports, strict=True)
            if support is not None
        ]

    def before_step(self) -> None:
        """Set the gradients outside the supports to 0."""
        for weight, mask in self.masks:
            assert weight.grad is not None
            weight.grad.mul_(mask)

    def parameters(self) -> Parameters:
        pairs = zip(super().parameters(), self.supports, strict=True)
        return [(W if support is None else restricted(W, support), b) for (W, b), support in pairs]


class CSRPyTorch(PyTorch):
    """Sparse weights in PyTorch's CSR format, with gradients of the stored elements only."""

    def linear(self, W: Any, b: np.ndarray) -> nn.Module:
        """A sparse module for sparse weights."""
        return CSRLinear(W, b) if isinstance(W, SparseMatrix) else super().linear(W, b)

    def parameters(self) -> Parameters:
        linears: list[Any] = [module for module in self.model if not isinstance(module, nn.ReLU)]
        return [(_weights(x), x.bias.detach().numpy().reshape(1, -1)) for x in linears]


def _weights(linear: Any) -> Any:
    """The weights of a module."""
    values = linear.weight.detach().numpy()
    return linear.sparse.with_values(values[None]) if isinstance(linear, CSRLinear) else values


class CSRLinear(nn.Module):
    """Y = X Wᵀ + b with W in CSR format; its parameter `weight` is the vector of stored elements.

    Wᵀ is kept in CSR format too: faster than the product with a transposed CSR matrix. nn.functional.linear
    and autograd also train a CSR matrix, but more slowly, since they compute all elements of the gradient.
    """

    def __init__(self, W: SparseMatrix, b: np.ndarray) -> None:
        super().__init__()
        S, self.sparse = W.support, W
        self.weight, self.bias = nn.Parameter(torch.tensor(W.values[0])), nn.Parameter(torch.tensor(b.T))
        index = (S.starts, S.columns, S.column_starts, S.rows)
        self.starts, self.columns, self.column_starts, self.rows = (torch.tensor(A, dtype=torch.int32) for A in index)
        self.positions = torch.tensor(S.positions)
        self.flat = torch.tensor(S.flat()) if S.density >= DENSE_FROM else None

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Y"""
        return _CSRProduct.apply(X, self.weight, self.bias, self)

    def matrix(self, weight: torch.Tensor) -> torch.Tensor:
        """W"""
        size = self.sparse.shape
        return torch.sparse_csr_tensor(self.starts, self.columns, weight, size, check_invariants=False)

    def transposed(self, weight: torch.Tensor) -> torch.Tensor:
        """Wᵀ"""
        values, size = weight.index_select(0, self.positions), self.sparse.shape[::-1]
        return torch.sparse_csr_tensor(self.column_starts, self.rows, values, size, check_invariants=False)


class _CSRProduct(torch.autograd.Function):
    """Y = X Wᵀ + b and its gradients: DX = DY W, DW = DYᵀ X at the support, Db = Σ DY."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, linear: CSRLinear) -> torch.Tensor:
        ctx.save_for_backward(X, weight)
        ctx.linear = linear
        return torch.addmm(bias, linear.matrix(weight), X.T).T

    @staticmethod
    def backward(ctx: Any, DY: torch.Tensor) -> Any:
        X, weight = ctx.saved_tensors
        linear = ctx.linear
        DX = (linear.transposed(weight) @ DY.T).T if ctx.needs_input_grad[0] else None
        if linear.flat is None:
            DW = torch.sparse.sampled_addmm(linear.matrix(weight), DY.T, X, beta=0.0).values()
        else:
            DW = (DY.T @ X).view(-1).take(linear.flat)
        return DX, DW, DY.sum(dim=0).reshape(-1, 1), None


# -- products ------------------------------------------------------------------------------------


class PyTorchProducts(Products):
    """torch.mm with out=."""

    def array(self, A: np.ndarray) -> torch.Tensor:
        """A tensor with its own memory."""
        return torch.tensor(A)

    def forward(self, Y: torch.Tensor, X: torch.Tensor, W: torch.Tensor) -> None:
        """Y = X Wᵀ"""
        torch.mm(X, W.T, out=Y)

    def gradient(self, DW: torch.Tensor, DY: torch.Tensor, X: torch.Tensor) -> None:
        """DW = DYᵀ X"""
        torch.mm(DY.T, X, out=DW)

    def backward(self, DX: torch.Tensor, DY: torch.Tensor, W: torch.Tensor) -> None:
        """DX = DY W"""
        torch.mm(DY, W, out=DX)
