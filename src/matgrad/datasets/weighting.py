"""Weights of examples and of classes: how often the loss counts each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from matgrad.datasets.checking import checked_weights
from matgrad.datasets.loader import class_indices
from matgrad.specifications.parsing import parse_numbers

ClassWeights = str | Mapping[int, float] | Sequence[float] | np.ndarray


def class_weights(specification: ClassWeights, T: np.ndarray, K: int | None) -> np.ndarray:
    """c, the weights of K classes; the targets T of N examples are class indices or rows of probabilities.

    ``"balanced"`` gives all classes the same total weight: class j, which n_j of the N examples have, has the weight
    N / (K·n_j), where K counts the classes that occur. Else it is a list of K weights, such as ``1;2;0.5``, or a
    dictionary from class indices to weights; other classes have the weight 1. A regression, where K is None, has none.
    """
    if K is None:
        raise ValueError("class weights: the targets are numbers, expected classes")
    if isinstance(specification, str) and specification == "balanced":
        counts = T.sum(axis=0) if _are_rows(T) else np.bincount(class_indices(T.reshape(-1), K), minlength=K)
        return np.divide(counts.sum(), np.count_nonzero(counts) * counts, out=np.ones(K), where=counts > 0)
    if isinstance(specification, str):
        specification = parse_numbers(specification, "class weight", float)
    if isinstance(specification, Mapping):
        if unknown := [j for j in specification if j not in range(K)]:
            raise ValueError(f"class weights: found the class {unknown[0]!r}, expected classes from 0 to {K - 1}")
        specification = [specification.get(j, 1.0) for j in range(K)]
    return checked_weights(specification, K, "class weights")


def weights_by_class(T: np.ndarray, c: np.ndarray) -> np.ndarray:
    """T c, the weights of N examples from those of their classes; class indices stand for one-hot rows."""
    return T @ c if _are_rows(T) else c[class_indices(T.reshape(-1), len(c))]


def _are_rows(T: np.ndarray) -> bool:
    """Whether T has rows of probabilities, and not class indices."""
    return T.ndim == 2 and T.shape[1] > 1
