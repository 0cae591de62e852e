"""Sizes that code divides, or that are less than others by a number, which a proof puts for the named ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matgrad.writers.sizes import DivisionError, LongerError, OrderError, Question
from matgrad.writers.specifications import Specification

MOST_DIVISIONS = 3  # of sizes, for one function
MOST_LONGER = 16  # what is added to sizes


class Divisions:
    """Sizes that code divides, as products: D = 2·D_2."""

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, bool | None]] = {}
        self.longer: dict[str, int] = {}  # by how much sizes are less than others
        self.is_last = False  # whether the numbers come last, where the code does not say so

    def add(self, error: Exception | None, specifications: Mapping[str, Specification]) -> bool:
        """Whether there is another try, after an error with these arguments."""
        match error:
            case DivisionError(size=str() as size, count=count, is_last=is_last) if len(self.sizes) < MOST_DIVISIONS:
                self.sizes[size] = count, is_last
                return not any(s.kind == f"<{size}" for s in specifications.values())
            case LongerError(size=str() as base, count=count) if sum(self.longer.values()) + count <= MOST_LONGER:
                size = next((size for size in self.longer if self.name(size) == base), base)
                self.longer[size] = self.longer.get(size, 0) + count
                return not any(s.kind == f"<{size}" for s in specifications.values())
            case OrderError() if not self.is_last:
                self.is_last = True
                return True
        return False

    def of(self, s: Specification) -> Specification:
        """A specification with products."""
        s = s.turned() if self.is_last else s
        for size, (count, is_last) in self.sizes.items():
            parts = (count, f"{size}_{count}")
            s = s.divided(size, parts[::-1] if (self.is_last if is_last is None else is_last) else parts)
        for size, count in self.longer.items():
            s = s.lengthened(size, self.name(size), count)
        return s

    def given(self, size: str) -> tuple[str, int]:
        """T and n, for the size T + n."""
        return next(((name, n) for name, n in self.longer.items() if self.name(name) == size), (size, 0))

    def bounds(self, questions: Sequence[Question]) -> list[str]:
        """What sizes have to be more than, if that is not 0."""
        most: dict[str, int] = {}
        for base, n in (q.above for q in questions if q.above is not None):
            size, more = self.given(base)
            most[size] = max(most.get(size, 0), n - more)
        return [f"{size} > {n}" for size, n in most.items() if n > 0]

    def name(self, size: str) -> str:
        """That of the size which is so much longer."""
        return f"{size}_plus_{self.longer[size]}"

    @property
    def assumptions(self) -> list[str]:
        """What is said of sizes."""
        longer = [f"{self.name(size)} = {size} + {count}" for size, count in self.longer.items()]
        return [*(f"{size} = {count}·{size}_{count}" for size, (count, _) in self.sizes.items()), *longer]
