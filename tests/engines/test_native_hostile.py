"""Files that should break the C++ core, and do not: each is refused in one line, or runs, in little time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from native_hostile import CASES, Program, entry, packed, saved, write_case
from native_support import needs_compiler
from safetensors.numpy import save_file

from matgrad.backends import get_backend
from matgrad.engines.kernels import Executor
from matgrad.engines.native import NativeExecutor
from matgrad.engines.numpy_kernels import NumpyKernels
from matgrad.storage.programs import load_program
from support import PATIENCE

pytestmark = needs_compiler

MEMORY = 500 << 20
SECONDS = 5  # of the processor
HARMLESS = {  # these run: nothing is wrong with them, or only their numbers are odd
    "sum of 65536 equal rows",
    "product with 65536 inner elements",
    "sparse product with 65536 examples",
    *("X of shape [2, 3]", "T of shape [2, 3]", "eta of shape []"),
    *(f"number {x}" for x in (1.5, 1e30, "nan", -(2**63), 2**63)),
    *(f"{kind} {-(2**63)}" for kind in ("seed", "counter")),
    *("nested views", "many tasks"),
}


def outcome(binary: Path, *words: object, **environment: str) -> tuple[int, str]:
    """The exit status, and the error: one line, in 5 seconds and 500 MB of addresses."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    command = [binary, *map(str, words)]
    found = subprocess.run(
        command, capture_output=True, timeout=PATIENCE, preexec_fn=limit, env=os.environ | environment
    )
    error = found.stderr.decode()
    assert found.returncode in (0, 2), f"{found.returncode}\n{error}"
    assert (found.returncode == 0) == (error == ""), error
    if error:
        assert error.startswith("error: "), error
        assert error.count("\n") == 1, error
        assert len(error) < 1000, error
    return found.returncode, error


