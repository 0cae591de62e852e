"""Lets Triton's interpreter run kernels on the CPU, in every test file that imports this; others never compile any."""

from __future__ import annotations

import os
import sys

import pytest

OLDEST = "3.7"  # whose interpreter works with NumPy 2.4

if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
triton = pytest.importorskip("triton", minversion=OLDEST, reason=f"needs Triton {OLDEST} or newer")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton was imported before its interpreter was chosen", allow_module_level=True)
