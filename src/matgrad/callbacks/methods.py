"""Methods of sparse training by name, such as ``RigL(0.3)``, with the defaults of their papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.callbacks.callback import Callback
from matgrad.callbacks.topology import Topology, TopologyCallback, check_sparse
from matgrad.foundation.numbers import generator
from matgrad.layers.weights import WeightedLayer, with_densities
from matgrad.sparse.densities import parse_densities
from matgrad.sparse.rules import GradientGrow, MagnitudePrune, RandomGrow, SETPrune, largest, largest_weights
from matgrad.specifications.parsing import create, parse_call

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.training import Training

Density = float | Sequence[float]  # one for all linear layers, or a list with one for each


class Static(Callback):
    """Nothing: the support of every layer stays as it is"""

    def start(self, run: Training) -> None:
        check_sparse(run.M)


class SET(Topology):
    """Sparse evolutionary training (Mocanu et al. 2018)

    After every epoch, the fraction of the positive weights and that of the negative ones that is nearest to 0 is
    dropped, and as many weights are grown at random.
    """

    def __init__(self, fraction: float = 0.3, every: int | None = None, until: float = 1.0, **options: Any) -> None:
        super().__init__(SETPrune(fraction), RandomGrow(), every=every, until=until, **options)
        self.fraction = fraction


class RigL(Topology):
    """The rigged lottery (Evci et al. 2020)

    Every 100 steps, in the first three quarters of the run, a fraction of the weights, which decays like a cosine, is
    dropped by magnitude, and as many are grown where the gradient is largest.
    """

    def __init__(
        self,
        fraction: float = 0.3,
        every: int | None = 100,
        until: float = 0.75,
        *,
        decay: str = "cosine",
        **options: Any,
    ) -> None:
        super().__init__(MagnitudePrune(fraction), GradientGrow(), every=every, until=until, decay=decay, **options)
        self.fraction = fraction


class SNIP(Callback):
    """Single-shot network pruning (Lee et al. 2019)

    Before training, the weights w of a dense model with the largest |w·Dw| on one batch are kept, and no others: a
    fraction of those of all layers together or, for a list of densities, of each layer.
    """

    is_training = True

    def __init__(self, density: Density, seed: int | None = None) -> None:
        parse_densities(density)  # raises if one is not in (0, 1]
        self.density, self.seed = density, seed

    def start(self, run: Training) -> None:
        """Make the model sparse, by |W ⊙ DW| of every linear layer on one batch."""
        pairs = _dense_layers(run.M, self.density, "SNIP")
        rng = generator() if self.seed is None else np.random.default_rng(self.seed)
        M, (X, T, *s) = run.M.clone().train(), run.sample(rng)
        Y = M.feedforward(X)
        M.backpropagate(Y, run.loss.mean_gradient(Y, T, *s))
        to_numpy = M.backend.to_numpy
        scores = [np.abs(to_numpy(layer.W) * to_numpy(layer.DW)) for layer in M.linear_layers()]
        if isinstance(self.density, Sequence):
            supports = [largest([A], _count(layer, d))[0] for A, (layer, d) in zip(scores, pairs, strict=True)]
        else:
            supports = largest(scores, round(self.density * sum(A.size for A in scores)))
        for (layer, _), support in zip(pairs, supports, strict=True):
            if support.density < 1:
                layer.set_support(support)

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        """Do nothing: the model is sparse already."""


class GMP(TopologyCallback):
    """Gradual magnitude pruning (Zhu and Gupta 2018)

    A dense model is trained and, after every epoch or every `every` steps, the weights of each layer that are nearest
    to 0 are dropped so that its density is d + (1 - d)·(1 - t)³; t grows from 0 to 1 in the first three quarters of the
    run, or until the last update before the last step if that comes sooner. A layer with density d = 1 stays dense.
    """

    state_names = MappingProxyType({**TopologyCallback.state_names, "_is_finished": bool})

    def __init__(self, density: Density, every: int | None = None, until: float = 0.75) -> None:
        super().__init__(every, until)
        parse_densities(density)
        self.density = density

    def start(self, run: Training) -> None:
        super().start(run)
        self._is_finished = False
        _dense_layers(run.M, self.density, "GMP")

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        self.restore(state)  # the model is no longer dense

    def _explore(self, run: Training) -> None:
        self.explored = 1.0  # every position has been stored

    @property
    def is_complete(self) -> bool:
        return self._is_finished

    def is_due(self, run: Training) -> bool:
        return not self._is_finished and run.progress < 1

    def update(self, run: Training, rng: np.random.Generator, t: float) -> None:
        updates = run.epochs * (1 if self.every is None else (run.batches or np.inf) / self.every)  # of the whole run
        t = 1.0 if run.progress + 1 / updates >= 1 else t  # the last one before the last step
        self._is_finished = t >= 1
        for layer, d in with_densities(run.M.linear_layers(), self.density):
            count = _count(layer, d + (1 - d) * (1 - min(t, 1.0)) ** 3)
            if count < layer.density * layer.input_size * layer.output_size:
                layer.set_support(*largest_weights([layer.W], count))


def _dense_layers(M: MultilayerPerceptron, density: Density, method: str) -> list[tuple[WeightedLayer, float]]:
    """The linear layers of M, which must be dense, with their densities."""
    pairs = with_densities(M.linear_layers(), density)
    if sparse := [layer for layer, _ in pairs if layer.is_sparse]:
        raise ValueError(f"{method} starts from a dense model, but {sparse[0]!r} is sparse")
    return pairs


def _count(layer: WeightedLayer, density: float) -> int:
    """The number of weights of a layer with this density, at least 1."""
    return max(1, round(density * layer.input_size * layer.output_size))


METHODS: dict[str, Callable[..., Callback]] = {
    "static": Static,
    "SET": SET,
    "RigL": RigL,
    "SNIP": SNIP,
    "GMP": GMP,
    "Topology": Topology,  # any rules: Topology(Magnitude(0.2), grow=Random, weights=Xavier, every=100)
}
FROM_DENSE = ("SNIP", "GMP")  # those that start from a dense model, and need the density to reach


def starts_dense(specification: str | None) -> bool:
    """Whether a string such as ``GMP(0.1)`` names a method that starts from a dense model."""
    return specification is not None and parse_call(specification).name in FROM_DENSE


def create_method(specification: str, **options: Any) -> Callback:
    """The method that a string such as ``RigL(0.3)`` names; `options` are arguments beside those in the string."""
    return create(specification, METHODS, "method of sparse training", **options)
