"""Lets Triton's interpreter run kernels on the CPU, in every test file that imports this; others never compile any.

It lacks NVIDIA's functions and instructions: NumPy and SciPy stand in for them.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import special

OLDEST = "3.7"  # whose interpreter works with NumPy 2.4

if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
triton = pytest.importorskip("triton", minversion=OLDEST, reason=f"needs Triton {OLDEST} or newer")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton was imported before its interpreter was chosen", allow_module_level=True)

import triton.language as tl  # noqa: E402
from triton.runtime.interpreter import TensorHandle  # noqa: E402

from matgrad.engines.cuda import functions, fused  # noqa: E402
from matgrad.program.operations import OPERATIONS  # noqa: E402
from matgrad.program.scalars import functions_in  # noqa: E402


def interpreted(name: str) -> Any:
    """The function of one argument with this name."""
    of_arrays = getattr(np, name, None) or getattr(special, name)

    def function(x: Any) -> Any:
        data = of_arrays(x.handle.data)
        return tl.tensor(TensorHandle(data, x.handle.dtype), x.type)

    return function


@triton.jit
def power(x, c):
    """x^c"""
    return tl.where(x == 0, tl.where(c == 0, 1.0, 0.0), tl.exp(c * tl.log(tl.where(x == 0, 1.0, x))))


@triton.jit
def to_tf32(x):
    """x rounded to the nearest number with 11 bits"""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & ~0x1FFF
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


called = set().union(*(functions_in(row.scalar) for row in OPERATIONS.values() if row.scalar))
fused.libdevice = SimpleNamespace(**{name: interpreted(name) for name in called})
functions.power, functions.to_tf32 = power, to_tf32
