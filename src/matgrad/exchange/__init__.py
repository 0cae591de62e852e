"""Exchange with the tools people use: PyTorch, ONNX and Keras models, and files of the original library.

A model goes through a chain of operations that all tools know (see `matgrad.exchange.chain`); each tool has a file that
says which of its own they are. A tool is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.foundation.imports import check_installed

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def to_torch(M: MultilayerPerceptron) -> Any:
    """The model as a `torch.nn.Sequential` with the same outputs and gradients, in the same mode and dtype.

    It takes raw examples and gives outputs in the units of the data, as `M.predict` does. A sparse layer is a linear
    one with the masks of `torch.nn.utils.prune`.
    """
    return _tool("torch_models", "torch").to_torch(M)


def from_torch(module: Any, shape: Sequence[int] | None = None) -> MultilayerPerceptron:
    """The model that a `torch.nn.Sequential` is; a missing bias becomes 0, and is trained.

    A module that takes images (N×C×H×W), sequences (N×C×L), tokens (N×L×d) or labels (N×L) needs the `shape` of an
    example of the model, whose channels come last: (H, W, C), (L, C), (L, d) or (L,).
    """
    return _tool("torch_models", "torch").from_torch(module, shape)


def save_torch(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write the state dictionary of `to_torch(M)` to a safetensors file, under PyTorch's own names (``0.weight``)."""
    _tool("torch_models", "torch").save_torch(M, path)


def load_torch(path: str | Path) -> MultilayerPerceptron:
    """The model in a file that `save_torch` wrote."""
    return _tool("torch_models", "torch").load_torch(path)


def to_keras(M: MultilayerPerceptron) -> Any:
    """The model as a `keras.Sequential` with the same outputs and dtype, for raw examples, as `M.predict` takes.

    Sparse weights become dense ones.
    """
    return _tool("keras_models", "keras").to_keras(M)


def from_keras(model: Any) -> MultilayerPerceptron:
    """The model that a Keras model is, or a .keras file, of which no code is run; a missing bias becomes 0."""
    if isinstance(model, str | Path):
        return _tool("keras_models", "h5py", "keras").load_keras(model)
    return _tool("keras_models", "keras").from_keras(model)


def save_keras(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write `to_keras(M)` to a .keras file, which `from_keras` reads."""
    _tool("keras_models", "keras").save_keras(M, path)


def to_onnx(M: MultilayerPerceptron, path: str | Path, *, sparse: bool = False) -> None:
    """Write the model, as it is in evaluation mode, to an ONNX file, for raw examples, as `M.predict` takes.

    Sparse weights are written with their zeros or, with ``sparse=True``, as sparse initializers.
    """
    _tool("onnx_models", "onnx").to_onnx(M, path, sparse=sparse)


def from_onnx(path: str | Path) -> MultilayerPerceptron:
    """The model in an ONNX file, if it is a chain of linear layers, activation functions and normalizations."""
    return _tool("onnx_models", "onnx").from_onnx(path)


def _tool(module: str, package: str, extra: str | None = None) -> Any:
    """A module of this room, which needs a package of an extra."""
    check_installed(package, extra or package, "such models")
    return import_module(f"matgrad.exchange.{module}")
