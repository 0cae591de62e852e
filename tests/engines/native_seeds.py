"""Small programs and data for them, from which the fuzz test of the core makes its mutants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import matgrad as mg
from matgrad.datasets import Normalization
from matgrad.specifications.models import create_model
from matgrad.storage.programs import save_program

D, K = 6, 3
N = 64  # examples per batch: so many are split by two threads
MODELS = {
    "dense": {"layers": "ReLU;GELU;Linear", "optimizers": "Momentum(0.9)"},
    "sparse": {"layers": "ReLU;Linear;Linear", "densities": "0.5;0.3;1", "optimizers": "Adam"},
    "mixed": {
        "layers": "ReLU;BatchNormalization;SReLU;LayerNormalization;LogSoftmax",
        "densities": "0.5;1;0.5",
        "dropouts": "0.2",
        "optimizers": "Adam",
    },
    "images": {"layers": "Conv(2, 2, padding=1, act=ReLU);MaxPool(2);AvgPool(1);Linear", "sizes": f"2x3x1;{K}"},
    "tokens": {
        "layers": "Residual(Each(LayerNormalization;Linear(6));Attention(1);Each(Linear(2)));Linear",
        "sizes": f"3x2;{K}",
    },
    "labels": {"layers": "Embedding(2, vocabulary=3);Positions;Linear", "sizes": f"{D};{K}", "densities": 0.5},
}


def save_seeds(folder: Path) -> None:
    """A training step and feedforward of each model, in float32 or float64, with and without scaled inputs."""
    rng = np.random.default_rng(1)
    X, t = rng.normal(size=(2 * N + 3, D)), rng.integers(0, K, 2 * N + 3)
    for i, (name, options) in enumerate(MODELS.items()):
        mg.manual_seed(i)
        dtype = ("float32", "float64")[i % 2]
        M = create_model(**{"sizes": f"{D};8;5;{K}"} | options).to(dtype=dtype)
        if i:
            M.normalization = Normalization.of("standard", X)
        for kind in ("step", "feedforward"):
            program = M.program(batch_size=N, **({"feedforward": True} if kind == "feedforward" else {}))
            save_program(program, folder / f"{name}.{kind}", M)
        save_file({"X": X.astype(dtype), "t": t}, folder / f"{name}.data")
