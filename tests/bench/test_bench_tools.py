"""The tools: each one trains what a plain loop in NumPy trains, from the same weights, in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.bench.measuring.files import write_problem
from matgrad.bench.measuring.problems import generated, initial_parameters
from matgrad.bench.measuring.processes import Team
from matgrad.bench.tools.matgrad_tool import Matgrad
from matgrad.bench.tools.registry import TOOLS, chosen_tools
from matgrad.bench.tools.training_tool import Parameters, Setting
from support import Framework, assert_close

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

# Keras rounds rate and momentum to float32, so they are numbers that float32 has
SETTING = Setting((12, 7, 5, 3), batch_size=8, learning_rate=0.0625, momentum=0.875, dtype="float64")


def train_by_hand(parameters: Parameters, X: np.ndarray, t: np.ndarray) -> Parameters:
    """One epoch in NumPy: ReLU layers and a linear one, softmax cross-entropy, momentum."""
    P = [[W.copy(), b.copy()] for W, b in parameters]
    V = [[np.zeros_like(W), np.zeros_like(b)] for W, b in parameters]
    for i in range(0, len(X), SETTING.batch_size):
        A = [X[i : i + SETTING.batch_size]]
        for k, (W, b) in enumerate(P):
            Z = A[-1] @ W.T + b
            A.append(np.maximum(Z, 0) if k < len(P) - 1 else Z)
        E = np.exp(A[-1] - A[-1].max(axis=1, keepdims=True))
        D = (E / E.sum(axis=1, keepdims=True) - np.eye(3)[t[i : i + SETTING.batch_size]]) / SETTING.batch_size
        for k in reversed(range(len(P))):
            gradients = D.T @ A[k], D.sum(axis=0, keepdims=True)
            D = (D @ P[k][0]) * (A[k] > 0)
            for j, g in enumerate(gradients):
                V[k][j] = SETTING.momentum * V[k][j] - SETTING.learning_rate * g
                P[k][j] = P[k][j] + V[k][j]
    return [(W, b) for W, b in P]


def test_all_tools_of_a_framework_train_the_same(backend: Framework, tmp_path):
    names = [name for name, tool in TOOLS.items() if backend.name in tool.requires]
    data = generated(12, 3, 40, 1)
    X, t = data.Xtrain.astype("float64"), data.Ttrain
    initial = initial_parameters(SETTING, seed=1)
    write_problem(tmp_path, X, t, initial)

    with Team(names, tmp_path, 1, "float64", lambda text: None) as team:
        startup = team.setup(SETTING, tmp_path)
        seconds = team.rounds(1)
        team._keep = False  # as where memory is short: the data is loaded anew in every round
        team.rounds(2)
        found = team.parameters()

    assert not team.failures
    assert list(startup) == list(seconds) == list(found) == names
    for name in names:
        assert len(seconds[name]) == 1
        assert seconds[name][0] > 0
        for k, (A, E) in enumerate(zip(found[name], train_by_hand(initial, X, t), strict=True), start=1):
            for letter, a, e in zip("Wb", A, E, strict=True):
                assert_close(a, e, tolerance=1e-12, context=f"{name}, {letter}{k}")


def test_every_tool_is_compared_with_tools_in_the_table():
    for name, tool in TOOLS.items():
        assert (tool.kind == "baseline") == (not tool.baselines), name
        assert all(TOOLS[other].kind == "baseline" for other in tool.baselines), name


def test_tools_are_chosen_by_name_in_the_order_of_the_table():
    assert chosen_tools(()) == list(TOOLS)
    assert chosen_tools(("matgrad-numpy", "pytorch")) == ["pytorch", "matgrad-numpy"]
    with pytest.raises(ValueError, match="unknown tool 'pytroch'; known: pytorch, "):
        chosen_tools(("pytroch",))


@pytest.mark.parametrize("name", ["native", "numpy", "torch"])
def test_a_tool_trains_with_the_engine_of_its_name(name: str):
    tool = Matgrad(SETTING, name)
    data = generated(12, 3, 40, 1)
    tool.load(data.Xtrain.astype("float64"), data.Ttrain)
    tool.start(initial_parameters(SETTING, seed=1))
    assert tool.M.engine == name
    assert type(tool.step).__name__ == ("NativeStep" if name == "native" else "ProgramStep")
