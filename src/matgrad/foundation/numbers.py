"""Numbers as Python has them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def as_number(value: Any) -> Any:
    """A NumPy scalar as Python number, which takes on the dtype of the matrix it multiplies."""
    return value.item() if isinstance(value, np.generic) else value


def check_size(name: str, size: Any) -> int:
    """The size as int, after a check that it is a whole number of 1 or more."""
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
        raise ValueError(f"{name} must be a whole number of 1 or more, found {size!r}")
    return operator.index(size)
