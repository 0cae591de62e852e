"""Sizes, and shape rules: which shapes an operation takes and returns, in a line such as ``m k, k n -> m n``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any, NoReturn

from matgrad.foundation.callers import is_asked_by_user
from matgrad.foundation.numbers import as_number

Shape = tuple[Any, ...]  # (m, n) of a matrix, () of a scalar, (K, D, nnz) of a support; each an int or a `Size`
Pattern = tuple[str, ...]

ANY: Pattern = ("*",)
SCALAR: Pattern = ()
TIMES = "·"  # in the name of a product of sizes


class Questions:
    """What code has asked about sizes and numbers: an answer holds for some of them only, so others need their own run.

    `ones` are the sizes that were taken not to be 1; `others` says what else was asked of sizes, "whether N = 2", and
    `numbers` what was asked of matrices and settings, or could not be done with them.
    """

    def __init__(self) -> None:
        self.ones: set[str] = set()
        self.others: list[str] = []
        self.numbers: list[str] = []

    def first(self) -> str:
        """What was asked first that has several answers; '' if nothing was."""
        found = [*(f"asks {question}" for question in self.others), *self.numbers]
        return f"the code {found[0]}" if found else ""


def _of_scalar(operator: str) -> Callable[..., Any]:
    """The operator of a size: that of a scalar, which can be computed with."""

    def computed(size: Size, *others: Any) -> Any:
        from matgrad.program.entries import lifted

        return getattr(lifted(size), operator)(*others)

    return computed


class Size:
    """A size of 1 or more, with a name instead of a number; a size of 1 is the number 1.

    A product of sizes is a size: N * K has the name N·K. Code can compute with a size, and ask whether it is 1.
    Whatever else it asks is remembered, also by way of a hash, a text or an attribute, which the package itself needs.
    """

    __array_ufunc__ = None  # NumPy's numbers leave operators to it
    name: str
    questions: Questions

    def __init__(self, name: str, questions: Questions | None = None) -> None:
        self.name = name
        self.questions = questions or Questions()

    @property
    def factors(self) -> list[str]:
        """The names of the sizes whose product it is."""
        return self.name.split(TIMES)

    def _ask(self, question: str) -> None:
        """Remember a question."""
        self.questions.others.append(question)

    # -- for the package ------------------------------------------------------------------------
    def __getattribute__(self, name: str) -> Any:
        """An attribute, which an int does not have; for users, the class is that of an int."""
        if is_asked_by_user():
            if name == "__class__":
                return int
            Size._ask(self, f"for the attribute {name} of the size {size_name(self)}")
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        if is_asked_by_user():
            self._ask(f"for the text of the size {self.name}")
        return self.name

    def __format__(self, specification: str) -> str:
        if is_asked_by_user():
            self._ask(f"for the text of the size {self.name}")
        return format(self.name, specification)

    def __hash__(self) -> int:
        if is_asked_by_user():
            self._ask(f"for the hash of the size {self.name}")
        return hash(self.name)

    # -- as a number ----------------------------------------------------------------------------
    __add__, __radd__, __sub__, __rsub__ = map(_of_scalar, ("__add__", "__radd__", "__sub__", "__rsub__"))
    __truediv__, __rtruediv__, _scaled = map(_of_scalar, ("__truediv__", "__rtruediv__", "__rmul__"))
    __pow__, __neg__ = map(_of_scalar, ("__pow__", "__neg__"))

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Size):
            return Size(f"{self.name}{TIMES}{other.name}", self.questions)
        return self if isinstance(other, int) and other == 1 else self._scaled(other)

    __rmul__ = __mul__  # the other one is no size

    # -- comparisons ----------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        """Whether the sizes have the same name; otherwise they are taken to be different, and that is remembered."""
        n: Any = as_number(other)
        if isinstance(n, Size) and self.name == n.name:
            return True
        if type(n) in (int, float, bool):
            if n == 1:
                self.questions.ones |= {*self.factors}
            elif n > 1 and float(n).is_integer():
                self._ask(f"whether {self.name} = {n}")
        elif not isinstance(n, str | tuple | list | dict | None):
            self._ask(f"whether {self.name} = {size_name(n)}")
        return False

    def __le__(self, other: Any) -> bool:
        """Whether it is at most a number, which is known for numbers below 2: it is taken not to be 1."""
        other = as_number(other)
        if type(other) not in (int, float, bool) or other >= 2:
            self._ask(f"whether {self.name} ≤ {size_name(other)}")
            raise TypeError(f"{self.name} ≤ {size_name(other)}: a size has no number; a proof is for all sizes")
        if other >= 1:
            self.questions.ones |= {*self.factors}
        return False

    def __lt__(self, other: Any) -> bool:
        other = as_number(other)
        return self <= (other - 1 if type(other) is int else other)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def _no_number(self, *others: Any) -> NoReturn:
        self._ask(f"for the number of the size {self.name}")
        raise TypeError(f"the size {self.name} has no number: a proof is for all sizes")

    __int__ = __float__ = __complex__ = __index__ = __round__ = __trunc__ = __floor__ = __ceil__ = __abs__ = _no_number
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = __rdivmod__ = __rpow__ = __invert__ = _no_number
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _no_number


class BoundSize(int, Size):  # type: ignore[misc]
    """A size with a name and a number: an int that is printed by its name.

    That of N stacks of P rows is N·P, with P as its `unit`: what is shared out among ranks are whole stacks.
    """

    def __new__(cls, number: int, name: str, unit: int = 1) -> BoundSize:
        """The size `number` called `name`."""
        return super().__new__(cls, number)

    def __init__(self, number: int, name: str, unit: int = 1) -> None:
        self.name, self.unit = name, unit

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int) or other == 1:
            return self if isinstance(other, int) else int.__mul__(self, other)
        return BoundSize(int(self) * int(other), f"{self.name}{TIMES}{size_name(other)}", self.unit * int(other))

    def __getnewargs__(self) -> tuple[int, str, int]:  # type: ignore[override]
        """What a copy is made from."""
        return int(self), self.name, self.unit


def size_name(n: Any) -> Any:
    """The name of a size that has one, and anything else as it is."""
    return getattr(n, "name", n)


def is_same(m: Any, n: Any) -> bool:
    """Whether two sizes are equal; unlike ``==``, it does not count as a question about them."""
    return m is n or (m == n if isinstance(m, int) and isinstance(n, int) else size_name(m) == size_name(n))


def quotient(n: Any, known: Any, end: int = 0) -> Any:
    """The size m with n = known·m or, if the end is -1, with n = m·known; None if there is none.

    Products of names are ordered: N·P divided by P from its end is N, and cannot be divided by P from its beginning.
    """
    if is_same(known, 1):
        return n
    if isinstance(n, int) or isinstance(known, int):
        return _whole_quotient(n, known) if isinstance(n, int) and isinstance(known, int) else None
    own, names = n.factors, known.factors
    found, rest = (own[: len(names)], own[len(names) :]) if end == 0 else (own[-len(names) :], own[: -len(names)])
    return None if found != names else Size(TIMES.join(rest), n.questions) if rest else 1


def _whole_quotient(n: int, known: int) -> int | None:
    """n / known, if it is whole; of N stacks, with their name if that is known."""
    unit, first = getattr(n, "unit", 1), str(size_name(n)).partition(TIMES)[0]
    if first == size_name(known) and n % known == 0:
        return int(n) // int(known)
    if n % known or unit % known:
        return None if n % known else int(n) // int(known)
    rest = unit // int(known)
    return BoundSize(int(n) // int(known), f"{first}{TIMES}{rest}" if rest > 1 else first, rest)


def is_number_of_elements(n: Any) -> bool:
    """Whether a size is the number of stored elements of a sparse matrix."""
    return str(size_name(n)).startswith("nnz(")


class ShapeRule:
    """The shapes of the operands and, after the arrow, that of the result.

    ``m n`` is a matrix, ``()`` a scalar, ``*`` either of them, and ``K D nnz`` a K×D support with nnz positions.
    A name, or ``*``, stands for the same everywhere in a rule, 1 stands for itself, and ``n·p`` is a product. Of two
    rules with ``or`` between them, either will do.
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

    def patterns(self, *shapes: Shape) -> list[Pattern]:
        """The patterns of the operands and the result that these shapes fit; ``*`` of a matrix has two names."""
        found = next(x for x in self.alternatives if _match(x, shapes, {}) is not None)
        return [("*0", "*1")[: len(shape)] if x == ANY else x for x, shape in zip(found, shapes, strict=True)]

    def result(self, operands: Sequence[Shape], given: Mapping[str, Any]) -> Shape | None:
        """The shape of the result; None if those of the operands do not fit.

        `given` has the sizes that do not follow from the operands, such as m in ``1 n -> m n``.
        """
        for *patterns, result in self.alternatives:
            sizes = _match(patterns, operands, given)
            if sizes is not None:
                return sizes["*"] if result == ANY else tuple(_product(sizes, names) for names in result)
        return None


