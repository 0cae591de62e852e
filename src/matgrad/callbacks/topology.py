"""Topology updates: training drops some of the stored weights of sparse layers, and stores new ones elsewhere."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from matgrad.backends.base import Array
from matgrad.callbacks.callback import Callback
from matgrad.engines.engine import engine_of
from matgrad.engines.fallback import EvaluationWithFallback, evaluation_of
from matgrad.foundation.numbers import check_size, generator
from matgrad.layers.weights import WeightedLayer
from matgrad.program.computations import GradientFactors, sparse_parameters
from matgrad.sparse.rules import Factors, Grow, Prune, Rewiring, Site, create_grow, create_prune, smallest
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import lookup
from matgrad.weight_initializers import create_initializer, sparse_weights

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.training import Training

DECAYS: dict[str, Callable[[float], float]] = {  # of the drop fraction, from 1 at the start, t = 0, to the end, t = 1
    "constant": lambda t: 1.0,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
}


class TopologyCallback(Callback):
    """A callback that changes supports while a model is trained, after every epoch or every `every` steps.

    There are updates only in the part of the run up to `until`, a fraction of it, and none after its last step.
    `updates` counts them, `update_flops` is what growing by gradients has cost so far, and `explored` the fraction of
    the positions of sparse layers that have been stored at any time (ITOP's R).
    """

    is_training = True
    state_names = MappingProxyType(
        {"updates": int, "update_flops": int, "explored": float, "_explored": dict[str, np.ndarray], "_seed": int}
    )

    updates, update_flops, explored, _seed = 0, 0, 0.0, 0

    def __init__(self, every: int | None = None, until: float = 1.0, seed: int | None = None) -> None:
        if not 0 < until <= 1:
            raise ValueError(f"until: expected a part of the run in (0, 1], found {until}")
        self.every, self.until, self.seed = every, until, seed
        self.wants_batches = every is not None
        self.interval = 1 if every is None else check_size("every", every)
        self._explored: dict[str, np.ndarray] = {}  # the numbers of the positions, by parameter

    def start(self, run: Training) -> None:
        self.updates, self.update_flops, self._explored = 0, 0, {}
        self._seed = int(generator().integers(2**31)) if self.seed is None else self.seed
        self._explore(run)

    def batch(self, run: Training) -> None:
        if self.is_due(run):
            self.update(run, np.random.default_rng((self._seed, run.step)), run.progress / self.until)
            self.updates += 1
            self._explore(run)

    def epoch(self, run: Training) -> None:
        if self.every is None:
            self.batch(run)

    def end(self, run: Training) -> None:
        if run.step and run.progress == 1 and not self.is_complete:
            how = "after every epoch" if self.every is None else f"every {self.every} steps"
            problem = f"the run of {run.step} steps was too short for its topology updates"
            when = f"which come {how} in the first {100 * self.until:g} % of a run, and never at its end"
            warnings.warn(f"{type(self).__name__}: {problem}, {when}", stacklevel=2)

    @property
    def is_complete(self) -> bool:
        """Whether the updates have done what they are for: there was one at least."""
        return self.updates > 0

    def is_due(self, run: Training) -> bool:
        """Whether there are still updates."""
        return run.progress < self.until

    def update(self, run: Training, rng: np.random.Generator, t: float) -> None:
        """Change supports; t says which part of the time of updates is over, from 0 to 1."""
        raise NotImplementedError

    def _explore(self, run: Training) -> None:
        """Add the positions that are stored now."""
        positions = 0
        for path, layer, name in sparse_parameters(run.M):
            support = getattr(layer, name).support
            known = self._explored.get(key := f"{path}.{name}", np.empty(0, np.int64))
            both = np.sort(np.concatenate([known, support.kept_flat()]), kind="stable")  # which merges increasing ones
            self._explored[key] = both[np.diff(both, prepend=-1) > 0]
            positions += math.prod(support.shape)
        self.explored = sum(map(len, self._explored.values())) / max(positions, 1)


def check_sparse(M: MultilayerPerceptron) -> None:
    """Raise if a model has no sparse layer."""
    if not any(sparse_parameters(M)):
        raise ValueError("the model has no sparse layer: give it densities below 1")


class Topology(TopologyCallback):
    """Prune and grow: drop stored weights by one rule, and store as many new ones by another; without `grow`, none.

    `prune` and `grow` are rules or their names, such as ``Magnitude(0.3)`` and ``Gradient``, and `weights` is the
    distribution of new weights. The drop fraction decays from its value to 0 at the end of updates, or stays
    ``constant``. Unless `regrow`, positions that were just pruned cannot be grown in the same update. All choices
    depend only on the weights, the data and the seed, on every backend.
    """

    _epoch: int  # in which the computation of the factors was compiled, or seen to be the same
    _computation: EvaluationWithFallback

    def __init__(
        self,
        prune: Prune | str,
        grow: Grow | str | None = None,
        *,
        weights: str = "Zero",
        every: int | None = None,
        decay: str = "constant",
        until: float = 1.0,
        regrow: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(every, until, seed)
        self.prune, self.grow = create_prune(prune), None if grow is None else create_grow(grow)
        self.decay, self.regrow = decay, regrow
        self._scale = lookup(decay, DECAYS, "decay")
        create_initializer(weights)
        self.weights = weights

    def start(self, run: Training) -> None:
        super().start(run)
        self._epoch = -1
        check_sparse(run.M)

    def update(self, run: Training, rng: np.random.Generator, t: float) -> None:
        factors = self._factors(run, rng)
        for path, layer, name in sparse_parameters(run.M):
            W = getattr(layer, name)
            within = layer.within if isinstance(layer, WeightedLayer) else None
            dropped = self._dropped(W.support, within, run.M.backend.to_numpy(W.values)[0], self._scale(t))
            if not dropped.any():
                continue
            grown = np.empty(0, dtype=np.int64)
            if self.grow is not None:
                taken = Support.from_flat(W.shape, W.support.kept_flat()[~dropped]) if self.regrow else W.support
                if within is not None:
                    taken = _with_outside(taken, within)
                site = Site(taken, rng, factors.get(f"{path}.{name}", []), engine_of(run.M).largest_products)
                grown = _checked_positions(self.grow, site, int(np.count_nonzero(dropped)))
            rewiring = Rewiring(W.support, ~dropped, grown)
            is_zero = self.weights == "Zero"
            new = 0.0 if is_zero else sparse_weights(self.weights, rewiring.support, rng, rewiring.new_elements)
            layer.rewire(name, rewiring, new)

    def _dropped(self, support: Support, within: Support | None, values: np.ndarray, scale: float) -> np.ndarray:
        """Which weights the rule drops; those nearest to 0, if it drops more than can be dropped.

        Those are as many as there are free positions to grow at, `within` a support if there is one; without growing,
        all but one.
        """
        dropped = np.array(self.prune(values, scale))
        if dropped.shape != values.shape or dropped.dtype != bool:
            found = f"{dropped.dtype} of shape {dropped.shape}"
            raise ValueError(f"{self.prune!r}: expected a vector of {len(values)} booleans, found {found}")
        size = math.prod(support.shape) if within is None else within.nnz
        most = support.nnz - 1 if self.grow is None else support.nnz if self.regrow else size - support.nnz
        chosen = np.flatnonzero(dropped)
        if len(chosen) > most:
            dropped[chosen[~smallest(np.abs(values[chosen]), most)]] = False
        return dropped

    def _factors(self, run: Training, rng: np.random.Generator) -> dict[str, list[Factors]]:
        """The factors of the gradients on as many batches as growing needs, by parameter."""
        found: defaultdict[str, list[Factors]] = defaultdict(list)
        for _ in range(self.grow.batches if self.grow else 0):
            for name, factors in self._factors_on(run, *run.sample(rng)).items():
                found[name].append(factors)
        self.update_flops += 2 * sum(A.size * B.shape[1] for all_of in found.values() for A, B in all_of)
        return found

    def _factors_on(self, run: Training, *batch: Array) -> dict[str, Factors]:
        """The factors A and B of the gradient A B on a batch, by parameter."""
        M = run.M
        if self._epoch != run.epoch:  # within an epoch the computation stays the same, as in training
            self._computation = evaluation_of(M, run.loss, GradientFactors, compiled=run.compiled)
            self._epoch = run.epoch
        found: defaultdict[str, tuple[list, list]] = defaultdict(lambda: ([], []))
        for key, F in self._computation(M.state(), *batch).items():
            name, _, side = key.rpartition(".")
            found[name]["AB".index(side[0])].append(M.backend.to_numpy(F))
        return {name: (np.concatenate(A, axis=1), np.concatenate(B, axis=0)) for name, (A, B) in found.items()}


def _with_outside(taken: Support, within: Support) -> Support:
    """The positions of one support, and those that another one lacks."""
    outside = np.setdiff1d(np.arange(math.prod(within.shape)), within.flat())
    return Support.from_flat(within.shape, np.union1d(taken.flat(), outside))


def _checked_positions(grow: Grow, site: Site, count: int) -> np.ndarray:
    """The positions that the rule chooses, after a check that they are as many as were asked for, and free."""
    positions = np.asarray(grow(site, count))
    K, D = site.taken.shape
    is_right = positions.shape == (count,) and positions.dtype.kind == "i" and positions[-1] < K * D
    is_right = is_right and bool((np.diff(positions, prepend=-1) > 0).all())
    if not is_right or np.isin(positions, site.taken.kept_flat(), assume_unique=True).any():
        raise ValueError(f"{grow!r}: expected the numbers of {count} free positions of {K} × {D}, in increasing order")
    return positions
