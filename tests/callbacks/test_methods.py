"""Methods of sparse training by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_topology import ENGINES, data, model

import matgrad as mg
from matgrad.callbacks.methods import create_method
from matgrad.sparse.matrix import SparseMatrix


def nnz(M: mg.MultilayerPerceptron) -> list[int]:
    """The number of stored weights of each layer."""
    return [x.W.support.nnz if isinstance(x.W, SparseMatrix) else x.W.shape[0] * x.W.shape[1] for x in M.layers]


def train(name: str, method: mg.Callback, densities: Any = 1, **options: Any) -> mg.MultilayerPerceptron:
    M = model(name, densities)
    M.fit(*data(), **{"epochs": 8, "batch_size": 20, "seed": 0, "callbacks": [method]} | options)
    return M


def test_the_papers_defaults():
    rigl, evolution = create_method("RigL"), create_method("SET")
    assert (repr(rigl.prune), repr(rigl.grow), rigl.every, rigl.until, rigl.decay) == (
        *("Magnitude", "Gradient"),
        *(100, 0.75, "cosine"),
    )
    assert rigl.prune.fraction == evolution.prune.fraction == 0.3
    assert (repr(evolution.prune), repr(evolution.grow), evolution.every) == ("SET", "Random", None)
    assert rigl.weights == evolution.weights == "Zero"
    assert create_method("RigL(0.2, every=50, until=0.5)").every == 50


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("specification", ["static", "SET", "RigL(every=2)"])
def test_methods_that_start_sparse_keep_the_number_of_weights(name: str, specification: str):
    start = model(name, 0.3)
    M = train(name, create_method(specification), 0.3)
    assert nnz(M) == nnz(start)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("every", [None, 2])
def test_GMP_prunes_a_dense_model_by_the_cubic_rule(name: str, every: int | None):
    counts: list[list[int]] = []

    class Counting(mg.GMP):
        def update(self, run: Any, rng: np.random.Generator, t: float) -> None:
            before = nnz(run.M)
            super().update(run, rng, t)
            counts.append(nnz(run.M))
            assert all(a >= b for a, b in zip(before, counts[-1], strict=True))
            for layer, d in zip(run.M.layers, (0.1, 0.2, 1), strict=True):
                size = layer.input_size * layer.output_size
                expected = round((d + (1 - d) * (1 - min(t, 1)) ** 3) * size)
                assert counts[-1][run.M.layers.index(layer)] == max(1, expected)

    M = train(name, Counting([0.1, 0.2, 1], every=every))
    assert nnz(M) == [round(0.1 * 12 * 9), round(0.2 * 9 * 8), 8 * 4]
    assert not M.layers[2].is_sparse
    assert len(counts) == (6 if every is None else 9), "until three quarters of 8 epochs, 24 steps"


def test_GMP_keeps_the_largest_weights_and_their_momentum():
    M, seen = model(densities=1), []

    class Seen(mg.GMP):
        def update(self, run: Any, rng: np.random.Generator, t: float) -> None:
            before = {key: np.array(X) for key, X in run.M.state().items()}
            super().update(run, rng, t)
            seen.append((before, run.M.layers[0].W.to_dense(), run.M.layers[0].W.support, run.M.state()["1.W.delta"]))

    M.fit(*data(), epochs=2, callbacks=[Seen(0.25, until=0.5)])
    before, W, S, delta = seen[0]
    kept = np.sort(np.argsort(np.abs(before["1.W"]).reshape(-1))[-S.nnz :])
    assert S.flat().tolist() == kept.tolist()
    assert np.array_equal(W.reshape(-1)[kept], before["1.W"].reshape(-1)[kept])
    assert np.array_equal(delta[0], before["1.W.delta"].reshape(-1)[kept])


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("density", [0.2, [0.1, 0.2, 1.0]])
def test_SNIP_keeps_the_largest_saliencies(name: str, density: Any):
    """Compared with PyTorch's derivative."""
    import torch

    M = model(name, 1)
    for layer in M.layers:
        layer.b = M.backend.from_numpy(np.random.default_rng(6).normal(size=layer.b.shape))
    dense = [
        tuple(torch.tensor(np.array(M.backend.to_numpy(A)), requires_grad=True) for A in (layer.W, layer.b))
        for layer in M.layers
    ]
    X, t = data()
    M.fit(X, t, epochs=1, batch_size=60, learning_rate=0.0, callbacks=[mg.SNIP(density, seed=0)])
    Y = torch.tensor(X)
    for i, (W, b) in enumerate(dense):
        Y = torch.relu(Y @ W.T + b) if i < 2 else Y @ W.T + b
    torch.nn.functional.cross_entropy(Y, torch.tensor(t)).backward()
    scores = [np.abs((W * W.grad).detach().numpy()) for W, _ in dense]
    if isinstance(density, list):
        thresholds = [np.sort(A.reshape(-1))[-round(d * A.size)] for A, d in zip(scores, density, strict=True)]
    else:
        everything = np.sort(np.concatenate([A.reshape(-1) for A in scores]))
        thresholds = [everything[-round(density * len(everything))]] * 3
    for layer, A, (W, _), least in zip(M.layers, scores, dense, thresholds, strict=True):
        expected = np.where(A >= least, W.detach().numpy(), 0)
        found = M.backend.to_numpy(layer.W.to_dense() if layer.is_sparse else layer.W)
        np.testing.assert_allclose(found, expected)


def test_methods_of_a_plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "import matgrad as mg\n"
        "class FirstPrune(mg.Prune):\n"
        "    def __call__(self, values, scale=1.0):\n"
        "        return np.arange(len(values)) < 2\n"
        "class Mine(mg.Topology):\n"
        "    def __init__(self, every: int = 1):\n"
        "        super().__init__('First', 'Random', every=every)\n"
    )
    mg.load_plugin(file)
    M = train("numpy", create_method("Mine(every=2)"), 0.3)
    assert nnz(M) == nnz(model("numpy", 0.3))
