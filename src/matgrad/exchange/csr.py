"""Sparse weights as CSR matrices of SciPy and PyTorch, stored zeros and dtype included.

`SparseMatrix.to_scipy` and `from_scipy` are SciPy's part; a layer takes either with `set_csr`.
"""

from __future__ import annotations

import warnings
from typing import Any

from matgrad.backends import backend_of
from matgrad.layers.weights import WeightedLayer
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.sparse.support import Support


def to_torch_csr(W: SparseMatrix) -> Any:
    """The matrix as a CSR tensor of PyTorch, on the device of its values if these are PyTorch's."""
    import torch

    values = W.values if isinstance(W.values, torch.Tensor) else torch.tensor(backend_of(W.values).to_numpy(W.values))
    starts, columns = (torch.tensor(A, device=values.device) for A in (W.support.starts, W.support.columns))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(starts, columns.long(), values[0].clone(), W.shape, check_invariants=True)


def from_torch_csr(A: Any) -> SparseMatrix:
    """All elements that a CSR tensor of PyTorch stores, as NumPy values."""
    starts, columns, values = (X.detach().cpu().numpy() for X in (A.crow_indices(), A.col_indices(), A.values()))
    return SparseMatrix(Support(tuple(A.shape), starts, columns), values[None].copy())


def set_csr(layer: WeightedLayer, A: Any) -> None:
    """Make W sparse with the elements of A: a matrix of SciPy, or a CSR tensor of PyTorch.

    What the optimizer keeps per element stays with the positions that stay, as in `set_support`.
    """
    W = SparseMatrix.from_scipy(A) if hasattr(A, "tocoo") else from_torch_csr(A)
    like = values_of(layer.W)
    backend = backend_of(like)
    if str(W.dtype) != backend.dtype(like):
        raise ValueError(f"{layer!r}: found a matrix of {W.dtype}, expected {backend.dtype(like)} as the layer has")
    layer.set_support(W.support)
    layer.W = SparseMatrix(W.support, backend.from_numpy(W.values, backend.device(like)))
