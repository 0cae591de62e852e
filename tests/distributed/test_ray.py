"""The example with Ray Train, where Ray is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ranks_support import largest_difference

import matgrad as mg
from support import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_train.py"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray[train]")
def test_workers_of_ray_train_what_one_process_does(tmp_path):
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, EXAMPLE, tmp_path / "ray.npz"]
    subprocess.run(command, env=os.environ | variables, cwd=tmp_path, timeout=PATIENCE, check=True)

    X, t = mg.load_digits()
    mg.manual_seed(0)
    M = mg.create_model("ReLU;Linear", [64, 32, 10]).to(dtype="float64")
    M.fit(X / 16, t, epochs=3, seed=0)
    M.save(tmp_path / "alone.npz")
    assert largest_difference(tmp_path / "alone.npz", tmp_path / "ray.npz") < 1e-12
