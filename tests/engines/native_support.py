"""What the tests of the C++ core without Python share: building its programs, and running them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE

NATIVE = Path(__file__).parents[2] / "native"
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
needs_compiler = pytest.mark.skipif(CMAKE is None or shutil.which("c++") is None, reason="no C++ compiler, or no cmake")


def build(folder: Path, sanitizers: str = "", options: tuple[str, ...] = ()) -> Path:
    """The folder with the programs, built with sanitizers where they are named."""
    if sanitizers:
        options = (*options, f"-DCMAKE_CXX_FLAGS=-fsanitize={sanitizers} -fno-omit-frame-pointer -g")
    prefix = run([sys.executable, "-m", "cmeel", "cmake"]).strip()  # where pip has put Eigen
    run([CMAKE, "-S", NATIVE, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", *options])
    tests = ("kernels_test", "program_test", "thread_pool_test", "fuzz_test")
    run([CMAKE, "--build", folder, "--target", "train", "predict", *tests, "-j2"])
    return folder


def run(command: list, **environment: str) -> str:
    result = subprocess.run(
        [str(part) for part in command], env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout
