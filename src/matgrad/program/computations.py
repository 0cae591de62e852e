"""Computations of a model as pure functions of its state: a training step, and feedforward with or without a loss."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from matgrad.backends import backend_of
from matgrad.backends.base import Matrix, Scalar, size_of
from matgrad.layers.base import check_sharing
from matgrad.layers.layer import Layer
from matgrad.layers.state import State, copied
from matgrad.loss_functions import LossFunction, check_loss
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, ones, reciprocal, rows_sum, sqrt, step
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.purity import Snapshot
from matgrad.sparse.matrix import SparseMatrix, WatchedSparseMatrix, values_of, with_values


def train_batch(
    M: MultilayerPerceptron,
    loss: LossFunction,
    X: Matrix,
    T: Matrix,
    eta: Scalar,
    clip_norm: float | None = None,
    *s: Matrix,
) -> None:
    """One step: feedforward, the gradient of the mean loss, weighted if s is given, backpropagate, optimize."""
    with M.products():
        Y = M.feedforward(X)
        check_targets(Y, T, loss)
        DY = loss.mean_gradient(Y, T, *s)
        M.backpropagate(Y, DY)
        if clip_norm is not None:
            clip_gradients(M, clip_norm)
        M.optimize(eta)


class Computation:
    """A pure function of a model's state and some inputs: ``compute(state, *inputs) -> {name: matrix}``."""

    inputs: tuple[str, ...] = ()  # besides the state, in order; the weights s of the examples may follow
    is_training = True  # the mode of the model
    loss: Any

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction | None = None) -> None:
        if loss is not None:
            check_loss(M, loss)
        self.template, self.loss = M.clone().train(self.is_training), loss

    def __call__(self, state: State, *inputs: Any) -> State:
        """The outputs by name; neither the model nor the given state is changed."""
        if not Snapshot(self.template, self.loss).is_builtin:  # it may change matrices in place
            state = copied(state)
        with self.template.products():
            return self.run(self.template.clone(), state, *inputs)

    def names(self, count: int) -> tuple[str, ...]:
        """The names of its inputs if `count` are given: an input that is missing is a scalar."""
        return (*self.inputs, "s")[: max(count, len(self.inputs))]

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The outputs, computed with `model`, whose attributes are filled on the way."""
        raise NotImplementedError


class Step(Computation):
    """``step(state, X, T, η) -> state``: feedforward, loss, backpropagate and optimize as a pure function.

    ``step(state, X, T, η, s)`` weighs the examples with the N×1 column s.
    """

    inputs = ("X", "T", "eta")

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        check_sharing(M.layers)
        super().__init__(M, loss)
        self.clip_norm = clip_norm

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The new state."""
        X, T, eta, *s = inputs
        model.load_state(state)
        train_batch(model, self.loss, X, T, eta, self.clip_norm, *s)
        return model.state()


class Feedforward(Computation):
    """``feedforward(state, X) -> {'Y': f_Θ(X)}`` in evaluation mode."""

    inputs: tuple[str, ...] = ("X",)
    is_training = False

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """Y"""
        model.load_state(state)
        return {"Y": model.feedforward(inputs[0])}


class Evaluation(Feedforward):
    """``evaluation(state, X, T) -> {'Y': f_Θ(X), 'loss': loss(Y, T)}`` in evaluation mode; s may follow T."""

    inputs = ("X", "T")

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """Y and the loss."""
        X, T, *s = inputs
        Y = super().run(model, state, X)["Y"]
        check_targets(Y, T, self.loss)
        return {"Y": Y, "loss": self.loss(Y, T, *s)}


class GradientFactors(Computation):
    """``factors(state, X, T) -> {'2.W.A1': A, '2.W.B1': B, …}`` in training mode, for every sparse parameter W.

    DW = A B on the support of W; if W were dense, it would be all of A B, or a sum of several such products.
    """

    inputs = ("X", "T")

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The factors by name."""
        X, T, *s = inputs
        model.load_state(state)
        watched = {}
        for path, layer, name in sparse_parameters(model):
            watched[f"{path}.{name}"] = W = WatchedSparseMatrix(getattr(layer, name))
            setattr(layer, name, W)
        Y = model.feedforward(X)
        check_targets(Y, T, self.loss)
        model.backpropagate(Y, self.loss.mean_gradient(Y, T, *s))
        return {
            f"{key}.{side}{i}": factor
            for key, W in watched.items()
            for i, factors in enumerate(W.factors, start=1)
            for side, factor in zip("AB", factors, strict=True)
        }


def sparse_parameters(M: MultilayerPerceptron) -> Iterator[tuple[str, Layer, str]]:
    """The sparse parameters of M: the name of the layer, the layer, and the name of the parameter."""
    for path, layer in M.walk():
        for name in layer.parameters:
            if isinstance(getattr(layer, name), SparseMatrix):
                yield path, layer, name


def make_step(M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None) -> Step:
    """The training step of M as a pure function ``step(state, X, T, η) -> state``.

    It is a step of a copy of M and the loss as they are now, and changes neither of them nor the given state. It can
    be compiled: ``jax.jit(make_step(M, loss))`` or ``tf.function(make_step(M, loss))``, with η a
    0-d array, so that a new learning rate needs no new trace. Start with ``M.state()``, and give the last state
    back to M with ``M.load_state``. Dropout that is renewed every epoch needs ``M.load_state``, ``M.end_epoch()``
    and ``M.state()`` between epochs.
    """
    shared = {id(X): X for X in M.state().values()}
    return Step(*copy.deepcopy((M, loss), shared), clip_norm)


def clip_gradients(M: MultilayerPerceptron, max_norm: float) -> None:
    """Dθ' = Dθ·min(1, c / (‖DΘ‖ + 10⁻⁶)), with ‖DΘ‖ the norm of all gradients and c = max_norm."""
    if not max_norm > 0:
        raise ValueError(f"clip_norm: expected a number above 0, found {max_norm}")
    gradients = [(layer, f"D{name}") for _, layer in M.walk() for name in layer.parameters]
    squares = [rows_sum(columns_sum(hadamard(D, D))) for D in (values_of(getattr(*g)) for g in gradients)]
    one = ones(1, like=squares[0])
    c = max_norm * reciprocal(sqrt(sum(squares[1:], squares[0])) + 1e-6 * one)
    is_small = step(one - c)
    factor = elements_sum(hadamard(is_small, c) + one - is_small)
    for layer, name in gradients:
        D = getattr(layer, name)
        setattr(layer, name, with_values(D, factor * values_of(D)))


def check_targets(Y: Matrix, T: Matrix, loss: LossFunction | None = None) -> None:
    """Raise an error if the targets differ from the output in backend, size or dtype."""
    backend = backend_of(Y, T)
    if loss is not None and loss.has_tokens:
        (N, K), (n, L) = Y.shape, T.shape if len(T.shape) == 2 else (0, 0)
        fits = N == n and L and K % L == 0 and K != L
        expected = "a label for each of L tokens, of which the output has V numbers each, N × (L·V)"
    else:
        fits, expected = tuple(Y.shape) == tuple(T.shape), "equal sizes"
    if not fits:
        raise ValueError(f"the output is {size_of(Y)} and the targets are {size_of(T)}: expected {expected}")
    if backend.dtype(Y) != backend.dtype(T):
        raise TypeError(f"the targets are {backend.dtype(T)} but the model is {backend.dtype(Y)}")
