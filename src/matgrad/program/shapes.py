"""Shape rules: which shapes an operation takes and returns, in a line such as ``m k, k n -> m n``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

Shape = tuple[int, ...]  # (m, n) of a matrix, () of a scalar, (K, D, nnz) of a support
Pattern = tuple[str, ...]

ANY: Pattern = ("*",)
SCALAR: Pattern = ()


class Size(int):
    """A size with a name, such as N, that is printed instead of the number."""

    name: str

    def __new__(cls, value: int, name: str) -> Size:
        """The size `value` called `name`."""
        size = super().__new__(cls, value)
        size.name = name
        return size

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]
        """What a copy is made from."""
        return int(self), self.name


def size_name(n: Any) -> Any:
    """The name of a size that has one, and anything else as it is."""
    return getattr(n, "name", n)


class ShapeRule:
    """The shapes of the operands and, after the arrow, that of the result.

    ``m n`` is a matrix, ``()`` a scalar, ``*`` either of them, and ``K D nnz`` a K×D support with nnz positions.
    A name, or ``*``, stands for the same everywhere in a rule, and 1 stands for itself. Of two rules with
    ``or`` between them, either will do.
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.alternatives = [_patterns(alternative) for alternative in rule.split(" or ")]

    @property
    def operands(self) -> list[Pattern]:
        """The patterns of the operands."""
        return self.alternatives[0][:-1]

    def sizes(self, result: Shape, operands: Sequence[Shape]) -> dict[str, Any] | None:
        """What the names stand for; None if the shapes do not fit."""
        found = (_match(patterns, [*operands, result], {}) for patterns in self.alternatives)
        return next((sizes for sizes in found if sizes is not None), None)

    def patterns(self, result: Shape, operands: Sequence[Shape]) -> list[Pattern]:
        """The patterns of the operands and the result that these shapes fit; ``*`` of a matrix has two names."""
        shapes = [*operands, result]
        patterns = next(x for x in self.alternatives if _match(x, shapes, {}) is not None)
        return [
            tuple(f"*{axis}" for axis in range(len(shape))) if pattern == ANY else pattern
            for pattern, shape in zip(patterns, shapes, strict=True)
        ]

    def result(self, operands: Sequence[Shape], given: Mapping[str, int]) -> Shape | None:
        """The shape of the result; None if those of the operands do not fit.

        `given` has the sizes that do not follow from the operands, such as m in ``1 n -> m n``.
        """
        for *patterns, result in self.alternatives:
            sizes = _match(patterns, operands, given)
            if sizes is not None:
                return sizes["*"] if result == ANY else tuple(sizes[name] for name in result)
        return None


def _patterns(rule: str) -> list[Pattern]:
    """The patterns of the operands, then that of the result."""
    operands, _, result = rule.partition("->")
    shapes = [*(operands.split(",") if operands.strip() else ()), result]
    return [SCALAR if shape.strip() == "()" else tuple(shape.split()) for shape in shapes]


def _match(patterns: Sequence[Pattern], shapes: Sequence[Shape], given: Mapping[str, int]) -> dict[str, Any] | None:
    """What the names in the patterns stand for; None if the shapes do not fit."""
    sizes: dict[str, Any] = {"1": 1, **given}
    fit = len(patterns) == len(shapes) and all(map(_fits, patterns, shapes, repeat(sizes)))
    return sizes if fit else None


def _fits(pattern: Pattern, shape: Shape, sizes: dict[str, Any]) -> bool:
    """Whether a shape fits a pattern and the sizes found so far; its own sizes are added to those."""
    if pattern == ANY:
        return len(shape) in (0, 2) and sizes.setdefault("*", shape) == shape
    return len(pattern) == len(shape) and all(
        sizes.setdefault(name, n) == n for name, n in zip(pattern, shape, strict=True)
    )


def product_of(names: str, sizes: Mapping[str, int]) -> int:
    """The product of numbers and sizes, such as ``2 m k n``."""
    return math.prod(int(name) if name.isdigit() else int(sizes[name]) for name in names.split())
