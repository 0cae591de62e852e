"""Python numbers."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np


def as_number(value: Any) -> Any:
    """A NumPy scalar as a Python number, which takes on the dtype of a matrix it multiplies; others as they are."""
    return value.item() if isinstance(value, np.generic) else value


def check_number(name: str, value: Any, largest: float = math.inf) -> Any:
    """The value as a Python number, after a check that it is one from 0 to `largest`; a symbol is returned as it is."""
    value = as_number(value)
    if isinstance(value, int | float) and not 0 <= value <= largest:
        expected = "0 or more" if largest == math.inf else f"0 to {largest}"
        raise ValueError(f"{name}: expected a number of {expected}, found {value}")
    return value


def check_size(name: str, size: Any, least: int = 1) -> int:
    """The size as an int, after a check that it is a positive whole number or, with ``least=0``, also 0."""
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < least:
        kind = "positive whole number" if least else "whole number of 0 or more"
        raise ValueError(f"{name} must be a {kind}, found {size!r}")
    return operator.index(size)
