"""Compiled training with sparse layers: what the equations give one by one, for any number of threads and examples."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from test_compiled_step import assert_equal_states, examples, train

import matgrad as mg
from architectures import random_architecture
from matgrad.specifications.models import create_model
from support import spread


def sparsified(M: mg.MultilayerPerceptron, seed: int) -> None:
    """Make about two of three linear layers sparse, at least one."""
    rng = np.random.default_rng(seed)
    linear = [layer for layer in M.layers if isinstance(layer, mg.LinearLayer)]
    densities = rng.choice([1.0, 0.2, 0.6], size=len(linear))
    densities[rng.integers(len(linear))] = 0.5
    M.set_densities(list(densities), rng)


def assert_compiled_equals_equations(backend: str, make, X, T, loss, N: int, context: str, **options) -> None:
    states = []
    for compiled in (False, True):
        M = make().to(backend)
        data = mg.DataLoader(X, T, batch_size=N, shuffle=True, seed=1).to(backend)
        train(M, compiled, loss, epochs=2, data=data, **options)
        states.append(M.state())
    assert_equal_states(states[1], states[0], context)


def use_threads(count: int, monkeypatch) -> None:
    """Let the core use so many threads, however many cores there are."""
    monkeypatch.setattr("matgrad.engines.native.threads", lambda: count)


@pytest.mark.parametrize(("seed", "name"), spread(range(30), ["numpy", "native", "torch", "native"]))
def test_compiled_training_equals_the_equations(name: str, seed: int, monkeypatch):
    """Two epochs of two batches and one of a single example, with one to seven threads in the C++ core.

    Threads share the rows of the weights for a few examples, and many examples.
    """
    N = (7, 100)[seed // 2 % 2]
    use_threads([1, 2, 3, 7][seed % 4], monkeypatch)

    def make() -> mg.MultilayerPerceptron:
        a = random_architecture(seed)
        sparsified(a.M, seed)
        return a.M

    a = random_architecture(seed)
    X, T = examples(a, 2 * N + 1)
    clip_norm = None if seed % 2 else 1.0
    assert_compiled_equals_equations(name, make, X, T, a.loss, N, f"{name}, {seed}", clip_norm=clip_norm)


def assert_core_equals_equations(layers: str, sizes: str, densities: str, N: int, context: str) -> None:
    """Three batches of N examples and one of 2, with dropout, Adam and 5 classes."""
    rng = np.random.default_rng(N)
    X, t = rng.normal(size=(3 * N + 2, int(sizes.partition(";")[0]))), rng.integers(0, 5, 3 * N + 2)
    loss = mg.LogProbabilityLoss() if "Log" in layers else mg.SoftmaxCrossEntropyLoss()

    def make() -> mg.MultilayerPerceptron:
        mg.manual_seed(1)
        M = create_model(layers, sizes, densities=densities, dropouts="0.2", optimizers="Adam")
        return M.to(dtype="float64")

    assert_compiled_equals_equations("native", make, X, mg.one_hot(t, 5), loss, N, context)


LAYERS = ["ReLU;Sigmoid;Linear", "SReLU;BatchNormalization;ReLU;LogSoftmax", "ReLU;Softmax;Linear"]


@pytest.mark.parametrize(("layers", "densities"), spread(LAYERS, ["0.1;0.1;0.5", "0.1;1;0.1", "1;0.1;1"]))
@pytest.mark.parametrize("threads", [2, 7])
def test_layers_as_wide_as_the_batch(layers: str, densities: str, threads: int, monkeypatch):
    """Rows and columns of a matrix cannot be told apart by its size."""
    use_threads(threads, monkeypatch)
    assert_core_equals_equations(layers, "100;100;100;5", densities, 100, f"{layers}, {densities}")


@pytest.mark.parametrize("N", [96, 300])  # many weights and few examples, and the other way round
@pytest.mark.parametrize("densities", ["0.5;0.3;1", "0.15;0.1;1"])
@pytest.mark.parametrize("threads", [1, 3, 8])  # 8 threads: teams of 8, of 2, and of 1
def test_many_weights_and_many_examples(N: int, densities: str, threads: int, monkeypatch):
    use_threads(threads, monkeypatch)
    assert_core_equals_equations("ReLU;ReLU;Linear", "280;310;270;5", densities, N, f"{N} examples, {threads} threads")


@pytest.mark.parametrize("sizes", ["1;40;5", "30;1;5", "30;40;1"])
@pytest.mark.parametrize("threads", [1, 7])
def test_layers_with_one_input_or_output(sizes: str, threads: int, monkeypatch):
    """A matrix with one row is stored in another way than one with several."""
    use_threads(threads, monkeypatch)
    D, _, K = map(int, sizes.split(";"))
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(300, D)), rng.normal(size=(300, K))

    def make() -> mg.MultilayerPerceptron:
        mg.manual_seed(1)
        return create_model("Sigmoid;Linear", sizes, densities="0.6").to(dtype="float64")

    assert_compiled_equals_equations("native", make, X, T, mg.MeanSquaredErrorLoss(), 150, sizes)


# -- memory --------------------------------------------------------------------------------------


def test_values_gradient_and_both_indices_take_16_bytes_an_element():
    """In float32 with plain gradient descent: the gradient is never stored, it is added to the values as it comes."""
    M = create_model("ReLU;Linear", "700;900;10", densities="0.1;0.5", optimizers="GradientDescent").to(
        "native", dtype="float32"
    )
    for layer in M.layers:
        (K, D), nnz = layer.W.shape, layer.W.support.nnz
        S = layer.W.support
        index = S.starts, S.columns, S.column_starts, S.rows, S.positions
        assert sum(A.nbytes for A in index) + layer.W.values.nbytes <= 16 * nnz + 16 * (K + D)

    step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    X, T = np.zeros((100, 700), np.float32), np.zeros((100, 10), np.float32)
    program = step.prepare(X, T).program
    sizes = {value.shape for value in program.values if value.operation not in ("input", "sampled_sum")}
    assert not sizes & {(1, layer.W.support.nnz) for layer in M.layers}


WIDE = """
from pathlib import Path

import numpy as np
import matgrad as mg
from matgrad.specifications.models import create_model

mg.manual_seed(0)
M = create_model("ReLU;ReLU;Linear", [65536, 65536, 65536, 10], densities=0.0005, optimizers="GradientDescent")
M.to("native", dtype="float32")
X = np.random.default_rng(0).standard_normal((300, 65536), dtype=np.float32)
history = M.fit(X, np.arange(300) % 10, learning_rate=0.5, epochs=2, batch_size=100)
assert np.isfinite(history["loss"]).all() and history["loss"][1] < history["loss"][0], history
sizes = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(int(sizes["VmHWM"].split()[0]) // 1024)  # not getrusage, which also counts the process this one was forked from
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell in this way")
def test_a_network_that_would_take_34_gigabytes_if_it_were_dense():
    done = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1500, "megabytes"
