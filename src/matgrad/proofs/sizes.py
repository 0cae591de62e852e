"""Sizes without a number: N, D and K in proofs that hold for all sizes."""

from __future__ import annotations

from typing import Any, NoReturn

from matgrad.foundation.numbers import as_number


class Questions:
    """What code has asked about sizes: an answer holds for some sizes only, so others need a run of their own.

    `ones` are the sizes that were taken not to be 1; `others` says what else was asked.
    """

    def __init__(self) -> None:
        self.ones: set[str] = set()
        self.others: list[str] = []


class Size:
    """A size of 1 or more, with a name instead of a number; a size of 1 is the number 1."""

    __array_ufunc__ = None

    def __init__(self, name: str, questions: Questions | None = None) -> None:
        self.name = name
        self.questions = questions or Questions()

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    # -- as a number ----------------------------------------------------------------------------
    def _scalar(self) -> Any:
        """The size as a scalar, which can be computed with."""
        from matgrad.proofs.matrices import lifted  # which has the table of operations

        return lifted(self)

    def __add__(self, other: Any) -> Any:
        return self._scalar() + other

    def __radd__(self, other: Any) -> Any:
        return other + self._scalar()

    def __sub__(self, other: Any) -> Any:
        return self._scalar() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self._scalar()

    def __neg__(self) -> Any:
        return -self._scalar()

    def __mul__(self, other: Any) -> Any:
        return self._scalar() * other

    def __rmul__(self, other: Any) -> Any:
        return other * self._scalar()

    def __truediv__(self, other: Any) -> Any:
        return self._scalar() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._scalar()

    def __pow__(self, exponent: Any) -> Any:
        return self._scalar() ** exponent

    # -- comparisons ----------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        """Whether the sizes have the same name; otherwise they are taken to be different, and that is remembered."""
        if isinstance(other, Size) and self.name == other.name:
            return True
        other = as_number(other)
        if other == 1 and not isinstance(other, Size):
            self.questions.ones.add(self.name)
        elif isinstance(other, Size) or (isinstance(other, int | float) and other > 1 and other == int(other)):
            self.questions.others.append(f"{self} = {other}")
        return False

    def __le__(self, other: Any) -> bool:
        """Whether it is at most a number, which is known for numbers below 2: it is taken not to be 1."""
        other = as_number(other)
        if not isinstance(other, int | float) or other >= 2:
            raise TypeError(f"{self} ≤ {other}: the size {self} has no number; a proof is for all sizes")
        if other >= 1:
            self.questions.ones.add(self.name)
        return False

    def __lt__(self, other: Any) -> bool:
        other = as_number(other)
        return self <= (other - 1 if isinstance(other, int) else other)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def _no_number(self, *others: Any) -> NoReturn:
        raise TypeError(f"the size {self} has no number: a proof is for all sizes")

    __int__ = __float__ = __index__ = __iter__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = _no_number


def sizes(names: str) -> Any:
    """Sizes with these names, such as ``N, D, K = sizes("N D K")``."""
    return [Size(name) for name in names.split()]
