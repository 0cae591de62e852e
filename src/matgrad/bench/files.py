"""The files through which the processes of a benchmark share data and parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matgrad.bench.training_tool import Parameters
from matgrad.files import read_npz


def write_problem(folder: Path, X: np.ndarray, t: np.ndarray, initial: Parameters) -> None:
    """Examples, classes and initial parameters, for every tool."""
    np.save(folder / "X.npy", X)
    np.save(folder / "t.npy", t)
    write_parameters(folder / "initial.npz", initial)


def write_parameters(path: Path, parameters: Parameters) -> None:
    """W1, b1, W2, …"""
    content = {f"{name}{k}": A for k, pair in enumerate(parameters, 1) for name, A in zip("Wb", pair, strict=True)}
    np.savez(path, **content)  # type: ignore[arg-type]


def read_parameters(path: Path) -> Parameters:
    """The parameters in a file of `write_parameters`."""
    content = read_npz(path)
    return [(content[f"W{k}"], content[f"b{k}"]) for k in range(1, len(content) // 2 + 1)]
