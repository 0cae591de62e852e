"""Layers with symbolic sizes: their matrices are symbols of sizes N, D and K, and their numbers are symbols too.

How the sizes of matrices depend on D and K is found by making a layer twice, with different D and K.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.numbers import preserved_generator
from matgrad.inspection.gradients import suffixed
from matgrad.inspection.verdicts import Check, crash
from matgrad.layers.checks import check_layers
from matgrad.layers.layer import Layer
from matgrad.proofs.matrices import IndexMatrix, Questions, Size, entry_of, symbols
from matgrad.proofs.statements import Algebra
from matgrad.sparse.matrix import SparseMatrix

T = TypeVar("T")
MakeLayer = Callable[[int, int], Layer]  # from D and K
SMALL, LARGE = {"D": 5, "K": 7}, {"D": 11, "K": 13}  # with which layers are made


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


class Symbols(Algebra):
    """Symbols for the matrices and numbers of a layer, a loss or an activation function, and their derivatives.

    Symbols of different matrices have different names.
    With `keep_numbers`, numbers such as ε stay as they are, unless they depend on the sizes.
    """

    def __init__(self, sizes: SymbolicSizes, keep_numbers: bool = False) -> None:
        self.sizes, self.keep_numbers = sizes, keep_numbers
        self.taken: set[str] = set()  # the names of symbols that no others may have

    def symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> IndexMatrix:
        """An m×n matrix of symbols with this name, or a similar one if that is taken."""
        while name in self.taken:
            name += "'"
        return symbols(name, *shape, is_positive=is_positive)

    def own_symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> Any:
        """An m×n matrix of symbols whose name is taken from now on."""
        X = self.symbols(name, *shape, is_positive=is_positive)
        self.taken.add(entry_of(X).name)
        return X

    def layer(self, make: MakeLayer, *, training: bool = True) -> Layer:
        """The layer in one of its modes, with symbols, parts included."""
        with preserved_generator():
            small, large = (make(*sizes.values()) for sizes in (SMALL, LARGE))
        check_layers([small])
        layer = small.clone()
        for (path, part), (_, other) in zip(layer.walk(), large.walk(), strict=True):
            part.training = training
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
                return self.own_symbols(name, *shape)
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
        return self.own_symbols(name, is_positive=value > 0)


Prove = Callable[[Symbols, str], list[Check]]  # the verdicts, with symbols and a text about the sizes


def attempts(prove: Prove, name: str, about: str) -> list[Check]:
    """The verdicts of a proof for all sizes.

    If the code asks whether a size is 1, there are more for sizes of 1, and the first are for the others. If it asks
    anything else about a size, nothing is proved. So it is if nothing was compared.
    """
    sizes = SymbolicSizes()
    checks = _attempt(prove, sizes, name, about)
    for ones in subsets(sizes.questions.ones):
        checks += _attempt(prove, SymbolicSizes(ones), name, f"{about}, {', '.join(f'{n} = 1' for n in sorted(ones))}")
    return checks


def _attempt(prove: Prove, sizes: SymbolicSizes, name: str, about: str) -> list[Check]:
    """The verdicts with symbols for the numbers of a class or, if it decides something by them, with the numbers."""
    try:
        return _verdicts(prove, Symbols(sizes), name, about)
    except Exception:  # whatever the code of a user leads to
        try:
            return _verdicts(prove, Symbols(sizes, keep_numbers=True), name, about)
        except Exception as error:
            return [crash(error, about, name)]


def _verdicts(prove: Prove, symbols: Symbols, name: str, about: str) -> list[Check]:
    checks = prove(symbols, about)
    if not any(check.ok and not check.note for check in checks) and all(check.ok for check in checks):
        return [Check(name, "?", "", about, "none", False, f"{name} is not proved: there is nothing to prove")]
    if questions := symbols.sizes.questions.others:
        reason = f"the code asks whether {questions[0]}, and so it differs from size to size"
        return [replace(x, ok=False, message=f"{x.name} is not proved: {reason}\n  in {x.location}") for x in checks]
    return checks


def subsets(names: set[str]) -> Iterator[frozenset[str]]:
    """The subsets that are not empty."""
    for number in range(1, len(names) + 1):
        yield from map(frozenset, combinations(sorted(names), number))
