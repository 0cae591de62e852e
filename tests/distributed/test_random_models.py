"""200 random models, batches and numbers of ranks: one step of all ranks against one step of one process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array
from threads import on_ranks

import matgrad as mg
from architectures import Architecture, random_architecture
from matgrad.datasets.loader import as_matrix
from matgrad.layers.weights import WeightedLayer
from matgrad.loss_functions import takes_weights

COUNT, BLOCK = 200, 10
ENGINES = ("numpy", "torch", "native")


@dataclass
class Trial:
    """A random model, maybe with sparse layers, on one of the engines, and how its batch is trained on."""

    a: Architecture
    ranks: int
    engine: str
    clip_norm: float | None
    batch: list

    @classmethod
    def of(cls, seed: int) -> Trial:
        """The trial with this number; the same every time."""
        rng = np.random.default_rng(seed)
        N, ranks, engine = int(rng.integers(1, 14)), int(rng.choice([2, 2, 3, 4])), ENGINES[seed % len(ENGINES)]
        a = random_architecture(seed, N)
        for layer in a.M.layers:
            if isinstance(layer, WeightedLayer) and rng.random() < 0.3:
                layer.set_support(mg.Support.random(*layer.W.shape, max(1, layer.W.size // 2), rng))
        is_sparse = engine != "torch" and rng.random() < 0.2 and isinstance(a.M.layers[0], WeightedLayer)
        X = as_matrix(csr_array(np.where(rng.random(a.X.shape) < 0.3, a.X, 0))) if is_sparse else a.X
        s = [rng.uniform(0, 2, (N, 1))] if takes_weights(a.loss) and rng.random() < 0.3 else []
        a.M.to(engine)
        return cls(a, ranks, engine, 0.1 if rng.random() < 0.3 else None, [X, a.T, *s])

    def step(self) -> dict[str, np.ndarray]:
        """The state after one step, by this process or as a rank."""
        M = self.a.M
        X, T, *s = [A if hasattr(A, "support") else M.backend.from_numpy(A) for A in self.batch]
        step = mg.compile_step(M, self.a.loss, clip_norm=self.clip_norm)
        step.load(M.state())
        step(X, T, M.scalar(0.05), *s)
        return {name: M.backend.to_numpy(A) for name, A in step.state().items() if not name.endswith(".support")}


@pytest.mark.parametrize("block", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, COUNT // BLOCK))])
def test_ranks_make_the_step_that_one_process_makes(block):
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        expected = Trial.of(seed).step()
        ranks = Trial.of(seed).ranks
        trials = [Trial.of(seed) for _ in range(ranks)]
        found = on_ranks(ranks, lambda rank, trials=trials: trials[rank].step())
        for name, A in expected.items():
            np.testing.assert_allclose(found[0][name], A, rtol=1e-12, atol=1e-12, err_msg=f"{seed}: {name}")
            for other in found[1:]:
                np.testing.assert_array_equal(other[name], found[0][name], err_msg=f"{seed}: {name}")
