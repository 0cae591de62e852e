"""Keras: functional and nested models, activations of all forms, and files, of which no code is run."""

from __future__ import annotations

import json
import zipfile
from functools import partial

import keras
import numpy as np
import pytest
from exchange_support import D, K, assert_near, examples, trained
from keras import layers

import matgrad as mg
from matgrad.exchange import keras_models, save_keras
from matgrad.exchange.keras_models import own_warnings_ignored


def outputs(model: keras.Model, X: np.ndarray) -> np.ndarray:
    with own_warnings_ignored():
        return keras.ops.convert_to_numpy(model(X, training=False))


def save(model: keras.Model, path) -> str:
    with own_warnings_ignored():
        model.save(path)
    return str(path)


def functional() -> keras.Model:
    """A functional model with a model in it, an adapted normalization, and every kind of activation."""
    X = keras.Input((D,))
    normalization = layers.Normalization()
    normalization.adapt(examples()[0])
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(5, use_bias=False), layers.ReLU(threshold=0.25)])
    Y = inner(layers.Dense(6, activation="gelu")(normalization(X)))
    Y = layers.BatchNormalization(center=False)(layers.Dense(4, activation=keras.activations.leaky_relu)(Y))
    Y = layers.Dense(4, kernel_regularizer="l2")(Y)
    return keras.Model(X, layers.Dense(K, activation="softmax")(layers.ELU(0.5)(Y)))


def test_a_functional_model_is_read_live_and_from_its_file(tmp_path):
    keras.utils.set_random_seed(1)
    model, (X, _) = functional(), examples()
    model.layers[-4].moving_mean.assign([0.1, 0.2, 0.3, 0.4])
    path = save(model, tmp_path / "model.keras")
    for M in (mg.from_keras(model), mg.from_keras(path)):
        assert [layer.specification() for layer in M.layers] == [
            "GELU", "TReLU(epsilon=0.25000003)", "LeakyReLU(alpha=0.2)",
            "BatchNormalization(epsilon=0.001, momentum=0.01)", "ELU(alpha=0.5)", "Softmax",
        ]  # fmt: skip
        assert_near(M.predict(X), outputs(model, X), "float32")


def test_normalizations_of_rows_with_missing_parts(tmp_path):
    keras.utils.set_random_seed(1)
    parts = (layers.LayerNormalization(center=False), layers.Dense(4), layers.LayerNormalization(scale=False))
    model, (X, _) = sequential(*parts, layers.RMSNormalization(axis=[1]), layers.Dense(K)), examples()
    rng = np.random.default_rng(2)
    model.set_weights([rng.normal(size=variable.shape) for variable in model.weights])
    path = save(model, tmp_path / "model.keras")
    for M in (mg.from_keras(model), mg.from_keras(path)):
        assert [layer.specification() for layer in M.layers] == [
            "LayerNormalization(epsilon=0.001)", "Linear", "LayerNormalization(epsilon=0.001)",
            "RMSNormalization(epsilon=1e-06)", "Linear",
        ]  # fmt: skip
        assert_near(M.predict(X), outputs(model, X), "float32")
    for change, message in (({"rms_scaling": True}, "found rms_scaling=True"), ({"axis": [0]}, "found axis=\\[0\\]")):
        first = partial(lambda x, c: c["config"]["layers"][1]["config"].update(x), change)
        with pytest.raises(ValueError, match=message):
            mg.from_keras(changed(path, tmp_path / "changed.keras", first))


