"""Weights as the original library has them: an npz file with W1, b1, W2, b2, … and nothing else.

`matgrad.storage.models.load_weights` reads such files, and `matgrad.datasets.npz` and `save_npz` its data sets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matgrad.exchange.chain import Affine, Normalizing, at, chain_of, dense
from matgrad.foundation.writing import atomic_write
from matgrad.multilayer_perceptron import MultilayerPerceptron


def save_original(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write W1, b1, W2, b2, … alone; a layer with other parameters, which would be lost, raises an error.

    The layers themselves and the normalizations are not in the file: the original library has them in its options.
    """
    content: dict[str, np.ndarray] = {}
    for where, operation in chain_of(M, trains=False):
        with at(where):
            if isinstance(operation, Normalizing):
                raise ValueError("the original library saves W and b only; its other parameters would be lost")
        if isinstance(operation, Affine):
            k = len(content) // 2 + 1
            content |= {f"W{k}": dense(operation.W), f"b{k}": operation.b[None]}
    with atomic_write(path) as file:
        np.savez(file, **content)  # type: ignore[arg-type]
