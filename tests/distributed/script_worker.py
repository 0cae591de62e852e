"""What a rank of `test_scripts.py` does: groups, one after the other, in one process; it writes what it found."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import matgrad as mg

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
found: dict[str, object] = {}


def collectives(group) -> dict[str, object]:
    """What the methods of a group give, for NumPy and PyTorch."""
    results: dict[str, object] = {"exchange": group.exchange({"rank": rank, "word": "é" * 300 * rank})}
    for name, made in (("numpy", np.asarray), ("torch", torch.as_tensor)):
        X, Y, Z = (made(np.full((2, 3), 1.0 + rank)) for _ in range(3))
        group.wait(group.start_sum(X))
        group.maximum(Y)
        group.broadcast(Z)
        parts = group.gather(made(np.full((1 + rank, 2), float(rank))), [(1, 2), (2, 2)])
        results[name] = [A.tolist() for A in (X, Y, Z, *parts)]
    return results


def trained(**options) -> mg.MultilayerPerceptron:
    """A small model."""
    X, t = mg.load_digits()
    mg.manual_seed(0)
    M = mg.create_model("BatchNormalization;ReLU;Linear", [64, 16, 10]).to(dtype="float64")
    M.fit(X[:99] / 16, t[:99], **({"epochs": 2, "batch_size": 14, "seed": 0} | options))
    return M


with mg.distributed.start(timeout=60) as group:
    found["collectives"] = collectives(group)
    found["is_first"] = mg.distributed.is_first()
    M = trained()
    if group.is_first:
        M.save(folder / "together.npz")
    try:
        trained(seed=rank)
    except mg.distributed.Disagreement as error:
        found["disagreement"] = str(error)
found["is_alone"] = mg.distributed.current() is None

# a process group of the user's, which stays
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(sys.argv[2]), 2, rank == 0, timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
with mg.distributed.start(timeout=60) as group:
    found["adopted"] = group.exchange(rank)
X = torch.ones(2)
dist.all_reduce(X)
found["kept"] = X.tolist()
dist.destroy_process_group()

# a rank that fails tells the other why
try:
    with mg.distributed.start(timeout=60) as group:
        if rank == 1:
            raise KeyError("no such column")
        group.exchange("waiting")
except (KeyError, ConnectionError) as error:
    found["failure"] = f"{type(error).__name__}: {error}"
(folder / f"{rank}.json").write_text(json.dumps(found))
