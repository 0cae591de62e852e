"""Certificates of the gradients of foreign code, whose entries are expressions in index notation."""

from __future__ import annotations

import re
from functools import partial

from matgrad.certificates.theorems import Certificate, derivative_certificate, split_if_needed
from matgrad.index_notation.expressions import Entry, Expression, of
from matgrad.index_notation.indices import FIRST, Index
from matgrad.program.entries import IndexMatrix, indices_of
from matgrad.program.shapes import TIMES, Size


def gradient_certificate(name: str, entry: Entry, value: Expression, returned: Expression) -> Certificate:
    """The theorem that the derivative of a value with respect to an entry is what is returned at its indices."""
    sizes = TIMES.join(i.size for i in entry.indices)
    shape = (1, Size(sizes)) if sizes else ()
    own: tuple[Index, ...] = tuple(part for i in indices_of(shape) if i != FIRST for part in i.parts)
    symbol = IndexMatrix(shape, of(entry.at(*own)))
    claimed = IndexMatrix(shape, returned.substituted(dict(zip(entry.indices, own, strict=True))))
    total = IndexMatrix((), value)
    found = split_if_needed(partial(derivative_certificate, name, total.value, symbol.value, claimed.value))
    found.owner = re.sub(r"\W+", "_", name)
    return found
