"""Kernels for PyTorch tensors on a GPU: those for sparse matrices are our own, in Triton."""

from __future__ import annotations

from matgrad.engines.cuda import sparse
from matgrad.engines.cuda.index import Index
from matgrad.engines.torch_kernels import TorchKernels


class CudaKernels(TorchKernels):
    """The instructions of a program on a GPU; the host waits for none, so that all can be captured in a graph."""

    sparse_product = staticmethod(sparse.sparse_product)
    sparse_transposed_product = staticmethod(sparse.sparse_transposed_product)
    transposed_sum = staticmethod(sparse.transposed_sum)
    dense = staticmethod(sparse.dense)
    sampled_product = staticmethod(sparse.sampled_product)
    sampled_sum = staticmethod(sparse.sampled_sum)
    sparse_gradients = staticmethod(sparse.sparse_gradients)
    uniform_on = staticmethod(sparse.uniform_on)

    def readable(self, X):
        return X.contiguous()

    def index(self, S, like, kept=None):
        if isinstance(kept, Index) and (kept.shape, kept.nnz, kept.device) == (S.shape, S.nnz, like.device):
            kept.update(S)
            return kept
        return Index(S, like.device)
