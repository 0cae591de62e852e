"""Very wide sparse networks on a GPU: seconds per step and memory."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from matgrad.bench.experiments.brain import RATE
from matgrad.bench.measuring.turns import Report
from matgrad.datasets import one_hot
from matgrad.engines.registry import compile_step
from matgrad.foundation.machine import cores
from matgrad.layers import ActivationLayer, LinearLayer
from matgrad.loss_functions import SoftmaxCrossEntropyLoss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.support import Support


@dataclass(frozen=True)
class WideNetwork:
    """Hidden ReLU layers of the same size, whose neurons have so many inputs on average; the output layer is dense."""

    name: str
    features: int
    layers: int
    neurons: int
    connections: int
    classes: int
    batch_size: int
    steps: int = 5

    @property
    def sizes(self) -> list[int]:
        """The number of features, then the sizes of the layers."""
        return [self.features, *[self.neurons] * self.layers, self.classes]

    def build(self, seed: int) -> MultilayerPerceptron:
        """The network with He's weights; supports are drawn by a thread per core."""
        pairs = list(pairwise(self.sizes))[:-1]
        streams = np.random.default_rng(seed).spawn(len(pairs))

        def support(D: int, K: int, rng: np.random.Generator) -> Support:
            S = Support.random(K, D, min(self.connections, D) * K, rng)
            S.column_starts  # noqa: B018 (the index by columns, which is made when it is first needed)
            return S

        def layer(pair: tuple[int, int], rng: np.random.Generator) -> ActivationLayer:
            made = ActivationLayer(*pair, "ReLU", support=support(*pair, rng))
            made.set_weights("He", rng)
            return made

        with ThreadPoolExecutor(cores()) as pool:
            hidden = list(pool.map(layer, pairs, streams))
        return MultilayerPerceptron([*hidden, LinearLayer(self.neurons, self.classes)])


NETWORKS = (
    WideNetwork("1,000,000 → 1,000,000", 1_000_000, 1, 1_000_000, 10, 10, batch_size=100),
    WideNetwork("50 million neurons", 784, 10, 5_000_000, 10, 10, batch_size=8),
)


def run_wide(network: WideNetwork, device: str, seed: int, report: Report) -> dict[str, Any]:
    """The record of a network that is built, moved to the device, and trained on one generated batch."""
    import torch

    is_gpu = torch.device(device).type == "cuda"
    gc.collect()
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    M = network.build(seed).to("torch", device=device)
    built = time.perf_counter()
    report(f"{network.name}: built in {built - start:.1f} s")
    rng = np.random.default_rng(seed)
    X = M.backend.from_numpy(rng.random((network.batch_size, network.features), dtype=np.float32), M.device)
    t = rng.integers(network.classes, size=network.batch_size)
    T = M.backend.from_numpy(one_hot(t, network.classes).astype(np.float32), M.device)
    loss, eta = SoftmaxCrossEntropyLoss(), M.scalar(RATE / network.neurons)
    losses = [_loss(M, loss, X, T)]
    step = compile_step(M, loss)
    step.load(M.state())
    begin = time.perf_counter()
    step(X, T, eta)
    M.backend.wait(X)
    first = time.perf_counter()
    for _ in range(network.steps):
        step(X, T, eta)
    M.backend.wait(X)
    end = time.perf_counter()
    M.load_state(step.state())
    losses.append(_loss(M, loss, X, T))
    report(f"{network.name}: {(end - first) / network.steps:.4g} s per step")
    return asdict(network) | {
        "weights": sum(layer.nnz for layer in M.layers if isinstance(layer, LinearLayer)),
        "optimizer": "GradientDescent",
        "build_seconds": built - start,
        "first_step_seconds": first - begin,
        "seconds_per_step": (end - first) / network.steps,
        "losses": losses,
        "peak_bytes": torch.cuda.max_memory_allocated() if is_gpu else None,
    }


def _loss(M: MultilayerPerceptron, loss: SoftmaxCrossEntropyLoss, X: Any, T: Any) -> float:
    """The mean loss of the batch, by the equations."""
    Y = M.clone().eval().feedforward(X)
    return float(loss(Y, T)) / len(T)
