"""Windows in the C++ core: products, maxima and their gradients read them where they are, and none is written."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import matgrad as mg
import matgrad._native as _native
from matgrad.layers.state import matrices_of
from matgrad.layers.windows import WindowsLayer, windows
from matgrad.program.description import as_dictionary
from matgrad.program.program import Program

State = dict[str, np.ndarray]

VGG = "Conv(32, 3, padding=1, act=ReLU);Conv(33, 3, padding=1, act=ReLU);MaxPool(2);Linear"
NETWORKS: dict[str, tuple[str, str, int]] = {  # the layers, the shape of an example, and the batch size
    "short runs": ("Conv(6, 5, padding=2, act=ReLU);MaxPool(2);Conv(16, 5, act=SiLU);MaxPool(2);Linear", "20x20x1", 7),
    "many channels": (VGG, "12x12x3", 5),
    "strides": ("Conv(20, 3, padding=1, stride=2, act=ReLU);Conv(50, 3, dilation=2, padding=1);Linear", "17x17x3", 3),
    "overlaps": ("Conv(4, 3);MaxPool(3, stride=2, padding=1);AvgPool(2, stride=1, padding=1);Linear", "17x17x2", 3),
    "one example": ("Conv(20, 3, padding=1, act=ReLU);MaxPool(2);Linear", "17x17x3", 1),
    "a sequence": ("Conv(8, 3, act=ReLU);MaxPool(2);Conv(9, 3);Linear", "30x4", 6),
    "groups": ("Conv(8, 3, act=ReLU, groups=4);MaxPool(2);Conv(9, 3);Linear", "10x10x4", 6),
    "channels": ("Conv(8, 3, act=ReLU);Each(BatchNormalization);MaxPool(2);Linear", "10x10x4", 6),
    "zeros": ("", "6x6x2", 3),
    "heads": ("Residual(Each(LayerNormalization;Linear(24));Attention(2);Each(Linear(8)));Linear", "9x8", 4),
}


def model(name: str) -> mg.MultilayerPerceptron:
    layers, shape, _ = NETWORKS[name]
    mg.manual_seed(1)
    if not layers:  # maxima of windows with zeros
        columns = windows((6, 6, 2), 3, padding=1)
        own = WindowsLayer(columns, 72, mg.MaxLayer(columns.shape[1]))
        return mg.MultilayerPerceptron([own, mg.LinearLayer(36, 10)]).to(dtype="float64").train()
    return mg.create_model(layers, [shape, 10], optimizers="Momentum(0.9)").to(dtype="float64").train()


def batches(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Examples with equal elements in a window, and their targets."""
    _, shape, N = NETWORKS[name]
    D, rng = math.prod(map(int, shape.split("x"))), np.random.default_rng(2)
    return [(np.maximum(rng.standard_normal((N, D)), 0), np.eye(10)[rng.integers(0, 10, N)]) for _ in range(3)]


def trained(name: str, M: Any) -> tuple[State, Any]:
    """The state of a model after some steps, and the executor of a step."""
    step: Any = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    for X, T in batches(name):
        step(X, T, M.scalar(0.05))
    return {key: np.array(X) for key, X in matrices_of(step.state()).items()}, step.prepare(X, T)


def trained_in_core(name: str, program: Program, instruction_set: str, threads: int) -> State:
    """The state of a model after the same steps, by an instruction set and with so many threads."""
    state = {key: np.array(X) for key, X in matrices_of(model(name).state()).items()}
    core = _native.Executor(json.dumps(as_dictionary(program)), _native.ThreadPool(threads), instruction_set)
    for key in program.inputs.keys() & state.keys():
        core.bind(key, state[key])
    for key, value in program.supports.items():
        S: Any = value.support or model(name).state()[key]
        core.bind_support(key, S.starts, S.columns, S.column_starts, S.rows, S.positions)
    for X, T in batches(name):
        core.run({"X": X, "T": T, "eta": np.array(0.05)}, {})
    return state


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_is_that_of_the_equations(name: str):
    expected, _ = trained(name, model(name))
    found, executor = trained(name, model(name).to("native"))
    others = {
        f"{set_} with {n} threads": trained_in_core(name, executor.program, set_, n)
        for set_ in _native.instruction_sets()
        for n in (1, 3)
    }
    for where, state in {"as usual": found, **others}.items():
        for key, X in expected.items():
            np.testing.assert_allclose(state[key], X, rtol=1e-12, atol=1e-13, err_msg=f"{name}, {key}, {where}")


def test_no_matrix_of_windows_is_written():
    _, executor = trained("many channels", model("many channels").to("native"))
    largest = max(math.prod(buffer["shape"]) for buffer in as_dictionary(executor.program)["buffers"])
    assert largest == 5 * 12 * 12 * 33, "the output of a convolution, of which a window has 288 elements"


def test_what_cannot_read_a_value_without_memory_is_refused():
    _, executor = trained("many channels", model("many channels").to("native"))
    description = as_dictionary(executor.program)
    for line in description["values"]:
        line["operation"] = line["operation"].replace("rows_max", "rows_sum")  # of windows
    with pytest.raises(ValueError, match="cannot read a value without memory"):
        _native.Executor(json.dumps(description), _native.ThreadPool(1), "")


def test_no_other_value_can_do_without_memory():
    networks = [model("many channels"), mg.create_model("ReLU;Linear", [6, 5, 3], densities=0.5)]
    _, windows = trained("many channels", networks[0].to("native"))
    step = mg.compile_step(networks[1].to("native"), mg.SoftmaxCrossEntropyLoss())
    step.load(networks[1].state())
    batch = np.ones((4, 6), np.float32), np.eye(4, 3, dtype=np.float32)
    for program in (windows.program, step.prepare(*batch).program):
        description = as_dictionary(program)
        for i, line in enumerate(description["values"]):
            if line["operation"] != "input" and "buffer" in line:
                values = [*description["values"][:i], {**line}, *description["values"][i + 1 :]]
                del values[i]["buffer"]
                with pytest.raises(ValueError, match=r"cannot read|expected|its buffer|value \d+:"):
                    _native.Executor(json.dumps(description | {"values": values}), _native.ThreadPool(1), "")
