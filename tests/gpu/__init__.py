"""Tests on a GPU, which need PyTorch, Triton, JAX and NumPy alone: `make test-gpu`.

They are plain functions without pytest: they may take `tmp_path`, raise `unittest.SkipTest` to be skipped, and go
through cases in a loop whose assertions name the case. Where there is no GPU they are skipped, by pytest too;
MATGRAD_TEST_DEVICE=cpu runs them on the CPU, to see whether they would work.
"""

from __future__ import annotations

import os

DEVICE = os.environ.get("MATGRAD_TEST_DEVICE", "cuda")


def why_not() -> str | None:
    """Why these tests cannot run here, or None."""
    try:
        import torch
    except ImportError:
        return "no PyTorch"
    return None if DEVICE == "cpu" or torch.cuda.is_available() else "no GPU: PyTorch finds no CUDA device"
