"""The engine for PyTorch: recorded programs, on CUDA devices in graphs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from matgrad.engines.engine import CompiledEvaluation, CompiledStep
from matgrad.engines.kernels import Kernels
from matgrad.engines.program import ProgramEngine
from matgrad.layers.state import matrices_of
from matgrad.program.computations import Computation, Step

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

# of the state of a model whose evaluation is captured, on a copy of it: with larger ones, launching takes no time
MOST_STATE_BYTES = 1 << 28


class TorchEngine(ProgramEngine):
    """Runs programs with one kernel call per instruction, and those of models on CUDA devices in graphs."""

    def step(self, step: Step) -> CompiledStep:
        if not _is_on_cuda(step.template):
            return super().step(step)
        from matgrad.engines.cuda.step import GraphStep

        return GraphStep(step, self.cuda_kernels, type(self).executor_class)

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        if not _is_on_cuda(computation.template) or _bytes(computation.template) > MOST_STATE_BYTES:
            return super().evaluation(computation)
        from matgrad.engines.cuda.step import GraphEvaluation

        return GraphEvaluation(computation, self.cuda_kernels, type(self).executor_class)

    @cached_property
    def cuda_kernels(self) -> Kernels:
        """The kernels for CUDA devices."""
        return self.kernels


def _is_on_cuda(M: MultilayerPerceptron) -> bool:
    """Whether the matrices of M are on a CUDA device."""
    return M.device is not None and M.device.partition(":")[0] == "cuda"


def _bytes(M: MultilayerPerceptron) -> int:
    """The size of the matrices of the state of M."""
    return sum(X.nbytes for X in matrices_of(M.state()).values())
