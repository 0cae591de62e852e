"""docs/program-format.md: its page follows from the rows, and its interpreter computes what the equations compute."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import matgrad as mg
from architectures import random_architecture
from matgrad.layers.state import matrices_of
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.description import DEEPEST, FORMAT, LARGEST, MOST, as_dictionary
from matgrad.program.operations import OPERATIONS
from matgrad.sparse.support import Support
from matgrad.storage.models import INDEX
from matgrad.storage.programs import save_program
from torch_networks import examples_of, random_network

ROOT = Path(__file__).parents[2]
FILE = ROOT / "src/matgrad/program/interpreter.py"
INTERPRETER = runpy.run_path(str(FILE))
SPARSE = {"densities": "0.4;0.5;1", "dropouts": "0.3;0;0.2", "optimizers": "Adam"}
sys.path.insert(0, str(ROOT / "docs/site"))
import program_format  # noqa: E402

PAGE = program_format.PAGE.read_text()
FIELDS = set(re.findall(r"^\| `(\w+)` \| [^|]+\|$", PAGE, re.MULTILINE))  # in tables of two columns


def test_the_page_is_what_the_rows_say():
    assert program_format.page() == PAGE, "run python docs/site/program_format.py"
    assert f"to {LARGEST}; a program has at most {MOST} values, and at most {DEEPEST} views" in PAGE
    assert f"| `format` | {FORMAT};" in PAGE


def test_the_interpreter_has_the_operations_and_their_lines():
    computed = {name: row for name, row in OPERATIONS.items() if row.kind not in ("source", "collective")}
    assert INTERPRETER["OPERATIONS"].keys() == computed.keys()
    lines = program_format.lines()
    for name, row in computed.items():
        if row.scalar:
            assert lines[name] == (row.letters, ast.unparse(ast.parse(row.scalar))), name


def given(state: dict, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """What a program is given: matrices, and the parts of supports."""
    supports = {name: S for name, S in state.items() if isinstance(S, Support)}
    parts = {f"{name}.{part}": getattr(S, part) for name, S in supports.items() for part in INDEX}
    return state | inputs | parts


def check_step(M: mg.MultilayerPerceptron, loss: mg.LossFunction, X: np.ndarray, T: np.ndarray, fused: bool) -> None:
    step, state, eta = make_step(M, loss), M.state(), M.scalar(0.05)
    program = record_computation(step, state, X, T)
    program = optimized(program) if fused else program
    description = json.loads(json.dumps(as_dictionary(program)))
    assert {key for line in (description, *description["values"]) for key in line} <= FIELDS
    with np.errstate(all="ignore"):
        fixed = {x.name: x.support for x in program.supports.values() if x.support is not None}
        found = INTERPRETER["outputs"](description, given(state | fixed, X=X, T=T, eta=eta))
    expected = matrices_of(step(state, X, T, eta))
    assert found.keys() == expected.keys()
    for name, A in expected.items():
        np.testing.assert_allclose(found[name], A, rtol=1e-9, atol=1e-13, err_msg=f"{M!r} {name}")


@pytest.mark.parametrize("seed", range(0, 30, 2))
def test_the_interpreter_computes_a_step(seed: int):
    """Of all layers, activation functions, losses and optimizers."""
    a = random_architecture(seed)
    check_step(a.M, a.loss, a.X, a.T, fused=seed % 4 == 0)


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_the_interpreter_computes_a_step_of_images_and_tokens(seed: int):
    M = mg.create_model(*random_network(seed)).to(dtype="float64")
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(4, M.layers[-1].output_size))
    check_step(M, mg.SquaredErrorLoss(), examples_of(M, 4, rng), T, fused=seed % 12 == 0)


def test_the_interpreter_trains_from_files(tmp_path: Path):
    """A sparse step in float32, with dropout, as the readers of the format see it."""
    mg.manual_seed(1)
    M = mg.create_model("ReLU;Sigmoid;Linear", "6;9;7;3", **SPARSE)
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(5, 6)).astype("float32"), np.eye(3, dtype="float32")[rng.integers(0, 3, 5)]
    step, batch, new = (str(tmp_path / f"{name}.safetensors") for name in ("step", "batch", "new"))
    save_program(M.program(batch_size=5), step, M)
    save_file({"X": X, "T": T, "eta": np.array(0.1, "float32")}, batch)
    subprocess.run([sys.executable, FILE, step, batch, new], check=True, timeout=60)
    expected = matrices_of(make_step(M, mg.SoftmaxCrossEntropyLoss())(M.state(), X, T, M.scalar(0.1)))
    for name, A in load_file(new).items():
        np.testing.assert_allclose(A, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)
