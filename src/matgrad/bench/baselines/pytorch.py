"""Native PyTorch: torch.nn, autograd and torch.optim."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from matgrad.bench.training_tool import Parameters, TrainingTool


class PyTorch(TrainingTool):
    """nn.Sequential, nn.CrossEntropyLoss and optim.SGD with momentum.

    Not slower than SGD(foreach=True) and SGD(fused=True).
    """

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Tensors of their own memory."""
        self.X, self.t = torch.tensor(X), torch.tensor(t)

    def start(self, parameters: Parameters) -> None:
        """A new model and a new optimizer."""
        modules: list[nn.Module] = []
        for W, b in parameters:
            linear = nn.Linear(W.shape[1], W.shape[0])
            linear.weight, linear.bias = nn.Parameter(torch.tensor(W)), nn.Parameter(torch.tensor(b[0]))
            modules += [linear, nn.ReLU()]
        self.model = nn.Sequential(*modules[:-1])
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=self.setting.learning_rate, momentum=self.setting.momentum
        )

    def train(self, batches: int) -> None:
        """The usual loop."""
        X, t, model, optimizer, B = self.X, self.t, self.model, self.optimizer, self.setting.batch_size
        criterion = nn.CrossEntropyLoss()
        for i in range(0, batches * B, B):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(X[i : i + B]), t[i : i + B])
            loss.backward()
            optimizer.step()

    def parameters(self) -> Parameters:
        """Those of the linear modules."""
        linears = [module for module in self.model if isinstance(module, nn.Linear)]
        return [(x.weight.detach().numpy(), x.bias.detach().numpy()[None]) for x in linears]

    def release(self) -> None:
        """Drop the tensors."""
        del self.X, self.t
