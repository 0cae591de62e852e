"""Train one model in two workers of Ray Train: ``pip install 'ray[train]'``, then ``python ray_train.py model.npz``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

import matgrad as mg


def train(settings: dict[str, Any]) -> None:
    """What every worker does: Ray has made a process group, whose ranks train together what one would."""
    X, t = mg.load_digits()
    with mg.distributed.start() as group:
        mg.manual_seed(0)
        M = mg.create_model("ReLU;Linear", [64, 32, 10]).to(dtype="float64")
        M.fit(X / 16, t, epochs=settings["epochs"], seed=0)
        if group.is_first:
            M.save(settings["file"])


if __name__ == "__main__":
    settings = {"epochs": 3, "file": str(Path(sys.argv[1]).absolute())}
    TorchTrainer(train, train_loop_config=settings, scaling_config=ScalingConfig(num_workers=2)).fit()
