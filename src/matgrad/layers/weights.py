"""Weights W and bias b of linear layers: initial values, densities and supports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from matgrad.backends import backend_of, convert
from matgrad.foundation.numbers import Generator, generator
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import Matrix, Scalar
from matgrad.sparse.densities import check_density, divided_densities, erdos_renyi_rule, parse_densities
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.rules import largest_weights
from matgrad.sparse.support import Support, as_support
from matgrad.specifications.parsing import Items
from matgrad.weight_initializers import initial_weights, sparse_weights


def random_seed() -> Scalar:
    """A new seed for dropout."""
    return np.array(generator().integers(2**31), dtype=np.int32)


class WeightedLayer(Layer):
    """A layer with weights W of size K×D and a bias b of size 1×K.

    With a `support`, which may also be a mask or a SciPy matrix (see `as_support`), W
    is a sparse matrix that stores only those elements.
    """

    parameters: tuple[str, ...] = ("W", "b")
    least_outputs = 1  # two for a softmax
    within: Support | None = None  # where W may have weights, such as in the groups of a convolution

    W: Any  # a matrix, dense or sparse
    b: Matrix
    DW: Matrix
    Db: Matrix

    def __init__(self, input_size: int, output_size: int, *, support: Any = None) -> None:
        super().__init__(input_size, output_size)
        if self.output_size < self.least_outputs:
            problem = f"found {self.output_size} output, expected at least {self.least_outputs}"
            reason = "a softmax over one class is constant; one output needs a LinearLayer"
            raise ValueError(f"{type(self).__name__}: {problem}: {reason}")
        self.seed = random_seed()  # of dropout: drawn by every layer, so that W is the same with and without it
        if support is None:
            self.W = np.empty((output_size, input_size), dtype=np.float32)
        else:
            support = self.checked_support(support)
            self.W = SparseMatrix(support, np.empty((1, support.nnz), dtype=np.float32))
        self.b = np.empty((1, output_size), dtype=np.float32)
        self.set_weights("XavierNormalized")
        self.set_optimizer("GradientDescent")

    def set_weights(self, specification: str, rng: Generator | None = None) -> None:
        """Draw W from a distribution such as ``Xavier`` or ``Uniform(-0.1, 0.1)``, and set b to 0.

        In a sparse W only the inputs and outputs that are connected count; see `matgrad.weight_initializers`.
        """
        K, D = self.output_size, self.input_size
        like = values_of(self.W)
        backend = backend_of(like)
        if isinstance(self.W, SparseMatrix):
            W = sparse_weights(specification, self.W.support, rng)[None]
        else:
            W = initial_weights(specification, K, D, rng)
        for name, A in (("W", W), ("b", np.zeros((1, K)))):
            A = convert(A, backend, backend.dtype(like), backend.device(like))
            setattr(self, name, with_values(getattr(self, name), A))

    # -- sparse weights -----------------------------------------------------------------------
    @property
    def nnz(self) -> int:
        """The number of W's elements that are stored."""
        return math.prod(values_of(self.W).shape)

    @property
    def density(self) -> float:
        """The fraction of W's elements that is stored: 1 for a dense W."""
        return self.W.support.density if isinstance(self.W, SparseMatrix) else 1.0

    def set_support(self, support: Any) -> None:
        """Make W sparse, with its current elements at `support` and 0 where it stored none; see `restrict`.

        The support may also be a mask or a SciPy matrix, of which only the positions count; see `as_support`.
        """
        self.restrict("W", self.checked_support(support))

    def checked_support(self, support: Any) -> Support:
        """The support, after a check that it fits W and is not empty."""
        K, D = self.output_size, self.input_size
        result = as_support(support)
        if result.shape != (K, D) or not result.nnz:
            raise ValueError(f"support: expected size {K} × {D} with elements, found {result!r}")
        return result


def with_densities(layers: Sequence[WeightedLayer], densities: Items) -> list[tuple[WeightedLayer, float]]:
    """The layers with their densities, from a list such as ``0.01;0.05;1``, from one for all, or from ``ER(0.05)``."""
    if (rule := erdos_renyi_rule(densities)) is None:
        values = parse_densities(densities)
    else:
        sizes = [x.input_size for x in layers], [x.output_size for x in layers]
        values = divided_densities(*sizes, rule.density, rule.power)
    values = values * len(layers) if len(values) == 1 else values
    if len(values) != len(layers):
        raise ValueError(f"expected 1 or {len(layers)} densities for {len(layers)} linear layers, found {len(values)}")
    return list(zip(layers, values, strict=True))


def largest_supports(layers: Sequence[WeightedLayer], density: float, name: str) -> list[Support]:
    """The supports of the weights farthest from 0, with which the layers together have the density."""
    check_density(name, density)
    stored, elements = sum(x.nnz for x in layers), sum(x.output_size * x.input_size for x in layers)
    count = round(density * elements)
    if not len(layers) <= count <= stored:
        least = "one" if len(layers) == 1 else "one per layer"
        problem = f"expected at least {least} and at most the {stored} that are stored"
        raise ValueError(f"{name}: {density} of the {elements} weights are {count}; {problem}")
    return largest_weights([layer.W for layer in layers], count)
