"""The engine for PyTorch, and its kernels: recorded programs, on CUDA devices in graphs of few kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from matgrad.engines.engine import CompiledEvaluation, CompiledStep
from matgrad.engines.kernels import Executor, Kernels, into
from matgrad.engines.program import ProgramEngine, ProgramEvaluation
from matgrad.layers.state import State, matrices_of
from matgrad.program.computations import Computation, Step
from matgrad.program.program import EXAMPLES, Program

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

# of the state of a model whose evaluation is captured, on a copy of it: with larger ones, launching takes no time
MOST_STATE_BYTES = 1 << 28


class TorchEngine(ProgramEngine):
    """Runs programs with one kernel call per instruction, and those of models on CUDA devices in graphs."""

    def step(self, step: Step, group: Any = None) -> CompiledStep:
        if group is not None or not _is_on_cuda(step.template):
            return super().step(step, group)
        from matgrad.engines.cuda.step import GraphStep

        return GraphStep(step, *self.on_cuda(step.template))

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        if not _is_on_cuda(computation.template):
            return super().evaluation(computation)
        from matgrad.engines.cuda.step import GraphEvaluation

        is_small = sum(X.nbytes for X in matrices_of(computation.template.state()).values()) <= MOST_STATE_BYTES
        return (GraphEvaluation if is_small else ProgramEvaluation)(computation, *self.on_cuda(computation.template))

    def on_cuda(self, M: MultilayerPerceptron) -> tuple[Kernels, Callable[..., Any]]:
        """The kernels and the executor for a model on a CUDA device; those that are generated need Triton."""
        if find_spec("triton") is None:
            return self.kernels, Executor
        from matgrad.engines.cuda.fused import CudaKernels

        return CudaKernels(self.backend), partial(_executor, matmul=M.matmul)


def _executor(program: Program, kernels: Kernels, state: State, *, matmul: str) -> Any:
    """An executor by generated kernels, or by others if examples are sparse, which have another support each time."""
    from matgrad.engines.cuda.fused import FusedExecutor

    if EXAMPLES in program.supports:
        return Executor(program, kernels, state)
    return FusedExecutor(program, kernels, state, matmul)


def _is_on_cuda(M: MultilayerPerceptron) -> bool:
    """Whether the matrices of M are on a CUDA device."""
    return M.device is not None and M.device.partition(":")[0] == "cuda"


# functions that PyTorch also has by longer names, which take longer to call
SHORT = {"subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg"}


class TorchKernels(Kernels):
    """The instructions of a program on PyTorch tensors."""

    @staticmethod
    def framework(name: str) -> Callable[..., Any]:
        return getattr(torch, SHORT.get(name, name))

    power, matmul = into(torch.pow), into(torch.mm)
    step = into(lambda X, out: torch.ge(X, 0, out=out))
    elements_sum = into(torch.sum, dim=(0, 1))
    columns_sum, rows_sum = into(torch.sum, dim=0, keepdim=True), into(torch.sum, dim=1, keepdim=True)
    columns_max, rows_max = into(torch.amax, dim=0, keepdim=True), into(torch.amax, dim=1, keepdim=True)

    def empty(self, shape, dtype, like):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def repeat(self, x, shape):
        return x.expand(shape)

    def run(self, calls):
        with torch.no_grad():
            super().run(calls)

    def copy(self, out, X):
        out.copy_(X)

    def scale(self, out, c, X):
        torch.mul(X, c, out=out)

    def add_scaled(self, out, Y, c, X):
        if _is_number(c):
            torch.add(Y, X, alpha=float(c), out=out)
        else:
            torch.addcmul(Y, X, c, out=out)

    def gate(self, out, A, Z):
        torch.mul(A, Z >= 0, out=out)

    def product_sum(self, out, beta, C, alpha, A, B):
        if not _is_number(alpha):  # a scalar on a device: the host must not wait for it
            A, alpha = alpha * A, 1
        if not _is_number(beta):
            C, beta = beta * C, 1
        if not (abs(alpha) > 0 and abs(beta) > 0):  # addmm leaves out what has the factor 0 or nan
            torch.add(beta * C, alpha * (A @ B), out=out)
        else:
            torch.addmm(C, A, B, beta=float(beta), alpha=float(alpha), out=out)


def _is_number(c: Any) -> bool:
    """Whether c can be read without waiting for a device."""
    return not isinstance(c, torch.Tensor) or c.device.type == "cpu"
