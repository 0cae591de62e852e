"""Devices and products on PyTorch: names, too little memory, and float32 that is float32, whatever the switches say."""

from __future__ import annotations

from collections.abc import Callable
from unittest import SkipTest

import numpy as np
import torch

import matgrad as mg
from gpu import DEVICE
from matgrad.backends import automatic_backend, get_backend
from matgrad.datasets import DataLoader
from matgrad.engines.fallback import TrainingStep, evaluation_of

SIZES = [300, 200, 100, 10]
ERRORS = {"float32": (0.0, 2e-6), "tf32": (5e-5, 2e-3), "bf16": (5e-4, 2e-2)}  # relative to float64: least and most
RNG = np.random.default_rng(5)
X, T = RNG.normal(size=(50, SIZES[0])), np.eye(10)[RNG.integers(0, 10, 50)]


def on_gpu() -> None:
    """Skip a test where there is no GPU."""
    if DEVICE == "cpu":
        raise SkipTest("of a GPU")


def error_of(call: Callable[[], object], kind: type[Exception]) -> str:
    """The message of the error that a call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"expected {kind.__name__}")


def model(backend: str, device: str | None, dtype: str = "float32", matmul: str = "float32"):
    mg.manual_seed(4)
    M = mg.create_model("Linear;Linear;Linear", SIZES, optimizers="GradientDescent")
    return M.to(backend, device=device, dtype=dtype, matmul=matmul)


def results(M, compiled: bool) -> dict[str, np.ndarray]:
    """The output in evaluation mode, and how much one step changes each matrix."""
    Xb, Tb = (M.backend.from_numpy(A.astype(M.dtype), M.device) for A in (X, T))
    state = M.state()
    outputs = evaluation_of(M, compiled=compiled)(state, Xb)["Y"]
    found = {"Y": np.array(M.backend.to_numpy(outputs), np.float64)}
    before = {name: np.array(M.backend.to_numpy(A), np.float64) for name, A in state.items()}
    step = TrainingStep(M, mg.SquaredErrorLoss(), compiled=compiled)
    step.load(state)
    step(Xb, Tb, M.scalar(1e-2))
    return found | {name: M.backend.to_numpy(A) - before[name] for name, A in step.state().items() if "W" in name}


def assert_errors(backend: str, device: str, matmul: str, context: str) -> None:
    """Compiled and eager results differ from those in float64 on the processor as `matmul` lets expect."""
    exact = results(model("numpy", None, "float64"), compiled=False)
    least, most = ERRORS[matmul]
    for compiled in (False, True):
        found = results(model(backend, device, matmul=matmul), compiled)
        for name, A in exact.items():
            error = np.linalg.norm(found[name] - A) / np.linalg.norm(A)
            # the first weights change by 1e-2 times a gradient, and are float32: what is left of it is less exact
            bound = most if name == "Y" else most + 1e-5
            assert least <= error <= bound, f"{context}, {matmul}, compiled {compiled}, {name}: {error:.1e}"


def test_products_have_the_precision_that_was_asked_for():
    on_gpu()
    for matmul in ERRORS:
        assert_errors("torch", DEVICE, matmul, "plain")


def test_products_do_not_follow_the_switches_of_pytorch():
    on_gpu()
    for precision in ("high", "medium"):
        torch.set_float32_matmul_precision(precision)
        try:
            assert_errors("torch", DEVICE, "float32", precision)
            assert torch.get_float32_matmul_precision() == precision
        finally:
            torch.set_float32_matmul_precision("highest")
    switch = torch.backends.cuda.matmul
    if hasattr(switch, "fp32_precision"):
        switch.fp32_precision = "tf32"
        try:
            assert_errors("torch", DEVICE, "float32", "fp32_precision")
            assert switch.fp32_precision == "tf32"
        finally:
            switch.fp32_precision = "ieee"


def test_names_of_devices():
    on_gpu()
    backend, count = get_backend("torch"), torch.cuda.device_count()
    assert backend.find_device("auto") == backend.find_device("cuda") == f"cuda:{torch.cuda.current_device()}"
    assert backend.find_device("cuda:0") == "cuda:0"
    assert backend.find_device(None) == "cpu"
    assert automatic_backend("auto") == "torch"
    M = model("auto", "auto")
    assert (M.engine, M.device) == ("torch", f"cuda:{torch.cuda.current_device()}")
    message = error_of(lambda: M.to(device=f"cuda:{count}"), ValueError)
    assert message.startswith(f"device 'cuda:{count}': PyTorch sees {count} GPU"), message


def test_data_is_moved_once():
    loader = DataLoader(X, RNG.integers(0, 10, 50)).to("torch", device=DEVICE)
    before = loader.X
    assert loader.to("torch", device=DEVICE).X is before
    assert loader.to(device=loader.X.device.type).X is before
    assert loader.T.device == before.device


def test_too_little_memory_is_told_with_sizes():
    on_gpu()
    free = get_backend("torch").free_memory(DEVICE)
    assert 1 << 28 < free <= torch.cuda.mem_get_info(DEVICE)[1]
    rows = int(1.5 * free) // 4 // 1000
    loader = DataLoader(np.broadcast_to(np.float32(1), (10, 1000)), np.zeros((10, 1)))
    loader.X = np.broadcast_to(np.float32(1), (rows, 1000))  # which takes no memory here
    message = error_of(lambda: loader.to("torch", device=DEVICE), MemoryError)
    assert message.startswith("the data: needs "), message
    assert f"on {get_backend('torch').find_device(DEVICE)}, found " in message, message
