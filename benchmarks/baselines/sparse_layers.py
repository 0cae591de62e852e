"""A sparse linear layer on a device in three ways: matgrad's, masked dense matrices, and PyTorch's CSR matrices.

Y = X Wᵀ + b for a batch X (N×D) of examples, then DW = DYᵀ X at the support of W (K×D) and DX = DY W for given DY
(N×K), and W' = W - η DW. Every way is a function of the support, the values of W, X and DY.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from baselines.pytorch import CSRLinear
from matgrad.engines.engine import engine_of
from matgrad.layers import LinearLayer
from matgrad.loss_functions import SquaredErrorLoss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import Step
from matgrad.sparse.matrix import SparseMatrix, restricted
from matgrad.sparse.support import Support

ETA = 0.01


class Way(NamedTuple):
    """One way to train the layer."""

    step: Callable[[], torch.Tensor]  # feedforward, DW, DX and the update; returns DX
    weights: Callable[[], np.ndarray]  # the present ones, at the support


def masked(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor, precision: str = "highest") -> Way:
    """A dense W whose gradient is multiplied by a mask."""
    (N, D), K = X.shape, DY.shape[1]
    rows, columns = (torch.tensor(A, device=X.device, dtype=torch.long) for A in (S.row_indices(), S.columns))
    W, DW, mask = (torch.zeros(K, D, device=X.device) for _ in range(3))
    W[rows, columns], mask[rows, columns] = torch.tensor(values, device=X.device), 1
    b, Y, DX = torch.zeros(K, device=X.device), torch.empty(N, K, device=X.device), torch.empty_like(X)

    def step() -> torch.Tensor:
        torch.set_float32_matmul_precision(precision)
        torch.addmm(b, X, W.T, out=Y)
        torch.mm(DY.T, X, out=DW).mul_(mask)
        torch.mm(DY, W, out=DX)
        W.add_(DW, alpha=-ETA)
        torch.set_float32_matmul_precision("highest")
        return DX

    return Way(step, lambda: restricted(W.cpu().numpy(), S).values[0])


def masked_bf16(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor) -> Way:
    """A masked dense W of float32, whose products, X and DY are bfloat16."""
    half = torch.bfloat16
    rows, columns = (torch.tensor(A, device=X.device, dtype=torch.long) for A in (S.row_indices(), S.columns))
    W, mask = torch.zeros(S.shape, device=X.device), torch.zeros(S.shape, device=X.device, dtype=half)
    W[rows, columns], mask[rows, columns] = torch.tensor(values, device=X.device), 1
    b, X, DY = torch.zeros(S.shape[0], device=X.device, dtype=half), X.to(half), DY.to(half)

    def step() -> torch.Tensor:
        V = W.to(half)
        torch.addmm(b, X, V.T)
        DX = DY @ V
        W.add_((DY.T @ X).mul_(mask), alpha=-ETA)
        return DX

    return Way(step, lambda: restricted(W.cpu().numpy(), S).values[0])


def csr(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor) -> Way:
    """W and Wᵀ in PyTorch's CSR format, whose products are cuSPARSE's; its sampled product gives DW.

    Batches are stored with one example per column, with which cuSPARSE is 10 times as fast as with one per row.
    """
    with torch.device(X.device):
        linear = CSRLinear(SparseMatrix(S, values[None]), np.zeros((1, S.shape[0]), np.float32))
    W, b, XT, DYT = linear.weight.detach(), linear.bias.detach(), X.T.contiguous(), DY.T.contiguous()

    def step() -> torch.Tensor:
        torch.addmm(b, linear.matrix(W), XT)
        DW = torch.sparse.sampled_addmm(linear.matrix(W), DYT, XT.T, beta=0.0).values()
        DX = linear.transposed(W) @ DYT
        W.add_(DW, alpha=-ETA)
        return DX.T

    return Way(step, lambda: W.cpu().numpy())


class LayerStep(Step):
    """``step(state, X, DY, η)``: feedforward, backpropagation of given DY, and the update; Y and DX are outputs too."""

    def run(self, model: MultilayerPerceptron, state: Any, *inputs: Any) -> Any:
        X, DY, eta = inputs
        model.load_state(state)
        Y = model.feedforward(X)
        model.backpropagate(Y, DY)
        model.optimize(eta)
        return model.state() | {"Y": Y, "DX": model.layers[0].DX}


def matgrad(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor) -> Way:
    """A `LinearLayer` as matgrad's engine compiles it, on inputs that are there, as those of other layers are."""
    layer = LinearLayer(*S.shape[::-1], support=S)
    layer.W = SparseMatrix(S, values[None])
    M = MultilayerPerceptron([layer]).to("torch", device=X.device.type).train()
    step = engine_of(M).step(LayerStep(M, SquaredErrorLoss()))
    step.load(M.state())
    executor: Any = step.prepare(X, DY)
    inputs = {"X": X, "T": DY, "eta": M.scalar(ETA)}
    run = partial(executor.execute, **inputs)
    if hasattr(executor, "replay"):  # a graph, which has its own copy of the inputs
        for name, slots in executor.slots(1).items():
            slots[0].copy_(inputs[name])
        run = partial(executor.replay, 1)
    return Way(lambda: run()["DX"], lambda: step.state()["1.W"].cpu().numpy()[0])


WAYS: dict[str, tuple[str, Callable[..., Way]]] = {
    "matgrad": ("matgrad", matgrad),
    "masked": ("masked dense", masked),
    "masked-tf32": ("masked dense, TF32", partial(masked, precision="high")),
    "masked-bf16": ("masked dense, bf16", masked_bf16),
    "csr": ("cuSPARSE (torch CSR)", csr),
}
