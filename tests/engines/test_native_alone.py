"""The C++ core without Python: the example program trains what was saved, and the sanitizers find nothing in it."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
from native_seeds import save_seeds
from native_support import build, needs_compiler, run
from safetensors.numpy import load_file, save_file

import matgrad as mg
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import default_loss
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.specifications.models import create_model
from matgrad.storage.programs import save_program

SIZES = "30;25;18;7"
SPARSE = {"layers": "ReLU;HyperbolicTangent;Linear", "densities": "0.2;0.5;1", "optimizers": "Adam"}
MODELS = {
    "dense": {"layers": "ReLU;GELU;Linear", "optimizers": "Momentum(0.9)"},
    "sparse": SPARSE,
    "sparse, few examples": SPARSE,
    "rows": {"layers": "ReLU;LayerNormalization;ReLU;RMSNormalization;Linear"},
    "mixed": {"layers": "ReLU;BatchNormalization;SReLU;LogSoftmax", "densities": "0.3;1;0.5", "dropouts": "0.2"},
    "images": {
        "layers": "Conv(4, 3, padding=1, act=ReLU);MaxPool(2, padding=1);Conv(4, 2, groups=2);AvgPool(2);ReLU;Linear",
        "sizes": "5x6x1;18;7",
    },
    "tokens": {
        "layers": "Residual(Each(LayerNormalization;Linear(18));Rotary(1);Attention(1);Each(Linear(6)));"
        "Residual(Each(RMSNormalization;Gated(SiLU(5);Linear(5));Linear(6)));Function(GELU);Linear",
        "sizes": "5x6;7",
    },
}

pytestmark = needs_compiler


def save(kind: str, dtype: str, folder: Path) -> dict[str, np.ndarray]:
    """Files with a program and with data; the state after an epoch of the equations, one by one."""
    mg.manual_seed(1)
    M = create_model(**{"sizes": SIZES} | MODELS[kind]).to(dtype=dtype).train()
    rng = np.random.default_rng(2)
    N = 20 if kind.endswith("few examples") else 100  # so few are not split by examples
    X, t = rng.normal(size=(5 * N, M.layers[0].input_size)).astype(dtype), rng.integers(0, 7, 5 * N)
    step, state = make_step(M, default_loss(M)), M.state()
    T = mg.one_hot(t, 7, like=X)
    save_program(optimized(record_computation(step, state, X[:N], T[:N])), folder / "program.safetensors", state)
    save_file({"X": X, "t": t.astype(np.int64)}, folder / "data.safetensors")
    for i in range(0, len(X), N):
        state = step(state, X[i : i + N], T[i : i + N], M.scalar(0.05))
    return state


def check_training(binary: Path, kind: str, dtype: str, folder: Path, **environment: str) -> None:
    expected = save(kind, dtype, folder)
    files = [folder / name for name in ("program.safetensors", "data.safetensors", "result.safetensors")]
    output = run([binary, *files, "--rate", "0.05", "--threads", "3"], **environment)
    assert output.startswith("epoch 1: 5 batches of ")
    result = load_file(files[2])
    assert result.keys() == load_file(files[0]).keys()
    for name, A in matrices_of(expected).items():
        scale = max(np.abs(A).max(), 1e-6)
        assert np.abs(result[name] - A).max() <= (1e-4 if dtype == "float32" else 1e-9) * scale, f"{kind} {name}"


@pytest.mark.parametrize("name", ["kernels_test", "program_test", "thread_pool_test"])
def test_the_tests_of_the_core(binaries: Path, name: str):
    """The kernels of every instruction set against the table on Eigen, what programs are refused, and the threads."""
    assert run([binaries / name]).splitlines()[-1].endswith(": ok")


@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_program_is_trained_without_python(binaries: Path, kind: str, tmp_path: Path):
    check_training(binaries / "train", kind, "float32", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("sanitizers", "mutants"), [("thread", 1000), ("address,undefined", 20_000)])
def test_sanitizers_find_nothing(sanitizers: str, mutants: int, tmp_path: Path):
    """In the tests of the core, in training, and in damaged files, which may not ask for 500 MB at once."""
    environment = {
        "TSAN_OPTIONS": "halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "ASAN_OPTIONS": "max_allocation_size_mb=500",
    }
    folder, seeds = build(tmp_path / "build", sanitizers), tmp_path / "seeds"
    for name in ("kernels_test", "program_test", "thread_pool_test"):
        run([folder / name], **environment)
    for kind in MODELS:
        check_training(folder / "train", kind, "float32", tmp_path, **environment)
    seeds.mkdir()
    save_seeds(seeds)
    for first in range(0, mutants, 1000):
        run([folder / "fuzz_test", seeds, first, first + 1000], **environment)


EMULATOR = "qemu-x86_64-static"  # Debian: qemu-user-static


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which(EMULATOR) is None, reason=f"needs {EMULATOR}")
@pytest.mark.parametrize(("processor", "sets"), [("qemu64", ["baseline"]), ("Haswell", ["baseline", "avx2"])])
def test_processors_without_the_newest_instructions(binaries: Path, processor: str, sets: list[str]):
    """An instruction that the processor does not have would end the program, also one before main."""
    assert run([EMULATOR, "-cpu", processor, binaries / "kernels_test"]).splitlines() == [*sets, "kernels: ok"]
    assert run([EMULATOR, "-cpu", processor, binaries / "program_test"]).splitlines() == ["program: ok"]


OTHER_COMPILERS = {  # the programs that are needed, options of CMake, and how a test is run
    "64-bit ARM": (  # Debian: g++-aarch64-linux-gnu, qemu-user-static
        ("aarch64-linux-gnu-g++", "qemu-aarch64-static"),
        ("-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",),
        lambda test: ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", test, "without forks"],
    ),
    "Windows": (  # Debian: g++-mingw-w64-x86-64-posix, wine64
        ("x86_64-w64-mingw32-g++-posix", "wine"),
        (
            "-DCMAKE_SYSTEM_NAME=Windows",
            "-DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix",
            "-DCMAKE_EXE_LINKER_FLAGS=-static",
        ),
        lambda test: ["wine", f"{test}.exe"],
    ),
    "clang": (  # Debian: clang, libc++-dev, libc++abi-dev
        ("clang++",),
        ("-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_CXX_FLAGS=-stdlib=libc++"),
        lambda test: [test],
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", OTHER_COMPILERS)
def test_kernels_and_programs_by_other_compilers(kind: str, tmp_path: Path):
    """For 64-bit ARM with its vectors and for Windows, run by emulators; the compiler alone tells the target."""
    needed, options, command = OTHER_COMPILERS[kind]
    if not all(map(shutil.which, needed)):
        pytest.skip(f"needs {' and '.join(needed)}")
    folder = build(tmp_path / "build", options=options)
    for name in ("kernels_test", "program_test", "thread_pool_test"):
        output = run(command(folder / name), WINEPREFIX=str(tmp_path / "wine"), WINEDEBUG="-all")
        assert output.splitlines()[-1].endswith(": ok")
