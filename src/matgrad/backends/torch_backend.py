"""The table on PyTorch."""

from __future__ import annotations

import numpy as np
import torch

from matgrad.backends.base import Backend
from matgrad.backends.hashing import times_64, uniform


class TorchBackend(Backend):
    """PyTorch tensors on any device."""

    name = "torch"

    def full(self, value, m, n, like):
        return torch.full((m, n), value, dtype=like.dtype, device=like.device)

    def identity(self, n, like):
        return torch.eye(n, dtype=like.dtype, device=like.device)

    def hadamard(self, X, Y):
        return X * Y

    def diag(self, X):
        return torch.diagonal(X)[:, None]

    def Diag(self, x):
        return torch.diag(x.reshape(-1))

    def elements_sum(self, X):
        return torch.sum(X)

    def column_repeat(self, x, n):
        return x.expand(x.shape[0], n)

    def row_repeat(self, x, m):
        return x.expand(m, x.shape[1])

    def columns_sum(self, X):
        return torch.sum(X, dim=0, keepdim=True)

    def rows_sum(self, X):
        return torch.sum(X, dim=1, keepdim=True)

    def columns_max(self, X):
        return torch.amax(X, dim=0, keepdim=True)

    def rows_max(self, X):
        return torch.amax(X, dim=1, keepdim=True)

    def exp(self, X):
        return torch.exp(X)

    def log(self, X):
        return torch.log(X)

    def log1p(self, X):
        return torch.log1p(X)

    def reciprocal(self, X):
        return torch.reciprocal(X)

    def sqrt(self, X):
        return torch.sqrt(X)

    def tanh(self, X):
        return torch.tanh(X)

    def erf(self, X):
        return torch.erf(X)

    def step(self, X):
        return (X >= 0).to(X.dtype)

    def log_sigmoid(self, X):
        return torch.nn.functional.logsigmoid(X)

    def uniform(self, m, n, seed, count, like):
        seed, count = (torch.as_tensor(x, dtype=torch.int64, device=like.device) for x in (seed, count))
        position = torch.arange(m * n, dtype=torch.int64, device=like.device).reshape(m, n)
        return uniform(position, seed, count, times_64).to(like.dtype) / 2**24

    def compile(self, step):
        from matgrad.backends.torch_kernels import TorchKernels
        from matgrad.program.execution import ProgramStep

        return ProgramStep(step, TorchKernels(self))

    def from_numpy(self, A, device=None):
        return torch.tensor(np.asarray(A), device=device)

    def to_numpy(self, X):
        return X.detach().cpu().numpy()

    def take_rows(self, X, indices):
        return X[torch.as_tensor(indices, device=X.device)]

    def dtype(self, X):
        return str(X.dtype).removeprefix("torch.")

    def device(self, X):
        return str(X.device)

    def check_device(self, device):
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {device!r}: {str(error).splitlines()[0]}") from None
