"""Measurements beside the other benchmarks: sparse training in the C++ core, for docs/sparse.md, and small fits.

OMP_NUM_THREADS=1 python benchmarks/measure.py sparse-input
OMP_NUM_THREADS=1 python benchmarks/measure.py topology-updates
OMP_NUM_THREADS=1 python benchmarks/measure.py small-fits

Each writes benchmarks/NAME/bench.json. Times are of the processor, on one thread: the best of several.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse

import matgrad as mg
from harness.reports import FOLDER, head
from matgrad.foundation.writing import as_json

ROUNDS, UPDATES = 7, 21
OPTIONS: dict[str, Any] = {"batch_size": 100, "learning_rate": 0.001, "statistics": False}


class Clock(mg.Callback):
    """The seconds of each epoch."""

    def start(self, run: Any) -> None:
        self.seconds: list[float] = []
        self.begun = time.process_time()

    def epoch(self, run: Any) -> None:
        self.seconds.append(time.process_time() - self.begun)
        self.begun = time.process_time()


def seconds_per_step(M: mg.MultilayerPerceptron, X: Any, t: np.ndarray) -> float:
    """Of the best epoch of training."""
    clock = Clock()
    M.clone().fit(X, t, epochs=ROUNDS, callbacks=[clock], **OPTIONS)
    return min(clock.seconds) * OPTIONS["batch_size"] / len(t)


def sparse_input() -> list[dict[str, Any]]:
    """A step on sparse examples, and on the same examples as a dense matrix."""
    points = []
    for features in (10_000, 20_000):
        A = scipy.sparse.random_array((3000, features), density=0.01, rng=np.random.default_rng(0), format="csr")
        A, t = A.astype(np.float32), np.arange(3000) % 10
        for optimizer in ("GradientDescent", "Momentum(0.9)"):
            mg.manual_seed(0)
            M = mg.create_model("ReLU;Linear", [features, 256, 10], optimizers=optimizer).to("native")
            sparse, dense = (seconds_per_step(M, X, t) for X in (A, A.toarray()))
            points.append({"features": features, "optimizer": optimizer, "sparse": sparse, "dense": dense})
    return points


def topology_updates() -> list[dict[str, Any]]:
    """A topology update after each epoch, and a step of static training."""
    rng, sizes = np.random.default_rng(0), [3072, 1024, 1024, 10]
    X, t = rng.random((2000, 3072), dtype=np.float32), np.arange(2000) % 10
    points = []
    for method in (mg.SET, mg.RigL):
        for density in (0.01, 0.1):
            mg.manual_seed(0)
            M = mg.create_model("ReLU;ReLU;Linear", sizes, densities=density, optimizers="Nesterov(0.9)").to("native")
            step = seconds_per_step(M, X, t)
            found = {"method": method.__name__, "density": density, "step": step, "update": update(method, M, X, t)}
            points.append(found)
    return points


def update(method: type[mg.Topology], M: mg.MultilayerPerceptron, X: np.ndarray, t: np.ndarray) -> float:
    """The seconds of the best update."""
    seconds = []

    class Timed(method):  # type: ignore[misc, valid-type]
        def update(self, *arguments: Any) -> None:
            start = time.process_time()
            super().update(*arguments)
            seconds.append(time.process_time() - start)

    M.fit(X, t, epochs=UPDATES + 1, callbacks=[Timed(every=None, until=1.0)], **OPTIONS)
    return min(seconds)


def small_fits() -> list[dict[str, Any]]:
    """`fit` of matgrad's and scikit-learn's MLPClassifier on small tables, with equal epochs, sizes and batches."""
    from sklearn import datasets, neural_network
    from sklearn.preprocessing import StandardScaler

    import matgrad.sklearn

    options: dict[str, Any] = {"hidden_layer_sizes": (100,), "max_iter": 200, "random_state": 0}
    until_the_end: dict[str, Any] = {"solver": "adam", "tol": 0.0, "n_iter_no_change": 200}
    points = []
    for name in ("wine", "breast_cancer", "digits"):
        X, t = getattr(datasets, f"load_{name}")(return_X_y=True)
        X, seconds = StandardScaler().fit_transform(X), []
        for _ in range(ROUNDS):
            own = matgrad.sklearn.MLPClassifier(**options)
            for estimator in (own, neural_network.MLPClassifier(**options, **until_the_end)):
                start = time.process_time()
                with warnings.catch_warnings(action="ignore"):  # scikit-learn says that more epochs would help
                    estimator.fit(X, t)
                seconds.append(time.process_time() - start)
        points.append({"data": name, "matgrad": min(seconds[::2]), "scikit-learn": min(seconds[1::2])})
    return points


MEASUREMENTS = {"sparse-input": sparse_input, "topology-updates": topology_updates, "small-fits": small_fits}

if __name__ == "__main__":
    (name,) = sys.argv[1:]
    content = {"points": MEASUREMENTS[name]()}
    (FOLDER / name).mkdir(exist_ok=True)
    (FOLDER / name / "bench.json").write_text(as_json(head(name, argparse.Namespace()) | content) + "\n")
