"""Methods of sparse training by name, with the defaults of their papers.

A specification such as ``RigL(0.3)`` names one of `METHODS`. SET and RigL start from a sparse model, SNIP and GMP from
a dense one, which they make sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.callbacks.callback import Callback
from matgrad.callbacks.topology import Topology, TopologyCallback
from matgrad.layers.linear import LinearLayer
from matgrad.sparse.densities import check_density
from matgrad.sparse.growing import GradientGrow, RandomGrow
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.pruning import MagnitudePrune, SETPrune, smallest
from matgrad.sparse.rewiring import Rewiring
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import create

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.training import Training

Density = float | Sequence[float]  # one for all linear layers, or a list with one for each


class Static(Callback):
    """Nothing: the support of every layer stays as it is"""


class SET(Topology):
    """Sparse evolutionary training (Mocanu et al. 2018)

    After every epoch, the fraction of the positive weights and that of the negative ones that is nearest to 0 is
    dropped, and as many weights are grown at random.
    """

    def __init__(self, fraction: float = 0.3, every: int | None = None, until: float = 1.0, **options: Any) -> None:
        super().__init__(SETPrune(fraction), RandomGrow(), every=every, until=until, **options)


class RigL(Topology):
    """The rigged lottery (Evci et al. 2020)

    Every 100 steps, in the first three quarters of the run, a fraction of the weights, which decays like a cosine, is
    dropped by magnitude, and as many are grown where the gradient is largest.
    """

    def __init__(self, fraction: float = 0.3, every: int | None = 100, until: float = 0.75, **options: Any) -> None:
        options = {"decay": "cosine"} | options
        super().__init__(MagnitudePrune(fraction), GradientGrow(), every=every, until=until, **options)


class GMP(TopologyCallback):
    """Gradual magnitude pruning (Zhu and Gupta 2018)

    A dense model is trained and, after every epoch or every so many steps, the weights of each layer that are nearest
    to 0 are dropped so that its density is d + (1 - d)·(1 - t)³; t grows from 0 to 1 in the first three quarters of the
    run. Layers with density d = 1 stay dense.
    """

    def __init__(self, density: Density, every: int | None = None, until: float = 0.75) -> None:
        super().__init__(every, until)
        self.density = density
        self._is_finished = False

    @property
    def explored(self) -> float:
        """1, because every position has been stored."""
        return 1.0

    def start(self, run: Training) -> None:
        super().start(run)
        self._is_finished = False
        densities_of(run.M, self.density)

    def is_due(self, run: Training) -> bool:
        return not self._is_finished

    def update(self, run: Training, rng: np.random.Generator, t: float) -> None:
        self._is_finished = t >= 1
        for layer, d in densities_of(run.M, self.density):
            nnz = _count(layer, d + (1 - d) * (1 - min(t, 1.0)) ** 3)
            W, (K, D) = layer.W, (layer.output_size, layer.input_size)
            if isinstance(W, SparseMatrix) and nnz < W.support.nnz:
                scores = np.abs(run.M.backend.to_numpy(W.values)[0])
                kept = ~smallest(scores, W.support.nnz - nnz)
                layer.rewire("W", Rewiring(W.support, kept, np.empty(0, dtype=np.int64)))
            elif not isinstance(W, SparseMatrix) and nnz < K * D:
                scores = np.abs(run.M.backend.to_numpy(W)).reshape(-1)
                layer.set_support(Support.from_flat((K, D), np.flatnonzero(~smallest(scores, K * D - nnz))))


def densities_of(M: MultilayerPerceptron, density: Density) -> list[tuple[LinearLayer, float]]:
    """The linear layers of M with their densities, one for all or one for each."""
    layers = [layer for _, layer in M.walk() if isinstance(layer, LinearLayer)]
    values = list(density) if isinstance(density, Sequence) else [density] * len(layers)
    if len(values) != len(layers):
        raise ValueError(f"density: expected 1 or {len(layers)} for {len(layers)} linear layers, found {len(values)}")
    for value in values:
        check_density("density", value)
    return list(zip(layers, values, strict=True))


def _count(layer: LinearLayer, density: float) -> int:
    """The number of weights of a layer with this density, at least 1."""
    return max(1, round(density * layer.input_size * layer.output_size))


METHODS: dict[str, type[Callback]] = {"static": Static, "SET": SET, "RigL": RigL, "GMP": GMP}


def create_method(specification: str, **options: Any) -> Callback:
    """The method that a string such as ``RigL(0.3)`` names."""
    return create(specification, METHODS, "method of sparse training", **options)
