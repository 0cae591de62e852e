"""Native PyTorch: torch.nn, autograd, torch.optim; eager, compiled, in a CUDA graph, on several processes, sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness.problems import Parameters, Setting, dense, stored
from harness.tools import TrainingTool
from matgrad.distributed.group import part
from matgrad.sparse.matrix import SparseMatrix, restricted

DENSE_FROM = 0.25  # the density above which PyTorch's dense product is faster than its sampled one
PRECISIONS = {"float32": "highest", "tf32": "high"}  # as torch.set_float32_matmul_precision calls them


class PyTorch(TrainingTool):
    """nn.Sequential, nn.CrossEntropyLoss and optim.SGD with momentum, made once; the examples are on the device.

    Not slower than SGD(foreach=True) and SGD(fused=True).
    """

    model: nn.Sequential | None = None

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.criterion = nn.CrossEntropyLoss()
        torch.set_float32_matmul_precision(PRECISIONS[setting.matmul])

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = (torch.tensor(A, device=self.setting.device) for A in (X, t))

    def start(self, parameters: Parameters) -> None:
        if self.model is None:
            modules = [module for W, b in parameters for module in (self.linear(W, b), nn.ReLU())]
            self.model = nn.Sequential(*modules[:-1]).to(self.setting.device)
            learning_rate, momentum = self.setting.learning_rate, self.setting.momentum
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate, momentum=momentum)
            self.initial = [A.detach().clone() for A in self.model.parameters()]
        with torch.no_grad():
            for A, initial in zip(self.model.parameters(), self.initial, strict=True):
                A.copy_(initial)
        for state in self.optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()

    def linear(self, W: Any, b: np.ndarray) -> nn.Module:
        """A linear module with these weights and this bias."""
        linear = nn.Linear(W.shape[1], W.shape[0], device="meta")  # without initial weights, which would take time
        linear.weight, linear.bias = nn.Parameter(torch.tensor(dense(W))), nn.Parameter(torch.tensor(b[0]))
        return linear

    def train(self, batches: int) -> None:
        X, t, B = self.X, self.t, self.setting.batch_size
        for i in range(0, batches * B, B):
            self.step(X[i : i + B], t[i : i + B])
        if X.is_cuda:
            torch.cuda.synchronize()

    def step(self, x: torch.Tensor, t: torch.Tensor) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(x, t).backward()
        self.update()

    def loss(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        assert self.model is not None
        return self.criterion(self.model(x), t)

    def update(self) -> None:
        """The step of the optimizer."""
        self.optimizer.step()

    def linears(self) -> list[Any]:
        """The linear modules."""
        assert self.model is not None
        return list(self.model)[::2]

    def parameters(self) -> Parameters:
        pairs = [(x.weight.detach().cpu().numpy(), x.bias.detach().cpu().numpy()) for x in self.linears()]
        return [(W, b.reshape(1, -1)) for W, b in pairs]


class CompiledPyTorch(PyTorch):
    """The loss, and with it its gradient, and the step of the optimizer, each compiled by torch.compile."""

    def start(self, parameters: Parameters) -> None:
        if self.model is None:
            self.loss: Any = torch.compile(super().loss)
            self.update: Any = torch.compile(super().update)
        super().start(parameters)

    def prepare(self) -> None:
        self.train(5)


class GraphPyTorch(PyTorch):
    """The whole step, with that of the optimizer, in one CUDA graph; a batch is copied to where the graph reads it."""

    def prepare(self) -> None:
        B = self.setting.batch_size
        self.x, self.y = self.X[:B].clone(), self.t[:B].clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                super().step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().step(self.x, self.y)

    def step(self, x: torch.Tensor, t: torch.Tensor) -> None:
        """Train on a batch."""
        self.x.copy_(x)
        self.y.copy_(t)
        self.graph.replay()


class CompiledGraphPyTorch(GraphPyTorch, CompiledPyTorch):
    """What torch.compile makes of the loss, its gradient and the optimizer, in one CUDA graph."""


# -- several processes ---------------------------------------------------------------------------


class DistributedPyTorch(PyTorch):
    """The same model in DistributedDataParallel; every rank trains on its rows of a batch."""

    def start(self, parameters: Parameters) -> None:
        is_new = self.model is None
        super().start(parameters)
        if is_new:
            self.replicas = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
            self.rows = part(self.setting.batch_size, dist.get_rank(), dist.get_world_size())

    def loss(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The mean loss of the rows of this rank."""
        return self.criterion(self.replicas(x[self.rows]), t[self.rows])


class AllReduce(TrainingTool):
    """Adds up as many numbers as there are parameters, once per batch, or with `is_small` one number."""

    def __init__(self, setting: Setting, is_small: bool = False) -> None:
        super().__init__(setting)
        self.is_small = is_small

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Nothing: there are no examples."""

    def start(self, parameters: Parameters) -> None:
        size = 1 if self.is_small else stored(parameters) + sum(b.size for _, b in parameters)
        self.numbers = torch.zeros(size, dtype=getattr(torch, self.setting.dtype))

    def train(self, batches: int) -> None:
        for _ in range(batches):
            dist.all_reduce(self.numbers)


# -- sparse weights ------------------------------------------------------------------------------


class MaskedPyTorch(PyTorch):
    """Sparse weights as dense weights with zeros, which stay zero because the gradients are multiplied by a mask.

    That is the cheapest correct masking: the weights are masked once, at the start.
    """

    def start(self, parameters: Parameters) -> None:
        super().start(parameters)
        self.supports = [W.support if isinstance(W, SparseMatrix) else None for W, _ in parameters]
        pairs = zip((x.weight for x in self.linears()), self.supports, strict=True)
        self.masks = {W: (W.detach() != 0).to(W.dtype) for W, support in pairs if support is not None}

    def update(self) -> None:
        """Set the gradients outside the masks to 0."""
        for weight, mask in self.masks.items():
            assert weight.grad is not None
            weight.grad.mul_(mask)
        super().update()

    def parameters(self) -> Parameters:
        pairs = zip(super().parameters(), self.supports, strict=True)
        return [(W if support is None else restricted(W, support), b) for (W, b), support in pairs]


class CSRPyTorch(PyTorch):
    """Sparse weights in PyTorch's CSR format, with gradients of the stored elements only."""

    def linear(self, W: Any, b: np.ndarray) -> nn.Module:
        """A sparse module for sparse weights."""
        return CSRLinear(W, b) if isinstance(W, SparseMatrix) else super().linear(W, b)

    def parameters(self) -> Parameters:
        pairs = zip(self.linears(), super().parameters(), strict=True)
        return [(x.sparse.with_values(W[None]) if isinstance(x, CSRLinear) else W, b) for x, (W, b) in pairs]


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
