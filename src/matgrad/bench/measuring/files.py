"""The files through which the processes of a benchmark share data and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from matgrad.bench.tools.training_tool import Parameters
from matgrad.foundation.files import read_npz
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.sparse.support import Support


def write_problem(folder: Path, X: np.ndarray, t: np.ndarray, initial: Parameters) -> None:
    """Examples, classes and initial parameters, for every tool."""
    np.save(folder / "X.npy", X)
    np.save(folder / "t.npy", t)
    write_parameters(folder / "initial.npz", initial)


def write_parameters(path: Path, parameters: Parameters) -> None:
    """W1, b1, W2, …; for a sparse W1 its values, with W1.shape, W1.starts and W1.columns."""
    content: dict[str, Any] = {}
    for k, (W, b) in enumerate(parameters, start=1):
        content |= {f"W{k}": values_of(W), f"b{k}": b}
        if isinstance(W, SparseMatrix):
            S = W.support
            content |= {f"W{k}.shape": np.array(S.shape), f"W{k}.starts": S.starts, f"W{k}.columns": S.columns}
    np.savez(path, **content)


def read_parameters(path: Path) -> Parameters:
    """The parameters in a file that `write_parameters` wrote."""
    content = read_npz(path)
    count = sum(name.startswith("b") for name in content)
    return [(_weights(content, f"W{k}"), content[f"b{k}"]) for k in range(1, count + 1)]


def _weights(content: dict[str, np.ndarray], name: str) -> np.ndarray | SparseMatrix:
    """The weights with this name, dense or sparse."""
    if f"{name}.shape" not in content:
        return content[name]
    shape = tuple(content[f"{name}.shape"].tolist())
    return SparseMatrix(Support(shape, content[f"{name}.starts"], content[f"{name}.columns"]), content[name])
