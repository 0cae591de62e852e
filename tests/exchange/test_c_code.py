"""One file of C: it compiles without a warning, predicts and trains as the equations do, and sanitizers are silent."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from architectures import random_architecture
from cli_support import run, succeed
from matgrad.exchange.c_code import save_c
from matgrad.layers.state import matrices_of
from matgrad.program.computations import make_step
from matgrad.storage.golden import compared, save_golden
from support import PATIENCE
from torch_networks import examples_of, random_network

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
MAIN = """
#include <stdio.h>
#include "net.c"
#define COUNT(x) (sizeof(x) / sizeof(*x))
typedef %(type)s real;
static real X[NET_N * NET_INPUTS], Y[NET_N * NET_OUTPUTS], T[NET_N * TARGETS];
static void take(void *to, size_t size) { if (fread(to, size, 1, stdin) != 1) printf("no input"); }
int main(void) {
    %(load)s
    for (int step = 0; step < STEPS; step++) {
        take(X, sizeof X);
        take(T, sizeof T);
        net_predict(X, Y);
        fwrite(Y, sizeof Y, 1, stdout);
        %(train)s
    }
    %(state)s
    return 0;
}
"""


def executed(
    folder: Path, M: mg.MultilayerPerceptron, batches: list, options: tuple[str, ...] = SANITIZERS, trains: bool = True
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """The predictions before each batch, and the state at the end, by net.c in a folder."""
    state = matrices_of(M.state()) if trains else {}
    state = {
        name: A for name, A in state.items() if f" net_{name.replace('.', '_')}[" in (folder / "net.c").read_text()
    }
    is_apart = (folder / "net.bin").exists()
    names = [f"net_{name.replace('.', '_')}" for name in state]
    weights = (
        f"static char w[{(folder / 'net.bin').stat().st_size}]; take(w, sizeof w); net_load(w);" if is_apart else ""
    )
    main = MAIN % {
        "type": {"float32": "float", "float64": "double"}[M.dtype],
        "load": weights,
        "train": f"net_train(X, T, ({'float' if M.dtype == 'float32' else 'double'})0.05);" if trains else "",
        "state": "\n".join(f"fwrite({x}, sizeof {x}, 1, stdout);" for x in names),
    }
    (folder / "main.c").write_text(main)
    sizes = (f"-DTARGETS={batches[0][1].shape[1]}", f"-DSTEPS={len(batches)}")
    command = ["gcc", *WARNINGS, *options, *sizes, "main.c", "-o", "main", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    given = (folder / "net.bin").read_bytes() if weights else b""
    given += b"".join(A.astype(M.dtype).tobytes() for batch in batches for A in batch)
    result = subprocess.run([folder / "main"], input=given, capture_output=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr.decode()
    return unpacked(result.stdout, M, batches, state)


def unpacked(content: bytes, M, batches, state) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """The outputs, and the matrices of the state, one after the other."""
    shape, place, Y, found = (len(batches[0][0]), M.layers[-1].output_size), 0, [], {}

    def next_matrix(shape, dtype):
        nonlocal place
        count = int(np.prod(shape))
        A = np.frombuffer(content, dtype, count, place).reshape(shape)
        place += A.nbytes
        return A

    Y = [next_matrix(shape, M.dtype) for _ in batches]
    found = {name: next_matrix(A.shape, np.asarray(A).dtype) for name, A in state.items()}
    assert place == len(content)
    return Y, found


def check(M, loss, batches, folder: Path, options: tuple[str, ...] = SANITIZERS, written_for: int = 0) -> None:
    """Predictions and steps of C against the equations in float64."""
    save_c(M, folder / "net.c", loss=loss, batch_size=written_for or len(batches[0][0]))
    Y, found = executed(folder, M, batches, options)
    step, state = make_step(M, loss), M.state()
    assert found
    for (X, T), own in zip(batches, Y, strict=True):
        model = M.clone()
        model.load_state(state)
        np.testing.assert_allclose(own, model.eval().predict(X), rtol=1e-9, atol=1e-12, err_msg=repr(M))
        state = step(state, X, T, M.scalar(0.05))
    for name, A in found.items():
        np.testing.assert_allclose(A, matrices_of(state)[name], rtol=1e-8, atol=1e-11, err_msg=f"{name} of {M!r}")


ALL = range(30)
CHOSEN = (1, 8, 14, 21)


@pytest.mark.parametrize("seed", [s if s in CHOSEN else pytest.param(s, marks=pytest.mark.slow) for s in ALL])
def test_random_models_are_trained(seed: int, tmp_path: Path):
    a = random_architecture(seed)
    check(a.M, a.loss, [(a.X, a.T), (a.X[::-1] + 0.1, a.T[::-1])], tmp_path)


@pytest.mark.parametrize("seed", [s if s in (2, 11) else pytest.param(s, marks=pytest.mark.slow) for s in ALL])
def test_networks_of_images_and_tokens_are_trained(seed: int, tmp_path: Path):
    M = mg.create_model(*random_network(seed)).to(dtype="float64")
    rng = np.random.default_rng(seed)
    batches = [(examples_of(M, 3, rng), rng.normal(size=(3, M.layers[-1].output_size))) for _ in range(2)]
    check(M, mg.SquaredErrorLoss(), batches, tmp_path)


def test_sparse_models_are_trained_for_any_number_of_examples(tmp_path: Path):
    """With dropout and a normalization, by a file that was written for other numbers of examples."""
    mg.manual_seed(0)
    M = mg.create_model(
        "ReLU;Sigmoid;Linear", "6;9;7;3", densities="0.4;0.5;1", dropouts="0.3;0;0.2", optimizers="Adam"
    )
    M.to(dtype="float64")
    rng = np.random.default_rng(2)
    batches = [(rng.normal(size=(5, 6)), np.eye(3)[rng.integers(0, 3, 5)]) for _ in range(3)]
    check(M, mg.SoftmaxCrossEntropyLoss(), batches, tmp_path, (*SANITIZERS, "-DNET_N=5"), written_for=2)
    assert "NET_N * " in (tmp_path / "net.c").read_text()
    assert "malloc" not in (tmp_path / "net.c").read_text()


def test_float32_is_within_the_bounds_of_rounding(tmp_path: Path):
    mg.manual_seed(1)
    M = mg.create_model("GELU;LayerNormalization;Softmax", "20;30;4", optimizers="Momentum(0.9)")
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(6, 20)).astype("float32"), np.eye(4, dtype="float32")[rng.integers(0, 4, 6)]
    loss = mg.CrossEntropyLoss()
    save_golden(M.program(loss=loss, batch_size=6), tmp_path / "golden", M.state(), {"X": X, "T": T, "eta": 0.05})
    save_c(M, tmp_path / "net.c", loss=loss, batch_size=6)
    _, found = executed(tmp_path, M, [(X, T)])
    np.savez(tmp_path / "mine.npz", **{f"{name}'": A for name, A in found.items()})
    rows = compared(tmp_path / "mine.npz", tmp_path / "golden")
    assert len(rows) == 12
    assert [row for row in rows if not row.is_right] == []


def test_the_command_writes_weights_apart_and_units_of_the_data(tmp_path: Path):
    """A regression with scaled inputs and targets, which predicts only."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(3, 5, size=(40, 4)), rng.normal(-7, 2, size=(40, 1))
    M = mg.create_model("HyperbolicTangent;Linear", "4;5;1")
    M.fit(X, T, loss="SquaredError", epochs=2, normalize="standard", normalize_targets="standard")
    M.save(tmp_path / "model.npz")
    succeed("export", tmp_path / "model.npz", "--c", tmp_path / "net.c", "--weights", tmp_path / "net.bin")
    ((Y,), _) = executed(tmp_path, M, [(X[:1], T[:1])], trains=False)
    np.testing.assert_allclose(Y, M.predict(X[:1]), rtol=1e-5)
    assert (tmp_path / "net.bin").stat().st_size == 4 * (4 * 5 + 5 + 5 + 1 + 4 + 4 + 1 + 1)
    succeed("export", tmp_path / "model.npz", "--c", tmp_path / "net.c", "--train", "--batch-size", "40")
    (tmp_path / "net.bin").unlink()
    (Y, again), _ = executed(tmp_path, M, [(X, T)] * 2)
    assert np.abs(again - T).mean() < np.abs(Y - T).mean()  # it learns, in the units of the data


