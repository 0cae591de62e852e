"""A sparse linear layer on a device in three ways: matgrad's, masked dense matrices, and PyTorch's CSR matrices.

Y = X Wᵀ + b for a batch X (N×D) of examples, then DW = DYᵀ X at the support of W (K×D) and DX = DY W for given DY
(N×K), and W' = W - η DW. Every way has these as functions to time, one by one and as a whole.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from matgrad.engines.engine import engine_of
from matgrad.layers import LinearLayer
from matgrad.loss_functions import SquaredErrorLoss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import Computation, Step
from matgrad.sparse.matrix import SparseMatrix, restricted, values_of
from matgrad.sparse.support import Support

ETA = 0.01
PHASES = ("feedforward", "DW", "DX", "update")


class SparseLayer(ABC):
    """One way: its phases, and all of them one after another."""

    def __init__(self, support: Support, values: np.ndarray, device: str) -> None:
        self.support, self.device = support, device
        self.b = torch.zeros(support.shape[0], device=device)

    def batch(self, X: torch.Tensor, DY: torch.Tensor) -> None:
        """Work on this batch from now on."""
        self.X, self.DY = X, DY

    @abstractmethod
    def feedforward(self) -> Any:
        """Y"""

    @abstractmethod
    def DW(self) -> Any:
        """DW at the support."""

    @abstractmethod
    def DX(self) -> Any:
        """DX"""

    @abstractmethod
    def update(self) -> Any:
        """W' = W - η DW"""

    def whole(self) -> None:
        """All of it."""
        self.feedforward()
        self.DW()
        self.DX()
        self.update()

    @abstractmethod
    def weights(self) -> np.ndarray:
        """The present weights at the support."""


class Masked(SparseLayer):
    """A dense W whose gradient is multiplied by a mask."""

    precision = "highest"

    def __init__(self, support: Support, values: np.ndarray, device: str) -> None:
        super().__init__(support, values, device)
        rows = torch.tensor(support.row_indices(), device=device, dtype=torch.long)
        columns = torch.tensor(support.columns, device=device, dtype=torch.long)
        self.W, self.G = (torch.zeros(support.shape, device=device) for _ in range(2))
        self.W[rows, columns] = torch.tensor(values, device=device)
        self.mask = torch.zeros(support.shape, device=device)
        self.mask[rows, columns] = 1

    def batch(self, X: torch.Tensor, DY: torch.Tensor) -> None:
        super().batch(X, DY)
        (N, D), K = X.shape, DY.shape[1]
        self.Y, self.G_X = torch.empty(N, K, device=self.device), torch.empty(N, D, device=self.device)

    def _product(self, product: Any, *operands: torch.Tensor, out: torch.Tensor) -> None:
        """A product in the precision of this way."""
        torch.set_float32_matmul_precision(self.precision)
        product(*operands, out=out)
        torch.set_float32_matmul_precision("highest")

    def feedforward(self) -> torch.Tensor:
        self._product(torch.addmm, self.b, self.X, self.W.T, out=self.Y)
        return self.Y

    def DW(self) -> torch.Tensor:
        self._product(torch.mm, self.DY.T, self.X, out=self.G)
        return self.G.mul_(self.mask)

    def DX(self) -> torch.Tensor:
        self._product(torch.mm, self.DY, self.W, out=self.G_X)
        return self.G_X

    def update(self) -> None:
        self.W.add_(self.G, alpha=-ETA)

    def weights(self) -> np.ndarray:
        return restricted(self.W.cpu().numpy(), self.support).values[0]


class MaskedTF32(Masked):
    """The same with products in TF32."""

    precision = "high"


