"""PyTorch's DistributedDataParallel, and what it takes to add up the gradients of all ranks."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from baselines.pytorch import PyTorch
from harness.problems import Parameters, Setting
from harness.tools import TrainingTool
from matgrad.distributed.group import part
from matgrad.sparse.matrix import values_of


class DistributedPyTorch(PyTorch):
    """The same model in DistributedDataParallel, which is made once; every rank trains on its rows of a batch."""

    replicas: DistributedDataParallel | None = None

    def start(self, parameters: Parameters) -> None:
        if self.replicas is None:
            super().start(parameters)
            self.replicas = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
            return
        given = [torch.tensor(A) for W, b in parameters for A in (W, b[0])]
        with torch.no_grad():
            for own, A in zip(self.model.parameters(), given, strict=True):
                own.copy_(A)
        self.optimizer.state.clear()

    def train(self, batches: int) -> None:
        X, t, replicas, optimizer, B = self.X, self.t, self.replicas, self.optimizer, self.setting.batch_size
        assert replicas is not None
        own, criterion = part(B, dist.get_rank(), dist.get_world_size()), nn.CrossEntropyLoss()
        for i in range(0, batches * B, B):
            rows = slice(i + own.start, i + own.stop)
            optimizer.zero_grad(set_to_none=True)
            criterion(replicas(X[rows]), t[rows]).backward()
            optimizer.step()


class AllReduce(TrainingTool):
    """Adds up as many numbers as there are parameters, once per batch, or with `is_small` one number."""

    def __init__(self, setting: Setting, is_small: bool = False) -> None:
        super().__init__(setting)
        self.is_small = is_small

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Nothing: there are no examples."""

    def start(self, parameters: Parameters) -> None:
        size = 1 if self.is_small else sum(values_of(W).size + b.size for W, b in parameters)
        self.numbers = torch.zeros(size, dtype=getattr(torch, self.setting.dtype))

    def train(self, batches: int) -> None:
        for _ in range(batches):
            dist.all_reduce(self.numbers)

    def parameters(self) -> Parameters:
        return []
