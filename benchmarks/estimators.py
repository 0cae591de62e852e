"""CPU time of `fit`: matgrad's and scikit-learn's MLPClassifier on small tables, with equal epochs, sizes and batches.

    python benchmarks/estimators.py [rounds] [epochs]

Interleaved rounds on one thread; the ratio is that of the best times.
"""

from __future__ import annotations

import sys
import time
import warnings
from functools import partial
from typing import Any

from sklearn import datasets, neural_network
from sklearn.preprocessing import StandardScaler

import matgrad.sklearn
from matgrad.foundation.machine import set_threads

DATA = {"wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer, "digits": datasets.load_digits}


def seconds(estimator: Any, X: Any, t: Any) -> float:
    """The CPU time of a fit."""
    start = time.process_time()
    estimator.fit(X, t)
    return time.process_time() - start


def main(rounds: int = 5, epochs: int = 200) -> None:
    """Print a line for each table."""
    set_threads(1)
    warnings.simplefilter("ignore")  # scikit-learn says that more epochs would help
    options: dict[str, Any] = {"hidden_layer_sizes": (100,), "max_iter": epochs, "random_state": 0}
    until_the_end: dict[str, Any] = {"solver": "adam", "tol": 0.0, "n_iter_no_change": epochs}
    tools = [
        partial(matgrad.sklearn.MLPClassifier, **options),
        partial(neural_network.MLPClassifier, **options, **until_the_end),
    ]
    print(f"{'data':<14} {'matgrad':>8} {'scikit-learn':>13} {'ratio':>6}")
    for name, load in DATA.items():
        X, t = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        best = [float("inf")] * 2
        for i in range(rounds + 1):
            found = [seconds(tool(), X, t) for tool in tools]
            if i:  # the first round imports
                best = [min(pair) for pair in zip(best, found, strict=True)]
        print(f"{name:<14} {best[0]:>7.3f}s {best[1]:>12.3f}s {best[0] / best[1]:>6.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