def test_keras_reads_its_file_and_trains_on(tmp_path):
    M = trained("ReLU;BatchNormalization;Softmax", f"{D};4;{K}")
    save_keras(M, tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    X, T = examples()
    assert_near(outputs(model, X), M.predict(X), "float32")
    model.compile("sgd", "sparse_categorical_crossentropy")
    with own_warnings_ignored():
        model.fit(X, T, epochs=1, verbose=0)
    assert_near(mg.from_keras(model).predict(X), outputs(model, X), "float32")


def two_outputs() -> keras.Model:
    X = keras.Input((D,))
    Y = layers.Dense(4)(X)
    return keras.Model(X, layers.Add(name="add")([Y, layers.Dense(4)(Y)]))


def relu(X):
    return keras.ops.minimum(keras.activations.relu(X), 1e9)


def with_option(layer: layers.Layer, *, inner: bool = False) -> keras.Model:
    """A functional model with a layer, or a model of it, that is told to train."""
    X = keras.Input((D,))
    part = sequential(layer) if inner else layer
    return keras.Model(X, layers.Dense(3)(part(X, training=True)))


def with_method() -> keras.Model:
    model = sequential(layers.Dense(3, name="a"))
    model.layers[0].call = lambda X, training=None: 2 * layers.Dense.call(model.layers[0], X)
    return model


def with_hook() -> keras.Model:
    model = sequential(layers.Dense(3, name="a"))
    model.layers[0].register_forward_hook(lambda layer, X, Y: Y)
    return model


def with_a_layer_twice(layer: layers.Layer) -> keras.Model:
    return sequential(layers.Dense(D), layer, layers.Dense(D), layer)


class Imposter(layers.Dense):
    """A layer that says it is one of Keras."""

    def call(self, X, training=None):
        return 2 * super().call(X)


Imposter.__module__, Imposter.__name__ = "keras.layers", "Dense"


class Own(layers.Dense):
    """A user's own layer."""


class OwnModel(keras.Model):
    """A user's own model."""


def sequential(*parts: layers.Layer) -> keras.Sequential:
    return keras.Sequential([keras.Input((D,)), *parts])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OwnModel(), "expected a Sequential or a functional model of Keras, found a OwnModel"),
        (two_outputs, r"layer 'add': takes several inputs, expected a chain of layers"),
        (lambda: sequential(Own(3, name="mine")), "layer 'mine', Own: found a class of users"),
        (lambda: sequential(Imposter(3, name="mine")), "layer 'mine', Dense: found a class of users"),
        (
            lambda: sequential(layers.Dense(3, activation=relu, name="a")),
            "layer 'a', Dense: the activation 'relu' is a",
        ),
        (with_method, "layer 'a', Dense: has a method or a hook of its own"),
        (with_hook, "layer 'a', Dense: has a method or a hook of its own"),
        (lambda: with_option(layers.BatchNormalization()), "is called with {'training': True}"),
        (lambda: with_option(layers.Dropout(0.5)), "is called with {'training': True}"),
        (lambda: with_option(layers.Dropout(0.5), inner=True), "is called with {'training': True}"),
        (lambda: with_a_layer_twice(layers.Dense(D, name="a")), "layer 'a', Dense: occurs twice"),
        (lambda: with_a_layer_twice(layers.ReLU(name="a")), "layer 'a', ReLU: occurs twice"),
        (lambda: sequential(layers.Dense(3), layers.PReLU(name="p")), "layer 'p', PReLU: found the class 'PReLU'"),
        (lambda: sequential(layers.Dense(3), layers.Softmax(axis=0)), "found axis=0, expected -1 or 1"),
        (lambda: sequential(layers.Dense(3), layers.ReLU(max_value=6)), "found max_value=6, expected None"),
        (lambda: sequential(layers.Dense(3, dtype="mixed_float16")), "found dtype 'mixed_float16', expected float32"),
        (lambda: sequential(layers.Lambda(lambda X: X)), "found the class 'Lambda'"),
        (
            lambda: keras.Sequential([keras.Input((1, D)), layers.Dense(3), layers.Softmax(axis=1)]),
            "expected a layer Flatten|cannot be run",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(make, message: str):
    with pytest.raises(ValueError, match=message):
        mg.from_keras(make())


def test_the_first_layer_that_differs_is_named_also_of_a_file(tmp_path, monkeypatch):
    model = sequential(layers.Dense(4, "relu"), layers.Dense(4, "tanh", name="second"), layers.Dense(K))
    path = save(model, tmp_path / "model.keras")
    monkeypatch.setitem(keras_models.ACTIVATIONS, "tanh", mg.SigmoidActivation)
    for source in (model, path):
        with pytest.raises(ValueError, match="layer 'second', Dense: for a random batch of 16, its outputs are not"):
            mg.from_keras(source)


def test_slopes_and_thresholds_that_keras_lacks_are_refused():
    for layer in ("AllReLU(-0.5)", "TReLU(-0.5)"):
        with pytest.raises(ValueError, match=r"^layer 1, .*-0.5.*Keras has positive ones only"):
            mg.to_keras(mg.create_model(layer, f"{D};{K}"))
    with pytest.raises(TypeError, match=r"expected a keras.Model or the name of a .keras file, found int"):
        mg.from_keras(3)


def changed(source: str, path, change) -> str:
    """A copy of a .keras file with another configuration or other members."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    configuration = json.loads(members["config.json"])
    members |= change(configuration) or {}
    members["config.json"] = json.dumps(configuration).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)


def test_no_code_of_a_file_is_run(tmp_path):
    """Keras itself imports the modules that a file names; here they are refused unread."""
    source = save(sequential(layers.Dense(3)), tmp_path / "good.keras")

    def evil(configuration: dict) -> None:
        configuration["config"]["layers"][1] |= {"module": "os", "class_name": "system", "config": "touch evil"}

    def pickled(configuration: dict) -> None:
        function = {"class_name": "__lambda__", "config": {"value": "cG9zaXgKc3lzdGVt"}}
        configuration["config"]["layers"][1]["config"]["activation"] = function

    def own(module: str) -> dict:
        return {"module": module, "class_name": "system", "config": {"command": "touch evil"}}

    for change, message in (
        (evil, "not a.* or a damaged one"),
        (pickled, "found the activation {'class_name': '__lambda__'"),
        (lambda c: {"assets/x.txt": b"1"}, "expected the files config.json, .* in it, found"),
        (lambda c: {"model.weights.h5": b"hello"}, "model.weights.h5: not an HDF5 file"),
        (lambda c: c["config"]["layers"][1]["config"].update(units=10**12), "expected 3"),  # of which nothing is made
        (lambda c: c["config"]["layers"][1]["config"].update(kernel_initializer=own("os")), None),
        (lambda c: c["config"]["layers"].append(c["config"]["layers"][1]), "found 0 arrays, expected 2: kernel, bias"),
        (lambda c: c["config"]["layers"].append(3), "not a.* or a damaged one"),
    ):
        path = changed(source, tmp_path / "changed.keras", change)
        if message is None:
            assert mg.from_keras(path).layers[0].output_size == 3
            continue
        with pytest.raises(ValueError, match=message):
            mg.from_keras(path)
