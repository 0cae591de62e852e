"""What the tests of exchange share: models in which nothing has its initial value, and each tool's round trip."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import onnxruntime
import torch

import matgrad as mg
from matgrad.datasets import Normalization
from matgrad.exchange import load_torch, save_keras, save_torch
from matgrad.exchange.keras_models import own_warnings_ignored
from support import TOLERANCE

D, K, N = 5, 3, 40


def examples(dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return 3 * rng.normal(size=(N, D)).astype(dtype) + 1, rng.integers(0, K, N)


def trained(layers: str, sizes: str, dtype: str = "float32", **options) -> mg.MultilayerPerceptron:
    """A model that has been trained a little."""
    mg.manual_seed(1)
    M = mg.create_model(layers, sizes, **options).to(dtype=dtype)
    X, T = examples(dtype)
    M.fit(X, T, epochs=2, batch_size=10, seed=0)
    return M


def normalized(M: mg.MultilayerPerceptron) -> mg.MultilayerPerceptron:
    """The model with a normalization of its inputs and of its targets."""
    rng = np.random.default_rng(3)
    M.normalization = Normalization.of("unit", rng.normal(size=(20, M.layers[0].input_size)))
    M.target_normalization = Normalization.of("standard", 100 + 9 * rng.normal(size=(20, M.layers[-1].output_size)))
    return M


def assert_near(found: np.ndarray, expected: np.ndarray, dtype: str, message: object = "", slack: float = 10) -> None:
    """Equal up to rounding in the dtype."""
    assert found.dtype == expected.dtype, message
    scale = max(np.abs(expected).max(), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=slack * TOLERANCE[dtype] * scale, err_msg=str(message))


def assert_same(found: mg.MultilayerPerceptron, expected: mg.MultilayerPerceptron) -> None:
    """Two models with bit-identical parameters, statistics and supports, and equal layers."""
    assert found.dtype == expected.dtype
    a, b = (M.state() for M in (found, expected))
    names = [name for name in b if name.endswith(".support") or name.count(".") == 1]
    for name in names:
        if name.endswith(".support"):
            assert a[name].is_same(b[name]), name
        elif not name.endswith((".seed", ".renewals")):  # of dropout, which other tools do not have
            np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]), err_msg=name)


# -- the tools: the outputs that they compute, and the model that comes back ------------------------


class Tool:
    """A tool, with a folder for its files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def precision(self, dtype: str) -> str:
        """The dtype in which the tool computes: on PyTorch, Keras multiplies float64 matrices in float32."""
        return "float32" if self.name.startswith("keras") else dtype

    def outputs(self, M: mg.MultilayerPerceptron, X: np.ndarray) -> np.ndarray:
        """What the tool computes in evaluation mode."""
        if self.name in ("torch", "torch file"):
            return mg.to_torch(M).eval()(torch.tensor(X)).detach().numpy()
        if self.name in ("keras", "keras file"):
            with own_warnings_ignored():
                return keras.ops.convert_to_numpy(mg.to_keras(M)(X, training=False))
        mg.to_onnx(M, self.folder / "model.onnx", sparse=self.name == "sparse onnx")
        return run_onnx(self.folder / "model.onnx", X)

    def round_trip(self, M: mg.MultilayerPerceptron) -> mg.MultilayerPerceptron:
        """The model, there and back."""
        path = self.folder / "model.keras"
        if self.name == "torch":
            return mg.from_torch(mg.to_torch(M))
        if self.name == "torch file":
            save_torch(M, path)
            return load_torch(path)
        if self.name == "keras":
            return mg.from_keras(mg.to_keras(M))
        if self.name == "keras file":
            save_keras(M, path)
            return mg.from_keras(path)
        mg.to_onnx(M, path, sparse=self.name == "sparse onnx")
        return mg.from_onnx(path)


TOOLS = ("torch", "torch file", "keras", "keras file", "onnx", "sparse onnx")


def run_onnx(path: Path, X: np.ndarray) -> np.ndarray:
    """What onnxruntime computes; it lacks some operators in float64, which ONNX's own reference has."""
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        from onnx.reference import ReferenceEvaluator

        assert X.dtype == np.float64
        session = ReferenceEvaluator(str(path))
    return session.run(None, {"X": X})[0]
