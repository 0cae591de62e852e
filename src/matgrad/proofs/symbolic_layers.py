"""Layers with symbolic sizes: their matrices are symbols of sizes N, D and K, and their numbers are symbols too.

How the sizes of matrices depend on D and K is found by making a layer twice, with different D and K.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.random_numbers import preserved_generator
from matgrad.inspection.gradients import suffixed
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer, check_layers
from matgrad.proofs.calculus import IndexCalculus
from matgrad.proofs.matrices import IndexMatrix
from matgrad.proofs.sizes import Questions, Size
from matgrad.sparse.matrix import SparseMatrix

T = TypeVar("T")
MakeLayer = Callable[[int, int], Layer]  # from D and K
SMALL, LARGE = {"D": 5, "K": 7}, {"D": 11, "K": 13}  # with which layers are made
DROPOUT = 0.3  # the rate for which a symbol is put


class SymbolicSizes:
    """N, D and K, of which some may be 1, and what was asked about them."""

    def __init__(self, ones: frozenset[str] = frozenset()) -> None:
        self.ones, self.questions = ones, Questions()

    def __call__(self, name: str) -> Size | int:
        """The size of this name, or the number 1."""
        return 1 if name in self.ones else Size(name, self.questions)

    def of(self, small: int, large: int, what: str) -> Size | int:
        """The size that is `small` in the first layer that was made and `large` in the second."""
        if small == large:
            return 1 if small == 1 else self(f"C{small}")  # any other constant stands for all sizes
        for name in SMALL:
            if (small, large) == (SMALL[name], LARGE[name]):
                return self(name)
        raise ValueError(f"{what}: expected a size of 1, D or K, found {small} for {SMALL} and {large} for {LARGE}")

    def __str__(self) -> str:
        return " ".join(f"{name}=1" for name in sorted(self.ones))


class Symbols:
    """Symbols for the matrices and numbers of a layer, a loss or an activation function.

    With `keep_numbers`, numbers such as ε stay as they are, unless they depend on the sizes.
    """

    def __init__(self, sizes: SymbolicSizes, keep_numbers: bool = False) -> None:
        self.sizes, self.keep_numbers, self.calculus = sizes, keep_numbers, IndexCalculus()

    def layer(self, make: MakeLayer, *, training: bool = True, dropout: bool = False) -> Layer:
        """The layer in one of its modes, with symbols, parts included; with `dropout`, all parts that can do drop."""
        with preserved_generator():
            small, large = (make(*sizes.values()) for sizes in (SMALL, LARGE))
        check_layers([small])
        layer = small.clone()
        for (path, part), (_, other) in zip(layer.walk(), large.walk(), strict=True):
            part.training = training
            if isinstance(part, LayerWithDropout) and dropout:
                part.dropout = part.dropout or DROPOUT
            for name, value in list(vars(part).items()):
                vars(part)[name] = self._attribute(part, suffixed(name, path), value, vars(other).get(name))
        return layer

    def numbers(self, thing: T, other: T | None = None, prefix: str = "") -> T:
        """A copy of an activation function or a loss, in which every attribute that is a number is a symbol."""
        clone = copy.copy(thing)
        for name, value in vars(thing).items():
            if isinstance(value, float):
                setattr(clone, name, self._number(prefix + name, value, vars(other or thing).get(name)))
        return clone

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        """What an attribute is replaced by; `other` is what it is in the layer of other sizes."""
        where = f"{type(part).__name__}.{name}"
        match value:
            case SparseMatrix():
                raise TypeError(f"{where} is sparse: proofs are for dense matrices")
            case np.ndarray(ndim=2):
                shape = (self.sizes.of(m, n, where) for m, n in zip(value.shape, np.shape(other), strict=True))
                return self.calculus.own_symbols(name, *shape)
            case int() if not isinstance(value, bool) and value != other:
                return self.sizes.of(value, other, where)
            case float():
                return self._number(name, value, other)
            case ActivationFunction():
                return self.numbers(value, other, f"{name}.")
        return value

    def _number(self, name: str, value: float, other: Any) -> IndexMatrix | float:
        """A symbol, which is positive if the number is; 0 stays 0."""
        if not value or (self.keep_numbers and value == other):
            return value
        return self.calculus.own_symbols(name, is_positive=value > 0)


def has_dropout(layer: Layer) -> bool:
    """Whether dropout can be turned on in a layer or one of its parts."""
    return any(isinstance(part, LayerWithDropout) and not part.dropout for _, part in layer.walk())
