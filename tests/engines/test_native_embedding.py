"""The C++ core in programs of others: found when installed, or a part of their build; and the help of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from native_support import CMAKE, NATIVE, needs_compiler, run
from safetensors.numpy import save_file

import matgrad as mg
from cli_support import succeed

EXAMPLE = NATIVE.parent / "examples" / "embed"

pytestmark = needs_compiler


def check_example(folder: Path, *options: str | Path) -> None:
    """Build the example, and compare what it prints with the model."""
    run([CMAKE, "-S", EXAMPLE, "-B", folder / "build", *options])
    run([CMAKE, "--build", folder / "build", "--target", "embed", "-j2"])
    mg.manual_seed(0)
    M = mg.create_model("ReLU;Linear", "4;5;3", densities="0.5;1")
    M.save(folder / "model.npz")
    program = folder / "feedforward.safetensors"
    arguments = ("--feedforward", "--batch-size", 1, "--save", program)
    succeed("program", "--load-weights", folder / "model.npz", *arguments)
    printed = run([folder / "build" / "embed", program, 1, -2, 0.5, 3])
    expected = M.predict(np.array([[1, -2, 0.5, 3]], "float32"))
    np.testing.assert_allclose(np.array(printed.split(), float), expected[0], rtol=1e-5)
    bad = subprocess.run([folder / "build" / "embed", folder / "model.npz"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: ")


def test_an_installed_core_is_found(binaries: Path, tmp_path: Path):
    """By a project that asks for C++17: the target says that it needs C++20."""
    run([CMAKE, "--install", binaries, "--component", "cpp", "--prefix", tmp_path / "prefix"])
    headers = {path.name for path in (tmp_path / "prefix/include/matgrad").iterdir()}
    assert {"program.h", "safetensors.h", "operation_list.h"} < headers
    assert "table.h" not in headers
    check_example(tmp_path, f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", "-DCMAKE_CXX_STANDARD=17")
    version = (tmp_path / "prefix").rglob("matgradConfigVersion.cmake")
    assert f'"{mg.__version__}"' in next(version).read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_core_is_a_part_of_another_build(tmp_path: Path):
    """Of which neither its tests nor its Python module are a part."""
    check_example(tmp_path, f"-DMATGRAD_SOURCE={NATIVE.parent}")
    assert not list(tmp_path.rglob("train"))


def test_the_example_is_short():
    assert len((EXAMPLE / "embed.cpp").read_text().splitlines()) <= 32


@pytest.mark.parametrize("name", ["train", "predict"])
def test_the_programs_have_a_help(binaries: Path, name: str):
    """With all of their options, whatever else is on the command line."""
    text = run([binaries / name, "--help", "--unknown"])
    assert text.startswith(f"usage: {name} PROGRAM DATA RESULT")
    usage, _, explanation = text.partition("\n\n")
    assert set(re.findall(r"--\w+", usage)) == set(re.findall(r"^  (--\w+)", explanation, re.MULTILINE))
    assert run([binaries / name, "-h"]) == text


def test_the_values_that_take_the_most_are_printed(binaries: Path, tmp_path: Path):
    save_file(
        {"X": np.random.default_rng(0).normal(size=(40, 30)).astype("float32"), "t": np.arange(40) % 3},
        tmp_path / "data.safetensors",
    )
    mg.create_model("ReLU;Linear", "30;20;3").save(tmp_path / "model.npz")
    step = tmp_path / "step.safetensors"
    succeed("program", "--load-weights", tmp_path / "model.npz", "--batch-size", 10, "--save", step)
    output = run([binaries / "train", step, tmp_path / "data.safetensors", tmp_path / "new", "--timer", 3])
    lines = [line for line in output.splitlines() if " s " in line and "%" in line]
    assert len(lines) == 3
    assert all(re.match(r" *\d\.\d{4} s +\d+\.\d %  \w+ .*: .*\w", line) for line in lines), lines
