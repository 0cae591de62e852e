"""Native PyTorch on a GPU: eager, compiled by torch.compile, and captured in a CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from baselines.pytorch import PyTorch
from harness.problems import Parameters, Setting

PRECISIONS = {"float32": "highest", "tf32": "high"}  # as torch.set_float32_matmul_precision calls them


class GPUPyTorch(PyTorch):
    """nn.Sequential, nn.CrossEntropyLoss and optim.SGD, eager. The examples are on the GPU from the start."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.criterion = nn.CrossEntropyLoss()
        self.is_made = False
        torch.set_float32_matmul_precision(PRECISIONS[setting.matmul])

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = (torch.tensor(A, device=self.setting.device) for A in (X, t))

    def start(self, parameters: Parameters) -> None:
        if not self.is_made:
            super().start(parameters)
            self.model.to(self.setting.device)
            self.is_made = True
        new = [torch.from_numpy(A) for W, b in parameters for A in (W, b[0])]
        with torch.no_grad():
            for old, A in zip(self.model.parameters(), new, strict=True):
                old.copy_(A)
        for state in self.optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()

    def loss(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        return self.criterion(self.model(x), t)

    def update(self) -> None:
        self.optimizer.step()

    def step(self, x: torch.Tensor, t: torch.Tensor) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(x, t).backward()
        self.update()

    def train(self, batches: int) -> None:
        X, t, B = self.X, self.t, self.setting.batch_size
        for i in range(0, batches * B, B):
            self.step(X[i : i + B], t[i : i + B])
        if X.is_cuda:
            torch.cuda.synchronize()

    def parameters(self) -> Parameters:
        linears = [module for module in self.model if isinstance(module, nn.Linear)]
        return [(x.weight.detach().cpu().numpy(), x.bias.detach().cpu().numpy()[None]) for x in linears]


class CompiledPyTorch(GPUPyTorch):
    """The loss, and with it its gradient, and the step of the optimizer, each compiled by torch.compile."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        torch._dynamo.reset()  # forget what was compiled for another setting
        self._loss: Any = torch.compile(super().loss)
        self._update: Any = torch.compile(super().update)

    def loss(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        return self._loss(x, t)

    def update(self) -> None:
        self._update()

    def prepare(self) -> None:
        self.train(5)


class GraphPyTorch(GPUPyTorch):
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
