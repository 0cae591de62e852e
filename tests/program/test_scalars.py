"""Elementwise operations from their lines: in Python, JavaScript and C++, and what a new one takes."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from matgrad.explanation.page import _JavaScript
from matgrad.program.operations import OPERATIONS
from matgrad.program.scalars import ScalarWriter, as_function, letters

ROOT = Path(__file__).parents[2]
LINES = {  # with their meaning, in Python's own words
    "x - (y - c)": lambda x, y, c: x - (y - c),
    "-(x + y) * c": lambda x, y, c: -(x + y) * c,
    "x / (y * c)": lambda x, y, c: x / (y * c),
    "-x ** 2 + (y >= 0)": lambda x, y, c: -(x * x) + (1 if y >= 0 else 0),
    "x * (x - y >= 0) + c": lambda x, y, c: x * (1 if x >= y else 0) + c,
    "log1p(exp(-x)) / (1 + sqrt(y * y))": lambda x, y, c: math.log(1 + math.exp(-x)) / (1 + abs(y)),
    "tanh(c * x) ** 3": lambda x, y, c: math.tanh(c * x) ** 3,
}
CODE = (".py", ".h", ".cpp", ".js")
POINTS = [(0.3, -1.7, 0.8), (-1.2, 0.4, 2.5), (2.0, 2.0, -0.5)]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_a_function(line: str):
    functions = {"step": lambda x: float(x >= 0), "power": pow, "log1p": math.log1p}
    f = as_function(line, ["x", "y", "c"], functions | {name: getattr(math, name) for name in ("exp", "sqrt", "tanh")})
    for point in POINTS:
        assert f(*point) == pytest.approx(LINES[line](*point), rel=1e-14)


@needs_node
def test_a_line_is_the_same_in_javascript():
    code = ", ".join(f"(x, y, c) => {_JavaScript()(line)}" for line in LINES)
    values = f"[{code}].map((f) => {json.dumps(POINTS)}.map((point) => f(...point)))"
    script = f"const functions = Math; console.log(JSON.stringify({values}))"
    found = json.loads(subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout)
    np.testing.assert_allclose(found, [[f(*point) for point in POINTS] for f in LINES.values()], rtol=1e-14)


@pytest.mark.parametrize("line", ["x > 0", "atan2(x, y)", "x if y else c", "x @ y", "x >= y"])
def test_anything_else_is_an_error(line: str):
    with pytest.raises(ValueError, match="expected "):
        ScalarWriter()(line)


def test_operands_have_letters():
    assert letters("*, (), * -> *") == ["x", "c", "y"]
    assert all(set(row.letters) <= {"x", "y", "z", "c"} for row in OPERATIONS.values() if row.scalar)


def test_an_operation_is_in_few_files():
    """Its row, the table, the backends, the core's reference, kernels and test, and what PyTorch and JAX call so."""
    files = [path for folder in ("src", "native") for path in (ROOT / folder).rglob("*.*") if path.suffix in CODE]
    assert len(files) > 200
    assert len([path for path in files if "log1p" in path.read_text(encoding="utf-8")]) <= 10


# -- a new operation: what CONTRIBUTING.md lists, in a copy of the package ------------------------

NEW = {
    "program/operations.py": (
        '    _elementwise(\n        "gate",',
        '    _elementwise("softsign", "* -> *", "x / (1 + sqrt(x * x))"),\n    _elementwise(\n        "gate",',
    ),
    "matrix_operations.py": (
        "log1p = ",
        'softsign = _function("softsign", "x / (1 + |x|)")\nlog1p = ',
    ),
    "backends/base.py": (
        "    log = reciprocal = ",
        "    log = softsign = reciprocal = ",
    ),
    "backends/numpy_backend.py": (
        "    def step(",
        "    def softsign(self, X: Array) -> Array:\n        return X / (1 + self.xp.abs(X))\n\n    def step(",
    ),
    "backends/sympy_backend.py": (
        "    reciprocal = ",
        "    softsign = _of_elements(lambda x: x / (1 + abs(x)))\n    reciprocal = ",
    ),
}
USE = """
import numpy as np, torch
from matgrad.backends import get_backend
from matgrad.engines.kernels import Executor
from matgrad.engines.numpy_kernels import NumpyKernels
from matgrad.engines.torch_engine import TorchKernels
from matgrad.explanation.page import _lines
from matgrad.matrix_operations import softsign
from matgrad.program.recorder import record

program = record(lambda recording, m: {"Y": softsign(m["X"])}, {"Y": ((2, 3), "float64"), "X": ((2, 3), "float64")})
print(program)
X = np.linspace(-4, 5, 6).reshape(2, 3)
for kernels, A in ((NumpyKernels(get_backend("numpy")), X), (TorchKernels(get_backend("torch")), torch.tensor(X))):
    state = {"Y": 0 * A}
    Executor(program, kernels, state).execute(X=A)
    np.testing.assert_allclose(state["Y"], X / (1 + abs(X)), rtol=1e-15)
assert 'softsign: { letters: "x", line: (x) => x / (1 + functions.sqrt(x * x)) }' in _lines()
"""
CPP = """
#include <cstdio>
#include "kernels/elementwise.h"
int main() {
    float x[3] = {-4, 0.5, 3}, out[3];
    matgrad::elementwise<float, matgrad::Op::softsign>(out, 3, {x, 1, 3, 3, 1}, {x, 1, 3, 3, 1}, 0);
    for (int j = 0; j < 3; ++j)
        std::printf("%.7g %.7g ", out[j], matgrad::library_value(matgrad::Op::softsign, x[j], 0.0f, 0.0f));
}
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory) -> Path:
    """A copy of the package with the operation softsign."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src" / "matgrad", folder / "src" / "matgrad", ignore=ignored)
    for name, (old, new) in NEW.items():
        path = folder / "src" / "matgrad" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    assert len(NEW) <= 5  # and one row in tests/test_matrix_operations.py
    return folder


def test_a_new_operation_runs_on_all_engines_of_python(changed: Path):
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'src'); sys.meta_path[:] = [x for x in "
               f"sys.meta_path if 'ScikitBuild' not in type(x).__name__]\n{USE}"]  # fmt: skip
    found = subprocess.run(command, cwd=changed, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "softsign(X)" in found.stdout


@needs_compiler
def test_a_new_operation_is_compiled_into_the_core(changed: Path):
    native, generated = ROOT / "native", changed / "generated"
    generate = [sys.executable, native / "generate.py", changed / "src" / "matgrad" / "program", generated / "matgrad"]
    subprocess.run(generate, check=True)
    (changed / "new.cpp").write_text(CPP, encoding="utf-8")
    folders = [f"-I{folder}" for folder in (native / "include", native / "src", native / "src" / "kernels", generated)]
    flags = ["-std=c++20", "-O1", "-DMATGRAD_ISA=baseline"]
    subprocess.run(["c++", *flags, *folders, changed / "new.cpp", "-o", changed / "new"], check=True)
    found = subprocess.run([changed / "new"], capture_output=True, text=True, check=True).stdout.split()
    expected = [x / (1 + abs(x)) for x in (-4, 0.5, 3) for _ in range(2)]
    np.testing.assert_allclose([float(x) for x in found], expected, rtol=1e-6)
