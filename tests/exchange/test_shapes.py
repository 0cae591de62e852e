"""Images and tokens: models that go out and come back, and modules of strangers, with channels first and last."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from keras import layers as kl
from torch import nn

import matgrad as mg
from matgrad.exchange import load_torch, save_keras, save_torch
from matgrad.exchange.keras_models import own_warnings_ignored

MODELS = {
    "LeNet": ("Conv(6, 5, padding=2, act=ReLU);MaxPool(2);Conv(8, 3, act=ReLU);AvgPool(2);ReLU;Linear", "12x10x1;9;4"),
    "channels": ("Conv(4, 3, padding=1);Each(BatchNormalization);Conv(4, 3, groups=2, stride=2, act=GELU);"
                 "MaxPool(3, stride=1, padding=1);Linear", "9x8x2;3"),
    "sequences": ("Conv(4, 3, padding=1, dilation=2, act=SiLU);Each(BatchNormalization);AvgPool(2);Linear", "9x3;3"),
    "pixels": ("Conv(4, 3);Each(ReLU(6);Linear(2));Conv(2, 2)", "6x6x1"),
    "GPT": ("Embedding(8, vocabulary=7);Positions;Transformer(2, heads=2);Each(LayerNormalization;Linear(7))", "5"),
    "functions": ("Conv(4, 3, padding=1);Each(BatchNormalization);Function(ReLU);Residual(Function(GELU);Conv(4, 3, "
                  "padding=1);Function(SiLU);Conv(4, 1));Function(LeakyReLU(0.2));Linear", "6x5x2;3"),
    "encoder": (
        "Embedding(8, vocabulary=7);Positions(sinusoidal);Transformer(1, heads=2, causal=False, act=SiLU);Linear", "5;3"
    ),
    "labels": ("Embedding(4, vocabulary=7);Each(ReLU(5);LayerNormalization);Linear", "6;3"),
    "gated": ("Residual(Each(RMSNormalization);Gated(Each(SiLU(5));Each(Linear(5)));Each(Linear(4)));"
              "Each(Softmax(3));Linear", "5x4;3"),
}  # fmt: skip


def model(name: str, **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = mg.create_model(*MODELS[name], **options)
    rng = np.random.default_rng(1)
    changed = {x: A + rng.random(A.shape).astype(A.dtype) / 9 for x, A in M.to("numpy").state().items() if x[-1] == "b"}
    M.load_state(M.state() | changed)
    return M


def examples(M: mg.MultilayerPerceptron) -> np.ndarray:
    rng, D = np.random.default_rng(2), M.layers[0].input_size
    X = rng.integers(7, size=(6, D)) if M.layers[0].input == "labels" else rng.normal(size=(6, D))
    return X.astype("float32")


@pytest.mark.parametrize("name", MODELS)
def test_models_go_to_pytorch_and_come_back(name: str, tmp_path: Path):
    M = model(name)
    X = examples(M)
    module = mg.to_torch(M).eval()
    expected = M.predict(X)
    np.testing.assert_allclose(module(torch.tensor(X)).detach().numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(mg.from_torch(module).predict(X), expected)
    save_torch(M, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load_torch(tmp_path / "model.safetensors").predict(X), expected)


@pytest.mark.parametrize("name", ["LeNet", "GPT"])
def test_gradients_are_those_of_the_module(name: str):
    M = model(name)
    X = examples(M)
    module = mg.to_torch(M)
    Y = M.train().feedforward(X)
    G = np.random.default_rng(3).normal(size=Y.shape).astype("float32")
    M.backpropagate(Y, G)
    (module(torch.tensor(X)) * torch.tensor(G)).sum().backward()
    found = sorted(float(np.abs(getattr(x, f"D{p}")).sum()) for _, x in M.walk() for p in x.parameters)
    wanted = sorted(float(p.grad.abs().sum()) for p in module.parameters())
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_sparse_convolutions_keep_their_masks():
    M = model("LeNet", densities=0.5)
    module = mg.to_torch(M).eval()
    again = mg.from_torch(module)
    assert [x.nnz for x in again.linear_layers()] == [x.nnz for x in M.linear_layers()]
    np.testing.assert_array_equal(again.predict(examples(M)), M.predict(examples(M)))


def encoder(**options) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, **{"dropout": 0.0, "batch_first": True} | options)


STRANGERS = {
    "LeNet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, bias=False), nn.ReLU(),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(72, 10), nn.Tanh(), nn.Linear(10, 3),
        ),
        (10, 10, 3),
        "Conv(6, 5, padding=2, act=ReLU);MaxPool(2);Conv(8, 3, act=ReLU);Dropout(0.2);HyperbolicTangent;"
        "Linear",
    ),
    "normalized": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 4)),
        (10, 10, 3),
        "Conv(6, 3);Each(BatchNormalization(epsilon=1e-05, momentum=0.1));AvgPool(2);Linear",
    ),
    "sequences": (
        lambda: nn.Sequential(nn.Conv1d(3, 6, 3, stride=2), nn.GELU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(12, 4)),
        (11, 3),
        "Conv(6, 3, stride=2, act=GELU);MaxPool(2);Linear",
    ),
    "attention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        (5, 8),
        "Each(Linear(24));Attention(2, causal=False);Each(Linear(8))",
    ),
    "before": (lambda: encoder(activation="gelu", norm_first=True), (5, 8), None),
    "after": (lambda: nn.TransformerEncoder(encoder(), 2, nn.LayerNorm(8)), (5, 8), None),
    "text": (lambda: nn.Sequential(nn.Embedding(7, 8), encoder(), nn.Linear(8, 3)), (5,), None),
    "one channel": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 4)),
        None,
        "Conv(2, 3);Linear",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGERS)
def test_modules_of_strangers(name: str):
    make, shape, expected = STRANGERS[name]
    torch.manual_seed(0)
    module = make().eval()
    M = mg.from_torch(module, shape=shape)
    if expected is not None:
        assert ";".join(layer.specification() for layer in M.layers) == expected
    X = examples(M)
    A = torch.tensor(X) if shape is None or len(shape) == 1 else torch.tensor(X).reshape(len(X), *shape)
    A = A.long() if shape == (5,) else A.movedim(-1, 1) if name in ("LeNet", "normalized", "sequences") else A
    Y = module(A, A, A)[0] if name == "attention" else module(A)
    np.testing.assert_allclose(M.predict(X), Y.flatten(1).detach().numpy(), atol=1e-5)


REFUSED = {
    "module 0, Conv2d.*: takes images, but found rows: expected from_torch": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 5)), None),
    r"module 0, Conv2d.*: found kernel_size=\(3, 1\), expected one number": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, (3, 1))), (9, 9, 3)),
    "module 0, Conv2d.*: found padding='same', expected one number": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3, padding="same")), (9, 9, 3)),
    "module 0, Conv2d.*: found padding_mode='reflect', expected 'zeros'": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect")), (9, 9, 3)),
    "module 0, Conv2d.*: takes 2 channels, but what is before it has 3": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 3)), (9, 9, 3)),
    "module 1, MaxPool2d.*: found ceil_mode=True, expected False": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.MaxPool2d(3, ceil_mode=True)), (9, 9, 3)),
    "module 1, AvgPool2d.*: found count_include_pad=False, expected True": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.AvgPool2d(2, padding=1, count_include_pad=False)), (9, 9, 3)),
    "module 1, Linear.*: takes rows, but what is before it are images": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Linear(7, 2)), (9, 9, 3)),
    "module 1, Flatten.*: gives images with channels first as rows": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Flatten()), (9, 9, 3)),
    "module 0, Unflatten.*: makes images of channels first": (
        lambda: nn.Sequential(nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 6, 3)), None),
    "module 0, Embedding.*: takes labels of any length": (
        lambda: nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 3)), None),
    "TransformerEncoderLayer.*: found dropout=0.1, expected 0": (lambda: encoder(dropout=0.1), (5, 8)),
    "TransformerEncoderLayer.*: expected batch_first=True": (lambda: encoder(batch_first=False), (5, 8)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_exchanged_is_named(message: str):
    make, shape = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        mg.from_torch(make(), shape=shape)


@pytest.mark.parametrize(
    ("layers", "sizes", "message"),
    [
        ("Rotary(1);Attention(1);Linear", "3x6;2", r"layer 1, Rotary\(1\): PyTorch has no such module"),
        ("Attention(1);Linear", "3x6;2", r"layer 1, Attention\(1\): PyTorch has attention with projections only"),
        (
            "Residual(SReLU(6));Linear",
            "6;2",
            r"layer 1, Residual\(SReLU.*\): part 1, SReLU.*: other tools have no such layer",
        ),
    ],
)
def test_layers_that_pytorch_lacks_are_named(layers: str, sizes: str, message: str):
    with pytest.raises(ValueError, match=message):
        mg.to_torch(mg.create_model(layers, sizes))


# -- Keras, whose channels come last too ------------------------------------------------------------


def outputs(model: keras.Model, X: np.ndarray) -> np.ndarray:
    with own_warnings_ignored():
        Y = model(X.reshape(len(X), *model.input_shape[1:]), training=False)
        return keras.ops.convert_to_numpy(Y).reshape(len(X), -1)


@pytest.mark.parametrize("name", ["LeNet", "sequences", "pixels", "labels"])
def test_models_go_to_keras_and_come_back(name: str, tmp_path: Path):
    M = model(name)
    X = examples(M)
    expected = M.predict(X)
    made = mg.to_keras(M)
    np.testing.assert_allclose(outputs(made, X), expected, atol=1e-5)
    np.testing.assert_array_equal(mg.from_keras(made).predict(X), expected)
    save_keras(M, tmp_path / "model.keras")
    np.testing.assert_array_equal(mg.from_keras(tmp_path / "model.keras").predict(X), expected)


IN_KERAS = {
    "images": (
        [keras.Input((10, 10, 3)), kl.Conv2D(6, 3, padding="same", activation="relu"), kl.MaxPooling2D(),
         kl.Conv2D(4, 3, use_bias=False), kl.BatchNormalization(), kl.Flatten(), kl.Dense(5, activation="softmax")],
        "Conv(6, 3, padding=1, act=ReLU);MaxPool(2);Conv(4, 3);Each(BatchNormalization(epsilon=0.001, momentum=0.01));"
        "Softmax",
    ),
    "sequences": (
        [keras.Input((10, 3)), kl.Conv1D(6, 3, strides=2, activation="gelu"), kl.AveragePooling1D(2), kl.Flatten(),
         kl.Dense(5)],
        "Conv(6, 3, stride=2, act=GELU);AvgPool(2);Linear",
    ),
    "labels": (
        [keras.Input((6,), dtype="int32"), kl.Embedding(7, 4), kl.Dense(5, activation="relu"), kl.Flatten(),
         kl.Dense(2)],
        "Embedding(4, vocabulary=7);Each(ReLU(5));Linear",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_KERAS)
def test_models_of_keras(name: str):
    parts, expected = IN_KERAS[name]
    theirs = keras.Sequential(parts)
    M = mg.from_keras(theirs)
    assert ";".join(layer.specification() for layer in M.layers) == expected
    X = examples(M)
    np.testing.assert_allclose(M.predict(X), outputs(theirs, X), atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "sizes", "message"),
    [
        (
            "Conv(2, 3);MaxPool(2, padding=1);Linear",
            "8x8x1;2",
            r"layer 2, MaxPool\(2, padding=1\): Keras pads",
        ),
        ("Residual(Linear(4));Linear", "4;2", r"layer 1, Residual\(Linear\(4\)\): Keras has no such layer"),
        ("Embedding(4, vocabulary=3);Positions;Linear", "4;2", "layer 2, Positions: Keras has no such layer"),
    ],
)
def test_layers_that_keras_lacks_are_named(layers: str, sizes: str, message: str):
    with pytest.raises(ValueError, match=message):
        mg.to_keras(mg.create_model(layers, sizes))
