"""Sparse weights as CSR matrices of SciPy and PyTorch, with stored zeros, and into a layer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from exchange_support import D, K, trained

import matgrad as mg
from matgrad.exchange.csr import from_torch_csr, set_csr, to_torch_csr
from support import to_numpy


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_out_and_in_with_stored_zeros_and_dtype(dtype: str, name: str):
    M = trained("Linear", f"{D};{K}", dtype, densities=0.6).to("numpy")
    W = M.layers[0].W
    W.values[0, 2] = 0
    expected, M = W.to_dense(), M.to(name)
    A, B = M.layers[0].W.to_scipy(), to_torch_csr(M.layers[0].W)

    assert isinstance(A, scipy.sparse.csr_array)
    assert B.layout is torch.sparse_csr
    assert (A.dtype, str(B.dtype)) == (dtype, f"torch.{dtype}")
    np.testing.assert_array_equal(A.toarray(), expected)
    np.testing.assert_array_equal(B.to_dense().numpy(), expected)
    assert A.nnz == B.values().numel() == W.support.nnz
    for C, back in ((A, mg.SparseMatrix.from_scipy(A)), (B, from_torch_csr(B))):
        assert back.support.is_same(W.support)
        np.testing.assert_array_equal(back.values, W.values)
        fresh = mg.create_model("Linear", f"{D};{K}").to(name, dtype=dtype)
        set_csr(fresh.layers[0], C)
        assert fresh.layers[0].W.support.is_same(W.support)
        assert fresh.backend.name == name
        np.testing.assert_array_equal(to_numpy(fresh.layers[0].W.values), W.values)


def test_a_layer_trains_on_with_its_new_weights():
    """The momentum of elements that stay is kept, so the next step works."""
    M = trained("ReLU;Linear", f"{D};8;{K}", densities="0.5;1")
    A = M.layers[0].W.to_scipy()
    A.data[:] = 1
    A = A[:, ::-1]
    set_csr(M.layers[0], A)
    np.testing.assert_array_equal(M.layers[0].W.to_dense(), A.toarray())
    M.fit(np.ones((6, D), np.float32), np.arange(6) % K, epochs=1)


@pytest.mark.parametrize("change", [lambda A: A.astype("float64"), lambda A: A[:, :-1]])
def test_another_dtype_or_size_is_refused(change):
    layer = mg.create_model("Linear", f"{D};{K}", densities=0.5).layers[0]
    before = layer.W.to_dense()
    with pytest.raises(ValueError, match="expected"):
        set_csr(layer, change(layer.W.to_scipy()))
    np.testing.assert_array_equal(layer.W.to_dense(), before)
