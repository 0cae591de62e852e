"""One training step: by the equations, as a pure function, and compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import CompiledStep, Matrix, Scalar
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import check_targets
from matgrad.inspection.profiling import profile_of
from matgrad.layers.layer import Layer, State
from matgrad.loss_functions import LOSSES, LossFunction
from matgrad.matrix_operations import (
    columns_sum,
    elements_sum,
    hadamard,
    ones,
    reciprocal,
    rows_sum,
    sqrt,
    step,
)
from matgrad.optimizers import Optimizer
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def train_batch(
    M: MultilayerPerceptron,
    loss: LossFunction,
    X: Matrix,
    T: Matrix,
    eta: Scalar,
    clip_norm: float | None = None,
) -> None:
    """One step: feedforward, the gradient of the mean loss, backpropagate, optimize."""
    Y = M.feedforward(X)
    check_targets(Y, T)
    DY = loss.mean_gradient(Y, T)
    M.backpropagate(Y, DY)
    if clip_norm is not None:
        clip_gradients(M, clip_norm)
    M.optimize(eta)


class Step:
    """``step(state, X, T, η) -> state``: feedforward, loss, backpropagate and optimize as a pure function."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        check_loss(M, loss)
        self.template = M.clone().train()
        self.loss, self.clip_norm = loss, clip_norm

    def __call__(self, state: State, X: Matrix, T: Matrix, eta: Scalar) -> State:
        return self.run(self.template.clone(), state, X, T, eta)

    def run(self, model: MultilayerPerceptron, state: State, X: Matrix, T: Matrix, eta: Scalar) -> State:
        """The new state, computed with `model`, whose attributes are filled on the way."""
        model.load_state(state)
        train_batch(model, self.loss, X, T, eta, self.clip_norm)
        return model.state()


def make_step(M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None) -> Step:
    """The training step of M as a pure function ``step(state, X, T, η) -> state``.

    It can be compiled: ``jax.jit(make_step(M, loss))`` or ``tf.function(make_step(M, loss))``, with η a
    0-d array, so that a new rate is no new trace. Start with ``M.state()`` and give the last state back
    to M with ``M.load_state``; dropout that is renewed every epoch wants that, ``M.end_epoch()`` and
    ``M.state()`` between epochs.
    """
    return Step(M, loss, clip_norm)


def compile_step(M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None) -> CompiledStep:
    """The training step of M as its backend compiles it.

    >>> step = compile_step(M, loss)
    >>> step.load(M.state())
    >>> for X, T in batches: step(X, T, eta)
    >>> M.load_state(step.state())
    """
    return M.backend.compile(make_step(M, loss, clip_norm=clip_norm))