def _patterns(rule: str) -> list[Pattern]:
    """The patterns of the operands, then that of the result."""
    operands, _, result = rule.partition("->")
    shapes = [*(operands.split(",") if operands.strip() else ()), result]
    return [SCALAR if shape.strip() == "()" else tuple(shape.split()) for shape in shapes]


def _product(sizes: Mapping[str, Any], names: str) -> Any:
    """The size that stands in a pattern: that of a name, or a product."""
    return reduce(mul, (sizes[name] for name in names.split(TIMES)))


def _match(patterns: Sequence[Pattern], shapes: Sequence[Shape], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the names in the patterns stand for; None if the shapes do not fit."""
    sizes: dict[str, Any] = {"1": 1, **given}
    if len(patterns) != len(shapes):
        return None
    products: list[tuple[list[str], Any]] = []
    for pattern, shape in zip(patterns, shapes, strict=True):
        if not _fits(pattern, shape, sizes, products):
            return None
    while products:  # each time those of which all factors but one are known
        left = [x for x in products if sum(name not in sizes for name in x[0]) > 1]
        if len(left) == len(products) or not all(_divides(*x, sizes) for x in products if x not in left):
            return None
        products = left
    return sizes


def _fits(pattern: Pattern, shape: Shape, sizes: dict[str, Any], products: list[tuple[list[str], Any]]) -> bool:
    """Whether a shape fits a pattern and the sizes found so far; its own sizes are added to those, or to `products`."""
    if pattern == ANY:
        first = sizes.setdefault("*", shape)
        return len(shape) in (0, 2) and len(first) == len(shape) and all(map(is_same, first, shape))
    products += [(names.split(TIMES), n) for names, n in zip(pattern, shape, strict=False) if TIMES in names]
    pairs = [(name, n) for name, n in zip(pattern, shape, strict=False) if TIMES not in name]
    return len(pattern) == len(shape) and all(is_same(sizes.setdefault(name, n), n) for name, n in pairs)


def _divides(names: list[str], n: Any, sizes: dict[str, Any]) -> bool:
    """Whether n is the product of these sizes, of which one may be unknown: it is added to those."""
    place = next((k for k, name in enumerate(names) if name not in sizes), len(names))
    for name in names[:place]:
        n = None if n is None else quotient(n, sizes[name])
    for name in reversed(names[place + 1 :]):
        n = None if n is None else quotient(n, sizes[name], -1)
    return n is not None and is_same(sizes.setdefault(names[place], n) if place < len(names) else 1, n)