def test_a_file_for_some_number_of_examples_does_not_compile_for_others(tmp_path: Path):
    """The running variance has N / (N - 1), a number."""
    mg.create_model("BatchNormalization;Linear", "3;2").save(tmp_path / "model.npz")
    files = ("--c", tmp_path / "net.c", "--batch-size", 4)
    gcc = ["gcc", *WARNINGS, "-DNET_N=5", "-c", "net.c"]
    succeed("export", tmp_path / "model.npz", *files)  # prediction alone has no such number
    assert subprocess.run(gcc, cwd=tmp_path, timeout=PATIENCE).returncode == 0
    succeed("export", tmp_path / "model.npz", *files, "--train")
    done = subprocess.run(gcc, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert "#error this file is for 4 examples" in done.stderr


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("2.c", (), "expected a name that begins with a letter"),
        ("net.h", (), "expected a name that ends in .c"),
        ("net.c", ("--loss", "SquaredError"), "--loss: it is for a file that trains"),
    ],
)
def test_what_cannot_be_written_is_one_line(name: str, options: tuple[str, ...], message: str, tmp_path: Path):
    mg.create_model("Linear", "4;1").save(tmp_path / "model.npz")
    result = run("export", tmp_path / "model.npz", "--c", tmp_path / name, *options)
    assert result.exit_code == 2
    assert message in result.output
