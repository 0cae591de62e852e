"""The engine for JAX: computations under `jax.jit`, with donated buffers for the state in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from matgrad.backends.base import Matrix, Scalar
from matgrad.distributed.group import Group
from matgrad.engines.engine import CompiledEvaluation, CompiledStep, Engine
from matgrad.layers.state import State
from matgrad.program.computations import Computation, Step
from matgrad.program.recorder import check_hidden_state
from matgrad.program.surroundings import preserved


class JitEngine(Engine):
    """Lets `jax.jit` trace and compile the equations."""

    def step(self, step: Step) -> CompiledStep:
        return JitStep(step)

    def sharded_step(self, step: Step, group: Group) -> CompiledStep:
        from matgrad.engines.jit_sharded import ShardedJitStep  # which is a JitStep

        return ShardedJitStep(step, group)

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        return JitEvaluation(computation)


class JitStep(CompiledStep):
    """The step under `jax.jit`, with buffers of its own."""

    def __init__(self, step: Step) -> None:
        self.matrices: State = {}
        self.renew(step, is_same=False)

    def renew(self, step: Step, is_same: bool) -> None:
        if not is_same:
            self.step, self.compiled = step, self._jitted(step)
            self.prepared: set[tuple] = set()

    def load(self, state: Mapping[str, Matrix], only_state: bool = False) -> None:
        self.matrices = copies(state)

    def state(self) -> State:
        return copies(self.matrices)

    def prepare(self, X: Matrix, T: Matrix, *s: Matrix) -> None:
        signature = tuple((A.shape, A.dtype) for A in (X, T, *s))
        if signature not in self.prepared:
            check_hidden_state(self.step, self.matrices, X, T, None, *s)
            with preserved(self.step.template, self.step.loss):
                self._compile(X, T, jnp.zeros((), X.dtype), *s)
            self.prepared.add(signature)

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar, *s: Matrix) -> None:
        self.prepare(X, T, *s)
        self.matrices = self.compiled(self.matrices, X, T, eta, *s)

    def _jitted(self, step: Step) -> Any:
        """The step as a function under `jax.jit`."""
        return jax.jit(step, donate_argnums=0)

    def _compile(self, *inputs: Matrix) -> None:
        """Let XLA compile it for inputs like these."""
        self.compiled.lower(self.matrices, *inputs).compile()


def copies(state: Mapping[str, Matrix]) -> State:
    """The same matrices in new buffers, because `jax.jit` deletes those it updates."""
    return {name: jnp.array(X, copy=True) for name, X in state.items()}


class JitEvaluation(CompiledEvaluation):
    """Feedforward, or an evaluation, under `jax.jit`."""

    def __init__(self, computation: Computation) -> None:
        self.renew(computation, is_same=False)

    def renew(self, computation: Computation, is_same: bool) -> None:
        if not is_same:
            self.computation, self.compiled = computation, jax.jit(computation)
            self.prepared: set[tuple] = set()

    def __call__(self, state: State, *inputs: Matrix) -> State:
        signature = tuple((x.shape, x.dtype) for x in inputs)
        if signature not in self.prepared:
            check_hidden_state(self.computation, state, *inputs)
            self.prepared.add(signature)
        return self.compiled(state, *inputs)
