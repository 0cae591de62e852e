"""Model files of all tools, told apart by how their names end, and weights as the original library has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from matgrad import exchange
from matgrad.exchange.chain import NORMALIZING, chain_of, dense
from matgrad.foundation.files import naming, read_safetensors
from matgrad.foundation.writing import atomic_write
from matgrad.layers import LinearLayer
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.storage.models import load, save_model

Format = tuple[Callable[[Path], MultilayerPerceptron], Callable[[MultilayerPerceptron, Path], None]]  # read, write


def _load_safetensors(path: Path) -> MultilayerPerceptron:
    """The model in a checkpoint or a program of matgrad, or in a state dictionary of PyTorch."""
    _, strings = read_safetensors(path)
    return load(path) if "model" in strings else exchange.load_torch(path)


FORMATS: dict[str, Format] = {
    ".npz": (load, save_model),
    ".safetensors": (_load_safetensors, lambda M, path: exchange.save_torch(M, path)),
    ".onnx": (lambda path: exchange.from_onnx(path), lambda M, path: exchange.to_onnx(M, path)),
    ".keras": (lambda path: exchange.from_keras(path), lambda M, path: exchange.save_keras(M, path)),
}


def format_of(path: Path) -> Format:
    """How a model is read from a file and written to it, by the ending of its name."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    return FORMATS[path.suffix]


def save_original(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write W1, b1, W2, b2, … alone; a layer with other parameters, which would be lost, raises an error.

    The layers themselves and the normalizations are not in the file: the original library has them in its options.
    """
    content: dict[str, np.ndarray] = {}
    for where, operation in chain_of(M, trains=False):
        with naming(where):
            if type(operation) in NORMALIZING.values():
                raise ValueError("the original library saves W and b only; its other parameters would be lost")
        if isinstance(operation, LinearLayer):
            k = len(content) // 2 + 1
            content |= {f"W{k}": dense(operation.W), f"b{k}": dense(operation.b)}
    with atomic_write(path) as file:
        np.savez(file, **content)  # type: ignore[arg-type]