class CSR(SparseLayer):
    """W and Wᵀ in PyTorch's CSR format, whose products are cuSPARSE's; its sampled product gives DW.

    Batches are stored with one example per column, with which cuSPARSE is 10 times as fast as with one per row.
    """

    def __init__(self, support: Support, values: np.ndarray, device: str) -> None:
        super().__init__(support, values, device)
        S = support
        self.values, self.bias = torch.tensor(values, device=device), self.b[:, None]
        arrays = (S.starts, S.columns, S.column_starts, S.rows)
        self.index = [torch.tensor(A, device=device, dtype=torch.int32) for A in arrays]
        self.positions = torch.tensor(S.positions, device=device)

    def batch(self, X: torch.Tensor, DY: torch.Tensor) -> None:
        super().batch(X, DY)
        self.XT, self.DYT = X.T.contiguous(), DY.T.contiguous()

    def _matrix(self, values: torch.Tensor, is_transposed: bool = False) -> torch.Tensor:
        """W or Wᵀ with these values."""
        starts, columns = self.index[2:] if is_transposed else self.index[:2]
        size = self.support.shape[::-1] if is_transposed else self.support.shape
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that CSR tensors are in beta state
            return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)

    def feedforward(self) -> torch.Tensor:
        return torch.addmm(self.bias, self._matrix(self.values), self.XT)

    def DW(self) -> torch.Tensor:
        self.G = torch.sparse.sampled_addmm(self._matrix(self.values), self.DYT, self.XT.T, beta=0.0).values()
        return self.G

    def DX(self) -> torch.Tensor:
        return self._matrix(self.values[self.positions], is_transposed=True) @ self.DYT

    def update(self) -> None:
        self.values.add_(self.G, alpha=-ETA)

    def weights(self) -> np.ndarray:
        return self.values.cpu().numpy()


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
        super().__init__(M.clone().train(), None)
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

    def __init__(self, M: MultilayerPerceptron) -> None:
        super().__init__(M.clone().train(), None)

    def run(self, model: MultilayerPerceptron, state: Any, *inputs: Any) -> Any:
        return {"W'": state["1.W"] - ETA * inputs[0]}


class Matgrad(SparseLayer):
    """A `LinearLayer` as matgrad's engine compiles it, on inputs that are there, as those of other layers are."""

    def __init__(self, support: Support, values: np.ndarray, device: str) -> None:
        super().__init__(support, values, device)
        layer = LinearLayer(*support.shape[::-1], support=support)
        layer.W = SparseMatrix(support, values[None])
        self.M = MultilayerPerceptron([layer]).to("torch", device=device).train()
        self.engine, self.state = engine_of(self.M), self.M.state()
        self.step = self.engine.step(LayerStep(self.M, SquaredErrorLoss()))
        self.step.load(self.state)

    def batch(self, X: torch.Tensor, DY: torch.Tensor) -> None:
        super().batch(X, DY)
        self._whole = _repeated(self.step.prepare(X, DY), X=X, T=DY, eta=self.M.scalar(ETA))
        self._phases: dict[str, Callable[[], Any]] = {}

    def _phase(self, name: str) -> torch.Tensor:
        """One matrix, by a program of its own, which is compiled when it is first needed: memory is that of `whole`."""
        if name not in self._phases:
            is_update = name == "W'"
            computation = LayerUpdate(self.M) if is_update else LayerPhase(self.M, name)
            inputs = {"X": self.DW()} if is_update else {"X": self.X, "DY": self.DY}
            evaluation: Any = self.engine.evaluation(computation)
            evaluation.load(self.state)
            self._phases[name] = _repeated(evaluation.executor_for(*inputs.values()), **inputs)
        return self._phases[name]()[name]

    def feedforward(self) -> torch.Tensor:
        return self._phase("Y")

    def DW(self) -> torch.Tensor:
        return self._phase("DW")

    def DX(self) -> torch.Tensor:
        return self._phase("DX")

    def update(self) -> torch.Tensor:
        return self._phase("W'")

    def whole(self) -> None:
        self._whole()

    def weights(self) -> np.ndarray:
        return self.step.state()["1.W"].cpu().numpy()[0]


def _repeated(executor: Any, **inputs: torch.Tensor) -> Callable[[], Any]:
    """A run of the program on these inputs; a graph has its own copy of them, which it reads again and again."""
    if not hasattr(executor, "replay"):
        return lambda: executor.execute(**inputs)
    for name, slots in executor.slots(1).items():
        slots[0].copy_(inputs[name])
    return lambda: executor.replay(1)


WAYS: dict[str, tuple[str, type[SparseLayer]]] = {
    "matgrad": ("matgrad", Matgrad),
    "masked": ("masked dense", Masked),
    "masked-tf32": ("masked dense, TF32", MaskedTF32),
    "csr": ("cuSPARSE (torch CSR)", CSR),
}
