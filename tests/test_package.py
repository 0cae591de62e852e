"""The package: what importing it brings along, what is exported, and frameworks that are missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import matgrad as mg
from matgrad.foundation.imports import how_to_install
from support import PATIENCE

SOURCE = Path(mg.__file__).parent
FRAMEWORKS = ("torch", "jax", "jaxlib", "tensorflow", "keras", "sympy", "sklearn", "onnx", "h5py")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_and_training_on_numpy_imports_no_framework():
    code = """
import sys, numpy as np, matgrad as mg
imported = {m.partition('.')[0] for m in sys.modules}
M = mg.MultilayerPerceptron([mg.ActivationDropoutLayer(3, 2, mg.GELUActivation(), dropout=0.5)])
M.fit(np.zeros((4, 3)), np.array([0, 1, 0, 1]), epochs=1)
print(*imported)
print(*{m.partition('.')[0] for m in sys.modules})
"""
    imported, trained = (set(line.split()) for line in python(code).splitlines())
    assert "numpy" in imported
    assert not {*FRAMEWORKS, "scipy", "pyarrow"} & imported
    assert not set(FRAMEWORKS) & trained


def test_training_needs_numpy_and_scipy_alone():
    """What the command line and files need is not needed to train, as from the source tree on a machine with a GPU."""
    code = """
import sys, numpy as np
for module in ("click", "latex2mathml", "msgspec", "pyarrow", "rich", "safetensors", "threadpoolctl", "yaml"):
    sys.modules[module] = None  # as if it were not installed
import matgrad as mg
for name in ("numpy", "torch"):
    M = mg.create_model("ReLU;Linear", [30, 20, 2], densities=[0.3, 1]).to(name)
    M.fit(np.zeros((4, 30), "float32"), np.array([0, 1, 0, 1]), epochs=1, verbose=True)
"""
    assert "loss" in python(code)


def test_no_file_imports_a_framework_except_its_backend():
    importing = re.compile(rf"^\s*(?:import|from)\s+({'|'.join(FRAMEWORKS)})\b", re.MULTILINE)
    found = {path.relative_to(SOURCE).as_posix(): importing.findall(path.read_text()) for path in SOURCE.rglob("*.py")}
    allowed = {f"backends/{name}_backend.py" for name in ("torch", "jax", "tensorflow", "sympy")}
    allowed |= {f"engines/{name}.py" for name in ("torch_engine", "jit", "xla")}
    allowed |= {f"distributed/{name}.py" for name in ("torch_group", "jax_group")}
    allowed |= {f"writers/{name}.py" for name in ("torch_tensors", "torch_code", "torch_running")}
    allowed |= {f"writers/{name}.py" for name in ("jax_code", "jax_primitives")}
    allowed |= {"sklearn/estimators.py"}
    allowed |= {"datasets/svmlight_file.py"}
    exchange = ("torch_models", "torch_reading", "torch_shapes", "onnx_models", "onnx_graph", "onnx_shapes")
    allowed |= {f"exchange/{name}.py" for name in (*exchange, "keras_models", "csr")}
    importing_files = {path for path, names in found.items() if names}
    allowed |= {f"judges/{name}.py" for name in ("equality", "state", "sympy_judge")}
    assert {path for path in importing_files if not path.startswith("engines/cuda/")} == allowed
    assert all(set(found[path]) == {"torch"} for path in importing_files if path.startswith("engines/cuda/"))


def test_a_missing_framework_or_tool_names_the_extra_to_install():
    code = """
import sys
for module in ("torch", "jax", "tensorflow", "sympy", "onnx", "keras", "h5py"):
    sys.modules[module] = None  # as if it were not installed
import matgrad as mg
M = mg.MultilayerPerceptron([mg.LinearLayer(2, 1)])
calls = [lambda name=name: M.to(name) for name in ("torch", "jax", "tensorflow", "sympy")]
calls += [lambda: mg.to_torch(M), lambda: mg.from_onnx("a"), lambda: mg.to_keras(M), lambda: mg.from_keras("a")]
for call in calls:
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
"""
    messages = python(code).splitlines()
    extras = {"torch": "torch", "jax": "jax", "tensorflow": "tensorflow", "sympy": "symbolic"}
    for message, (module, extra) in zip(messages[:4], extras.items(), strict=True):
        assert message == f"the backend {module!r} needs {module}, which is not installed: {how_to_install(extra)}"
    packages = (("torch", "torch"), ("onnx", "onnx"), ("h5py", "keras"), ("h5py", "keras"))
    expected = [
        f"such models need {package}, which is not installed: {how_to_install(extra)}" for package, extra in packages
    ]
    assert messages[4:] == expected


def test_without_the_core_everything_else_works():
    """As where the package was installed without a C++ compiler."""
    code = """
import sys
sys.modules["matgrad._native"] = None
import matgrad as mg
X, t = mg.load_digits()
M = mg.MultilayerPerceptron([mg.LinearLayer(64, 10)])
M.fit(X, t, epochs=1)
try:
    M.to("native")
except ModuleNotFoundError as error:
    print(error)
print(M.backend.name)
"""
    message, unchanged = python(code).splitlines()
    assert "'native' needs matgrad._native, which is not installed: install a C++ compiler" in message
    assert unchanged == "numpy"


def test_jax_refuses_float64_unless_it_is_switched_on():
    code = """
import matgrad as mg
M = mg.MultilayerPerceptron([mg.LinearLayer(2, 1)])
try:
    M.to("jax", dtype="float64")
except ValueError as error:
    print(error)
print(M.backend.name, M.dtype)
"""
    message, unchanged = python(code).splitlines()
    assert "jax.config.update('jax_enable_x64', True)" in message
    assert unchanged == "numpy float32"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or find_spec("pip") is None, reason="needs pip, and a program that fails")
def test_a_wheel_without_the_core_says_so(tmp_path: Path):
    options = ["--no-deps", "--verbose", "--wheel-dir", tmp_path]
    command = [sys.executable, "-m", "pip", "wheel", *options, SOURCE.parents[1]]
    done = subprocess.run(command, env=os.environ | {"CXX": "false"}, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "this wheel of matgrad lacks the C++ core" in done.stdout + done.stderr
    assert [path.name.endswith("-none-any.whl") for path in tmp_path.iterdir()] == [True]


def test_test_files_have_names_of_their_own():
    """Else pytest cannot import them in one process; those of a package, such as gpu, have its name too."""
    files = (path for path in Path(__file__).parent.rglob("test_*.py") if not (path.parent / "__init__.py").exists())
    assert [name for name, number in Counter(path.name for path in files).items() if number > 1] == []
