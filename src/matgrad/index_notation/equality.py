"""Equality of expressions: that of their canonical forms."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from matgrad.index_notation.expressions import Expression, Powers, product


def is_equal(a: Expression, b: Expression) -> bool:
    """Whether a - b is 0 in canonical form, as it is or multiplied by its denominators.

    If so, then a = b for all sizes and wherever both are defined, except where a condition or a maximum changes.
    Otherwise nothing is known.
    """
    difference = a - b
    if not difference:
        return True
    least: Powers = defaultdict(Fraction)
    for m in difference.terms:
        for f, p in m:
            least[f] = min(least[f], p)
    denominators = {f: -p for f, p in least.items() if p < 0}
    return bool(denominators) and not difference * product(denominators.items())
