"""A sparse linear layer on a device in three ways: matgrad's, masked dense matrices, and PyTorch's CSR matrices.

Y = X Wᵀ + b for a batch X (N×D) of examples, then DW = DYᵀ X at the support of W (K×D) and DX = DY W for given DY
(N×K), and W' = W - η DW. Every way is a function of the support, the values of W, X and DY that returns these phases
as functions to time, all of them one after another as `whole`, and `weights`, the present ones at the support.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from baselines.pytorch import CSRLinear
from matgrad.engines.engine import engine_of
from matgrad.layers import LinearLayer
from matgrad.loss_functions import SquaredErrorLoss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import Computation, Step
from matgrad.sparse.matrix import SparseMatrix, restricted, values_of
from matgrad.sparse.support import Support

ETA = 0.01
PHASES = ("feedforward", "DW", "DX", "update", "whole")
Way = dict[str, Callable[[], Any]]


def _with_whole(way: Way) -> Way:
    """The way with all its phases one after another."""
    return way | {"whole": lambda: [way[phase]() for phase in PHASES[:-1]]}


def masked(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor, precision: str = "highest") -> Way:
    """A dense W whose gradient is multiplied by a mask."""
    (N, D), K = X.shape, DY.shape[1]
    rows, columns = (torch.tensor(A, device=X.device, dtype=torch.long) for A in (S.row_indices(), S.columns))
    W, DW, mask = (torch.zeros(K, D, device=X.device) for _ in range(3))
    W[rows, columns], mask[rows, columns] = torch.tensor(values, device=X.device), 1
    b, Y, DX = torch.zeros(K, device=X.device), torch.empty(N, K, device=X.device), torch.empty_like(X)

    def product(function: Any, *operands: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision(precision)
        function(*operands, out=out)
        torch.set_float32_matmul_precision("highest")
        return out

    return _with_whole(
        {
            "feedforward": lambda: product(torch.addmm, b, X, W.T, out=Y),
            "DW": lambda: product(torch.mm, DY.T, X, out=DW).mul_(mask),
            "DX": lambda: product(torch.mm, DY, W, out=DX),
            "update": lambda: W.add_(DW, alpha=-ETA),
            "weights": lambda: restricted(W.cpu().numpy(), S).values[0],
        }
    )


def csr(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor) -> Way:
    """W and Wᵀ in PyTorch's CSR format, whose products are cuSPARSE's; its sampled product gives DW.

    Batches are stored with one example per column, with which cuSPARSE is 10 times as fast as with one per row.
    """
    with torch.device(X.device):
        linear = CSRLinear(SparseMatrix(S, values[None]), np.zeros((1, S.shape[0]), np.float32))
    W, b, DW = linear.weight.detach(), linear.bias.detach(), torch.zeros_like(linear.weight)
    XT, DYT = X.T.contiguous(), DY.T.contiguous()

    def gradient() -> torch.Tensor:
        nonlocal DW
        DW = torch.sparse.sampled_addmm(linear.matrix(W), DYT, XT.T, beta=0.0).values()
        return DW

    return _with_whole(
        {
            "feedforward": lambda: torch.addmm(b, linear.matrix(W), XT),
            "DW": gradient,
            "DX": lambda: linear.transposed(W) @ DYT,
            "update": lambda: W.add_(DW, alpha=-ETA),
            "weights": lambda: W.cpu().numpy(),
        }
    )


# -- matgrad ----------------------------------------------------------------------------------------


class LayerStep(Step):
    """``step(state, X, DY, η)``: feedforward, backpropagation of given DY, and the update; DX is an output too."""

    def run(self, model: MultilayerPerceptron, state: Any, *inputs: Any) -> Any:
        X, DY, eta = inputs
        model.load_state(state)
        Y = model.feedforward(X)
        model.backpropagate(Y, DY)
        model.optimize(eta)
        return model.state() | {"Y": Y, "DX": model.layers[0].DX}


class LayerPhase(Computation):
    """``phase(state, X, DY)``: one matrix of feedforward and backpropagation; the others are not computed."""

    inputs = ("X", "DY")

    def __init__(self, M: MultilayerPerceptron, name: str) -> None:
        super().__init__(M)
        self.name = name

    def run(self, model: MultilayerPerceptron, state: Any, *inputs: Any) -> Any:
        X, DY = inputs
        model.load_state(state)
        Y = model.feedforward(X)
        if self.name == "Y":
            return {"Y": Y}
        model.backpropagate(Y, DY)
        return {self.name: values_of(getattr(model.layers[0], self.name))}


class LayerUpdate(Computation):
    """``update(state, DW) -> W - η DW``, at the support."""

    inputs = ("X",)  # DW, under the name that an input must have

    def run(self, model: MultilayerPerceptron, state: Any, *inputs: Any) -> Any:
        return {"W'": state["1.W"] - ETA * inputs[0]}


def matgrad(S: Support, values: np.ndarray, X: torch.Tensor, DY: torch.Tensor) -> Way:
    """A `LinearLayer` as matgrad's engine compiles it, on inputs that are there, as those of other layers are.

    A phase is a program of its own, which is compiled when it is first needed: memory is that of `whole`.
    """
    layer = LinearLayer(*S.shape[::-1], support=S)
    layer.W = SparseMatrix(S, values[None])
    M = MultilayerPerceptron([layer]).to("torch", device=X.device.type).train()
    engine, state = engine_of(M), M.state()
    step = engine.step(LayerStep(M, SquaredErrorLoss()))
    step.load(state)
    phases: Way = {}

    def phase(name: str) -> torch.Tensor:
        if name not in phases:
            computation = LayerUpdate(M) if name == "W'" else LayerPhase(M, name)
            inputs = {"X": phase("DW")} if name == "W'" else {"X": X, "DY": DY}
            evaluation: Any = engine.evaluation(computation)
            evaluation.load(state)
            phases[name] = _repeated(evaluation.executor_for(*inputs.values()), **inputs)
        return phases[name]()[name]

    names = dict(zip(PHASES, ("Y", "DW", "DX", "W'"), strict=False))
    return {
        **{title: partial(phase, name) for title, name in names.items()},
        "whole": _repeated(step.prepare(X, DY), X=X, T=DY, eta=M.scalar(ETA)),
        "weights": lambda: step.state()["1.W"].cpu().numpy()[0],
    }


def _repeated(executor: Any, **inputs: Any) -> Callable[[], Any]:
    """A run of the program on these inputs; a graph has its own copy of them, which it reads again and again."""
    if not hasattr(executor, "replay"):
        return lambda: executor.execute(**inputs)
    for name, slots in executor.slots(1).items():
        slots[0].copy_(inputs[name])
    return lambda: executor.replay(1)


WAYS: dict[str, tuple[str, Callable[..., Way]]] = {
    "matgrad": ("matgrad", matgrad),
    "masked": ("masked dense", masked),
    "masked-tf32": ("masked dense, TF32", partial(masked, precision="high")),
    "csr": ("cuSPARSE (torch CSR)", csr),
}