def some(names: Iterable[str]) -> list:
    """The names as parameters, of which every sixth is tried by `make test`, and all by `make test-all`."""
    return [pytest.param(name, marks=[pytest.mark.slow] if i % 6 else []) for i, name in enumerate(names)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    save_file({"X": np.ones((40, 3), np.float32), "t": np.arange(40) % 3}, path)
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in which nothing is wrong."""
    path = tmp_path / "program"
    path.write_bytes(saved(json.dumps(Program().content()), {}))
    return path


def refused(binary: Path, *words: object, **environment: str) -> str:
    status, error = outcome(binary, *words, **environment)
    assert status == 2
    return error


@pytest.mark.parametrize("name", some(CASES))
def test_hostile_programs_are_refused(binaries: Path, data: Path, tmp_path: Path, name: str):
    path = tmp_path / "hostile"
    write_case(name, path)
    status, error = outcome(binaries / "train", path, data, tmp_path / "result", "--threads", 2)
    assert status == (0 if name in HARMLESS else 2), error
    assert status == 0 or f"error: {path}: " in error or f"error: {data}: " in error, error


def test_messages_name_the_thing(binaries: Path, data: Path, tmp_path: Path):
    for name, message in {
        "buffer of 8 GB": "buffer 3: the program asks for 7.45 GB of memory, expected at most 256 MB; the environment",
        f"sum of {2**31 - 1} equal rows": "value 4: the program asks for 6.44e+09 multiplications",
        "support without columns": "no tensor S.columns in it; found S.starts",
        "support with other dtypes": "S: expected int64, found int32",
        "eta of float64": "found one without a scalar eta of float32",
        "name in two lines": "no tensor two\\u000alines.b in it",
    }.items():
        write_case(name, tmp_path / "hostile")
        assert message in refused(binaries / "train", tmp_path / "hostile", data, tmp_path / "result")


def test_limits_can_be_changed(binaries: Path, data: Path, tmp_path: Path):
    write_case("sum of 65536 equal rows", tmp_path / "hostile")
    words = (binaries / "train", tmp_path / "hostile", data, tmp_path / "result")
    assert "asks for" in refused(*words, MATGRAD_WORK_LIMIT="100K")
    assert outcome(*words, MATGRAD_WORK_LIMIT="1M")[0] == 0
    assert "the file asks for" in refused(*words, MATGRAD_MEMORY_LIMIT="0.5 kB")
    assert "the program asks for" in refused(*words, MATGRAD_MEMORY_LIMIT="20K")
    assert outcome(*words, MATGRAD_MEMORY_LIMIT="2MB")[0] == 0
    for limit in ("much", "-1", "1e99", "8X"):
        assert "MATGRAD_MEMORY_LIMIT: expected a number such as" in refused(*words, MATGRAD_MEMORY_LIMIT=limit)


# -- safetensors files -------------------------------------------------------------------------


X, t = np.ones((40, 3), np.float32).tobytes(), (np.arange(40) % 3).tobytes()
ENTRIES = {"X": entry("F32", [40, 3], 0, 480), "t": entry("I64", [40], 480, 800)}
FILES = {
    "empty": b"",
    "zeros": bytes(100),
    "no header": packed(b""),
    "header beyond the file": packed(ENTRIES, X + t, 10**6),
    "header of 2⁶⁴ - 1 bytes": packed(ENTRIES, X + t, 2**64 - 1),
    "header of 20 MB": packed(json.dumps(ENTRIES).encode().ljust(20 << 20), X + t),
    "header that is cut off": packed(json.dumps(ENTRIES).encode()[:50], X + t),
    "header that is not UTF-8": packed(b'{"\xff": 1}'),
    "header with half a character": packed(b'{"\xe2\x82'),
    "metadata that are numbers": packed(ENTRIES | {"__metadata__": {"a": 1}}, X + t),
    "tensor twice": packed(b'{"X": 1, "X": 2}'),
    "tensor without a shape": packed({"X": {"dtype": "F32", "data_offsets": [0, 0]}}),
    "overlapping tensors": packed(ENTRIES | {"t": entry("I64", [40], 160, 480)}, X),
    "hole before a tensor": packed({"X": entry("F32", [40, 3], 8, 488)}, bytes(8) + X),
    "bytes after the tensors": packed(ENTRIES, X + t + bytes(8)),
    "data that is cut off": packed(ENTRIES, X + t[:-1]),
    "offsets that are too large": packed({"X": entry("F32", [2**40, 3], 0, 3 * 2**42)}, X),
    "negative offsets": packed({"X": entry("F32", [40, 3], -480, 0)}, X),
    "offsets that are fractions": packed({"X": entry("F32", [40, 3], 0.0, 480.0)}, X),
    "shape whose product is too large": packed({"X": entry("F32", [2**32, 2**32], 0, 0)}),
    "shape whose product is right modulo 2⁶⁴": packed({"X": entry("F32", [2**62 + 30, 4], 0, 480)}, X),
    "shape with a negative size": packed({"X": entry("F32", [-40, -3], 0, 480)}, X),
    "shape for another size": packed({"X": entry("F32", [40, 2], 0, 480)}, X),
    "unknown dtype": packed({"X": entry("Q4", [40, 3], 0, 480)}, X),
    "no examples": packed({"X": entry("F32", [0, 3], 0, 0), "t": entry("I64", [0], 0, 0)}),
    "examples in three dimensions": packed(
        {"X": entry("F32", [40, 3, 1], 0, 480), "t": entry("I64", [40], 480, 800)}, X + t
    ),
    "examples that are whole numbers": packed(
        {"X": entry("I32", [40, 3], 0, 480), "t": entry("I64", [40], 480, 800)}, X + t
    ),
    "classes that are fractions": packed(
        {"X": entry("F32", [40, 3], 0, 480), "t": entry("F64", [40], 480, 800)}, X + t
    ),
    "classes that are too large": packed(ENTRIES, X + (np.arange(40) + 2**62).tobytes()),
    "100,000 tensors": packed({f"x{i}": entry("F32", [], 4 * i, 4 * i + 4) for i in range(100_000)}, bytes(400_000)),
}


@pytest.mark.parametrize("name", some(FILES))
def test_hostile_files_are_refused(binaries: Path, data: Path, program: Path, tmp_path: Path, name: str):
    path = tmp_path / "hostile"
    path.write_bytes(FILES[name])
    assert str(path) in refused(binaries / "train", program, path, tmp_path / "result", "--threads", 2)
    assert str(path) in refused(binaries / "train", path, data, tmp_path / "result", "--threads", 2)


def test_the_files_would_be_right_without_their_faults(binaries: Path, program: Path, tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(packed(ENTRIES, X + t))
    assert outcome(binaries / "train", program, path, tmp_path / "result", "--threads", 2) == (0, "")


def test_what_is_not_a_file_is_refused(binaries: Path, data: Path, program: Path, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.write(packed({"X": entry("F32", [2**40, 1], 0, 2**42)}))
        file.truncate(2**42)
    for path, message in {
        tmp_path: "cannot be read",
        "/dev/zero": "cannot be read",
        tmp_path / "pipe": "cannot be read",
        tmp_path / "missing": "no such file",
        f"{data}/x": "no such file",
        "": "no such file",
        "x" * 500: "no such file",
        "/proc/self/mem": "not a safetensors file",
        tmp_path / "large": "the file asks for",
    }.items():
        assert message in refused(binaries / "train", program, path, tmp_path / "result")
        assert message in refused(binaries / "predict", path, data, tmp_path / "result")


# -- the same from Python ------------------------------------------------------------------------


@pytest.mark.parametrize("name", some(CASES))
def test_hostile_programs_do_not_crash_python(name: str, tmp_path: Path, monkeypatch):
    """What `load_program` accepts gives in the core what it gives in NumPy, or raises ValueError."""
    monkeypatch.setenv("MATGRAD_MEMORY_LIMIT", "64M")
    monkeypatch.setenv("MATGRAD_WORK_LIMIT", "100M")
    path = tmp_path / "hostile"
    write_case(name, path, output=True)
    try:
        program, state = load_program(path)
        core = NativeExecutor(program, None, state)
    except ValueError:
        return
    inputs = {key: np.ones(x.shape, x.dtype) for key, x in program.inputs.items()}
    like = np.zeros((1, 1), np.float32)
    expected = Executor(program, NumpyKernels(get_backend("numpy")), {"like": like} | state).execute(**inputs)["out"]
    np.testing.assert_allclose(core.execute(**inputs)["out"], expected, rtol=1e-5)