class EagerStep(CompiledStep):
    """The training step of M by its equations, one by one, in M itself."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        check_loss(M, loss)
        self.M, self.loss, self.clip_norm = M, loss, clip_norm

    def load(self, state: Mapping[str, Matrix]) -> None:
        self.M.load_state(state)

    def state(self) -> State:
        return self.M.state()

    def prepare(self, X: Matrix, T: Matrix) -> None:
        """Nothing."""

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        profile = profile_of(self.M)
        with nullcontext() if profile is None else profile.watching(self, X, T):
            train_batch(self.M, self.loss, X, T, eta, self.clip_norm)


class StepWithFallback(CompiledStep):
    """The compiled training step of M, or, with a warning, its equations where it cannot be compiled.

    Where M is profiled and the compiled step cannot tell how long its equations take, they run one by one.
    """

    step: CompiledStep

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        self.eager = EagerStep(M, loss, clip_norm)
        self._compile()
        M.forget()  # the layers keep no matrices of a batch in compiled training

    def load(self, state: Mapping[str, Matrix]) -> None:
        if self.step is not self.eager and self.settings != self._settings():
            self._compile()  # because something else than the state has changed, such as a dropout rate
        self.step.load(state)

    def state(self) -> State:
        return self.step.state()

    def prepare(self, X: Matrix, T: Matrix) -> None:
        self.step.prepare(X, T)

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        try:
            self.step.prepare(X, T)
        except Exception as error:
            self.eager.load(self.step.state())
            self.eager(X, T, eta)  # which shows a real fault as it is
            reason = str(error).partition("\n")[0] or type(error).__name__
            level = 5  # who called stochastic_gradient_descent
            warnings.warn(f"training goes on uncompiled: {reason}", stacklevel=level)
            self.step = self.eager
        else:
            self.step(X, T, eta)

    def train(self, batches: Iterable[tuple[Matrix, Matrix]], rate: Callable[[int], Scalar]) -> None:
        if self.step.takes_epochs and type(batches) is DataLoader and self._can_prepare(batches):
            self.step.train(batches, rate)
        else:
            super().train(batches, rate)

    def _can_prepare(self, batches: DataLoader) -> bool:
        """Whether the step can be compiled for all batches, the last one too; where not, a call tells why."""
        try:
            for i in {0, len(batches) - 1}:
                self.step.prepare(*batches.batch(i * batches.batch_size))
        except Exception:
            return False
        return True

    def _compile(self) -> None:
        self.step = compile_step(self.eager.M, self.eager.loss, clip_norm=self.eager.clip_norm)
        self.settings = self._settings()
        profile = profile_of(self.eager.M)
        if profile is not None and not profile.time(self.step):
            self.step = self.eager

    def _settings(self) -> Any:
        M = self.eager.M.clone().train()
        return settings([*M.layers, self.eager.loss]), [(name, X.shape, X.dtype) for name, X in M.state().items()]


def settings(thing: Any, inside: tuple[Any, ...] = ()) -> Any:
    """The numbers, texts and supports in layers, optimizers or losses, and their parts: fixed in a compiled step."""
    if type(thing) in (bool, int, float, str):
        return thing
    if isinstance(thing, SparseMatrix):
        return id(thing.support)
    if any(thing is x for x in inside):
        return None
    if isinstance(thing, list | tuple):
        return [settings(x, (*inside, thing)) for x in thing]
    if isinstance(thing, dict):
        return {key: settings(x, (*inside, thing)) for key, x in thing.items()}
    if isinstance(thing, Layer | ActivationFunction | Optimizer | LossFunction):
        return [type(thing), settings(vars(thing), (*inside, thing))]
    return None


def clip_gradients(M: MultilayerPerceptron, max_norm: float) -> None:
    """Dθ' = Dθ·min(1, c / (‖DΘ‖ + 10⁻⁶)), with ‖DΘ‖ the norm of all gradients and c = max_norm."""
    if not max_norm > 0:
        raise ValueError(f"clip_norm: expected a number above 0, found {max_norm}")
    gradients = [(layer, f"D{name}") for layer in M.layers for name in layer.parameters]
    squares = [rows_sum(columns_sum(hadamard(D, D))) for D in (values_of(getattr(*g)) for g in gradients)]
    one = ones(1, like=squares[0])
    c = max_norm * reciprocal(sqrt(sum(squares[1:], squares[0])) + 1e-6 * one)
    is_small = step(one - c)
    factor = elements_sum(hadamard(is_small, c) + one - is_small)
    for layer, name in gradients:
        D = getattr(layer, name)
        setattr(layer, name, with_values(D, factor * values_of(D)))


def check_loss(M: MultilayerPerceptron, loss: LossFunction) -> None:
    """Refuse a loss that cannot follow the last layer of M."""
    if not M.layers:
        raise ValueError("the model has no layers")
    layer = M.layers[-1]
    if layer.output in loss.accepts:
        return
    fitting = [cls.__name__ for cls in LOSSES.values() if layer.output in cls.accepts]
    needed = {"real": "LinearLayer", "probability": "SoftmaxLayer", "log-probability": "LogSoftmaxLayer"}
    before = " or ".join(needed[kind] for kind in sorted(loss.accepts) if kind in needed)
    raise ValueError(
        f"{type(loss).__name__} cannot follow {layer!r}: put it after a {before}, or use "
        f"one of {', '.join(fitting)} here"
    )
