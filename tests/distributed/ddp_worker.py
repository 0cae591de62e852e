"""A rank that trains one step with DistributedDataParallel, and with matgrad: ``ddp_worker.py``, started by torchrun.

Rank 0 prints, as JSON, how far the parameters are from those of one process, with and without batch normalization,
for batches of 6 and 7 examples: ``{"ddp": {"plain 6": 1e-17, …}, "matgrad": {…}}``.
"""

from __future__ import annotations

import json

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import matgrad as mg
from matgrad.distributed.group import part

RATE = 0.1
LAYERS = {"plain": "ReLU;Linear", "batch normalization": "Linear;BatchNormalization;Linear"}
rng = np.random.default_rng(0)
X, t = rng.standard_normal((7, 20)), rng.integers(0, 5, 7)


def torch_step(model: nn.Module, rows: slice) -> list[np.ndarray]:
    """The parameters of a model after a step on these rows."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    nn.functional.cross_entropy(model(torch.tensor(X[rows])), torch.tensor(t[rows])).backward()
    optimizer.step()
    return [p.detach().numpy().copy() for p in model.parameters()]


def torch_model(kind: str) -> nn.Module:
    torch.manual_seed(1)
    middle = nn.ReLU() if kind == "plain" else nn.BatchNorm1d(16)
    return nn.Sequential(nn.Linear(20, 16), middle, nn.Linear(16, 5)).double()


def matgrad_step(kind: str, N: int) -> list[np.ndarray]:
    """The state of a model after a step on N examples."""
    mg.manual_seed(1)
    M = mg.create_model(LAYERS[kind], "20;16;5", optimizers="GradientDescent").to("torch", dtype="float64")
    loader = mg.DataLoader(X[:N], t[:N], N, classes=5).to("torch", dtype="float64")
    mg.stochastic_gradient_descent(M, 1, mg.SoftmaxCrossEntropyLoss(), mg.ConstantScheduler(RATE), loader)
    return [np.array(M.backend.to_numpy(A)) for A in M.state().values()]


def largest(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(float(np.abs(A - B).max()) for A, B in zip(found, expected, strict=True))


def main() -> None:
    """Compare both with one process."""
    cases = [(kind, N) for kind in LAYERS for N in (6, 7)]
    alone = {case: matgrad_step(*case) for case in cases}
    dist.init_process_group("gloo")
    errors: dict[str, dict[str, float]] = {"ddp": {}, "matgrad": {}}
    with mg.distributed.start() as group:
        for kind, N in cases:
            replicas = nn.parallel.DistributedDataParallel(torch_model(kind))
            found = torch_step(replicas, part(N, group.rank, group.size))
            errors["ddp"][f"{kind} {N}"] = largest(found, torch_step(torch_model(kind), slice(N)))
            errors["matgrad"][f"{kind} {N}"] = largest(matgrad_step(kind, N), alone[kind, N])
    if group.rank == 0:
        print(json.dumps(errors))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
