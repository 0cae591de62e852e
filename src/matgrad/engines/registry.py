"""Which engine runs a model: that of the backend it was moved to, or of its matrices."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from matgrad.backends import get_backend
from matgrad.distributed.group import current
from matgrad.engines.engine import CompiledStep, Engine
from matgrad.loss_functions import LossFunction
from matgrad.program.computations import Step, make_step

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

# the module and class of each backend's engine, by the name that users know
ENGINES: dict[str, tuple[str, str]] = {
    "numpy": ("matgrad.engines.program", "ProgramEngine"),
    "torch": ("matgrad.engines.torch_engine", "TorchEngine"),
    "jax": ("matgrad.engines.jit", "JitEngine"),
    "tensorflow": ("matgrad.engines.xla", "XlaEngine"),
    "native": ("matgrad.engines.native", "NativeEngine"),
}


@cache
def get_engine(name: str) -> Engine:
    """The engine of the backend called `name`."""
    backend = get_backend(name)
    if name not in ENGINES:
        raise NotImplementedError(f"the backend {name} has no engine; known: {', '.join(ENGINES)}")
    module, class_name = ENGINES[name]
    return getattr(import_module(module), class_name)(backend)


def engine_of(M: MultilayerPerceptron) -> Engine:
    """The engine that runs the steps and evaluations of M."""
    return get_engine(M.engine)


def compile_step(M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None) -> CompiledStep:
    """The training step of M, compiled by its engine.

    >>> step = compile_step(M, loss)
    >>> step.load(M.state())
    >>> for X, T in batches: step(X, T, eta)
    >>> M.load_state(step.state())
    """
    return step_of(make_step(M, loss, clip_norm=clip_norm))


def step_of(step: Step) -> CompiledStep:
    """The training step, compiled by the engine of its model: for this process alone, or for a rank of its group."""
    group, engine = current(), engine_of(step.template)
    return engine.step(step) if group is None else engine.sharded_step(step, group)
