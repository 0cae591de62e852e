"""Models from strings, and plugins."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.loss_functions import LOSSES, create_loss
from matgrad.specifications.models import LAYERS, create_model, model_specification
from matgrad.specifications.plugins import load_plugin
from support import to_numpy


def test_layers_and_sizes_make_a_model():
    M = create_model(
        "ReLU;BatchNormalization;AllReLU(0.3);SReLU(al=0.1);Softmax", "784;1024,512;20;10", dropouts="0.5;0;0.1;0"
    )

    assert [type(layer) for layer in M.layers] == [
        mg.ActivationDropoutLayer,
        mg.BatchNormalizationLayer,
        mg.ActivationLayer,
        mg.SReLUDropoutLayer,
        mg.SoftmaxLayer,
    ]
    sizes = [(layer.input_size, layer.output_size) for layer in M.layers]
    assert sizes == [(784, 1024), (1024, 1024), (1024, 512), (512, 20), (20, 10)]
    assert [getattr(layer, "dropout", 0) for layer in M.layers if isinstance(layer, mg.LinearLayer)] == [0.5, 0, 0.1, 0]
    assert M.layers[2].act.alpha == 0.3
    assert M.layers[3].al[0, 0] == np.float32(0.1)


def test_normalizations_keep_their_settings_and_have_no_size():
    layers = "LayerNormalization(epsilon=0.001);ReLU;RMSNormalization(epsilon=1e-06);Linear"
    M = create_model(layers, "4;5;3")
    assert [(layer.input_size, layer.output_size) for layer in M.layers] == [(4, 4), (4, 5), (5, 5), (5, 3)]
    assert model_specification(M)["layers"] == layers
    first, *_ = create_model("LayerNormalization;Linear", "4;3").layers
    assert first.specification() == "LayerNormalization(epsilon=1e-05)"
    message = r"layer 1: layer 'RMSNormalization\(momentum=1\)': .*usage: .*epsilon=1e-05\)"
    with pytest.raises(ValueError, match=message):
        create_model("RMSNormalization(momentum=1);Linear", "4;3")


def test_lists_may_be_sequences_and_single_values():
    models = []
    for options in (
        {"layers": "ReLU;Linear", "sizes": "4;5;3", "dropouts": "0.5;0", "densities": "0.4", "weights": "He;Zero"},
        {"layers": ["ReLU", "Linear"], "sizes": (4, 5, np.int64(3)), "dropouts": [0.5, 0], "densities": 0.4,
         "weights": ["He", "Zero"]},
    ):  # fmt: skip
        mg.manual_seed(3)
        models.append(create_model(**options))

    assert repr(models[0]) == repr(models[1])
    states = [M.state() for M in models]
    for name, X in states[0].items():
        np.testing.assert_array_equal(to_numpy(X), to_numpy(states[1][name]), err_msg=name)
    with pytest.raises(ValueError, match=r"layer size 2: expected an integer, found '5.5'"):
        create_model("ReLU;Linear", [4, 5.5, 3])


def test_one_value_serves_all_layers():
    M = create_model(
        "ReLU;BatchNormalization;Linear", "4;5;3", weights="Zero", optimizers="Nesterov(0.5)", dropouts="0.2"
    )

    parts = [part for layer in M.layers for part in layer.optimizer.parts()]
    assert {(type(part), part.mu) for part in parts} == {(mg.NesterovOptimizer, 0.5)}
    assert all(not layer.W.any() and layer.dropout == 0.2 for layer in M.layers if isinstance(layer, mg.LinearLayer))


def test_values_for_each_layer():
    M = create_model(
        "ReLU;BatchNormalization;Linear", "4;5;3", weights="Zero;Uniform(1, 2)", optimizers="Adam;Momentum;AdamW"
    )

    assert not M.layers[0].W.any()
    assert M.layers[2].W.min() >= 1
    assert [type(layer.optimizer.parts()[0]).__name__ for layer in M.layers] == [
        "AdamOptimizer",
        "MomentumOptimizer",
        "AdamWOptimizer",
    ]


@pytest.mark.parametrize("name", [*LAYERS, *ACTIVATIONS])
def test_every_layer_can_be_named_and_described_again(name: str):
    M = create_model(f"{name};Linear", "6;6;2" if not LAYERS.get(name, mg.Layer).keeps_size else "6;2", dropouts="0.25")
    again = create_model(**model_specification(M))
    assert model_specification(again) == model_specification(M)
    assert [repr(layer) for layer in again.layers] == [repr(layer) for layer in M.layers]


def test_each_layer_has_its_own_renewal_of_dropout():
    M = create_model(
        "ReLU;BatchNormalization;ReLU;Linear", "4;5;6;3", dropouts="0.5;0.1;0.2", renew=["epoch", "step", "epoch"]
    )
    assert model_specification(M)["renew"] == "epoch;step;epoch"
    again = create_model(**model_specification(M))
    assert [x.renew for x in again.layers if isinstance(x, mg.LinearLayer)] == ["epoch", "step", "epoch"]
    M.layers[2].dropout = 0
    assert model_specification(M)["renew"] == "epoch", "where dropout is off there is nothing to renew"
    with pytest.raises(ValueError, match="expected 1 or 2 values of renew for 2 linear layers, found 3"):
        create_model("ReLU;Linear", "4;5;3", dropouts=0.1, renew="step;epoch;step")


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_described_again(name: str):
    loss = create_loss(name)
    assert repr(create_loss(loss.specification())) == repr(loss)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layers": "ReLU;Lineer"},
            "layer 2: unknown layer 'Lineer'; did you mean 'Linear'\\? \\(known: Linear, Softmax",
        ),
        ({"layers": "relu;Linear"}, "layer 1: unknown layer 'relu'; did you mean 'ReLU'"),
        ({"layers": "ReLU;;Linear"}, "layer 2 of 'ReLU;;Linear' is empty"),
        ({"layers": ""}, "layer 1 of '' is empty"),
        ({"layers": "ReLU(3);Linear"}, "layer 1: .*too many positional arguments; usage: ReLU\\(\\)"),
        (
            {"layers": "AllReLU(slope=1);Linear"},
            "layer 1: .*unexpected keyword argument 'slope'; usage: AllReLU\\(alpha",
        ),
        ({"layers": "AllReLU(big);Linear"}, "layer 1: .*expected a finite float32 number for 'alpha', found 'big'"),
        ({"layers": "ReLU;Linear("}, "layer 2: cannot read 'Linear\\('"),
        ({"sizes": "4;3"}, "expected 3 layer sizes for 2 linear layers .*, found 2: 4;3"),
        ({"sizes": "4;5;6;7"}, "expected 3 layer sizes for 2 linear layers .*, found 4"),
        ({"sizes": "4;five;3"}, "layer size 2: expected an integer, found 'five'"),
        ({"sizes": "4;5.5;3"}, "layer size 2: expected an integer, found '5.5'"),
        ({"sizes": "4;0;3"}, "layer size 2 must be a positive integer, found 0"),
        ({"sizes": "-4;5;3"}, "layer size 1 must be a positive integer, found -4"),
        ({"dropouts": "1"}, "layer 1: dropout: expected a number in \\[0, 1\\), found 1.0"),
        ({"dropouts": "0;-0.5"}, "layer 2: dropout: expected a number in \\[0, 1\\), found -0.5"),
        ({"dropouts": "some"}, "dropout 1: expected a number, found 'some'"),
        ({"dropouts": "0;0;0"}, "expected 1 or 2 dropouts for 2 linear layers, found 3"),
        ({"weights": "Xaver"}, "layer 1: unknown weight initializer 'Xaver'; did you mean 'Xavier'"),
        ({"weights": "Uniform(2, 1)"}, "layer 1: Uniform\\(2, 1\\): expected a <= b"),
        ({"weights": "He;He;He"}, "expected 1 or 2 layer weights for 2 linear layers, found 3"),
        ({"optimizers": "Adam;Adamm"}, "layer 2: unknown optimizer 'Adamm'; did you mean 'Adam'"),
        ({"optimizers": "Momentum(1.5)"}, "layer 1: mu: expected a number in \\[0, 1\\), found 1.5"),
        ({"renew": "daily", "dropouts": "0.1"}, "renew: expected 'step' or 'epoch', found 'daily'"),
    ],
)
def test_bad_specifications_are_refused(changes: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        create_model(**({"layers": "ReLU;Linear", "sizes": "4;5;3"} | changes))


PLUGIN = '''
import matgrad as mg
from matgrad.matrix_operations import hadamard, step

class SquareActivation(mg.ActivationFunction):
    """x²"""
    def __init__(self, factor=1.0):
        self.factor = factor
    def __call__(self, X):
        return self.factor * hadamard(X, X)
    def gradient(self, X):
        return 2 * self.factor * X

class HalfLayer(mg.Layer):
    """Y = X / 2"""
    keeps_size = True
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.set_optimizer("GradientDescent")
    def feedforward(self, X):
        Y = X / 2
        self.X = X
        return Y
    def backpropagate(self, Y, DY):
        DX = DY / 2
        self.DX = DX

class CubicLoss(mg.SquaredErrorLoss):
    pass
'''


@pytest.fixture
def registries():
    """The registries, restored afterwards."""
    originals = [(registry, dict(registry)) for registry in (LAYERS, ACTIVATIONS, LOSSES)]
    yield
    for registry, original in originals:
        registry.clear()
        registry.update(original)


@pytest.mark.usefixtures("registries")
def test_a_plugin_makes_its_classes_usable_by_name(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    load_plugin(tmp_path / "mine.py")

    M = create_model("Square(0.5);Half;Linear", "4;5;3")
    M.fit(np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 3, epochs=2)

    assert repr(M.layers[0].act) == "Square(factor=0.5)"
    assert (M.layers[1].input_size, M.layers[1].output_size) == (5, 5)
    assert create_loss("Cubic").specification() == "Cubic"
    assert model_specification(M)["layers"] == "Square(factor=0.5);Half;Linear"


NAMES = """
import matgrad as mg

class LossAwareLoss(mg.SquaredErrorLoss):
    def __init__(self, factor=1.0):
        self.factor = factor

class LossLoss(mg.SquaredErrorLoss):
    pass

class ActivationLikeActivation(mg.ReLUActivation):
    pass

class ActivationActivation(mg.ReLUActivation):
    pass

class LayerInLayerLayer(mg.LinearLayer):
    pass
"""


@pytest.mark.usefixtures("registries")
def test_a_class_is_found_by_the_name_under_which_it_is_saved(tmp_path):
    """Only the ending is left out, once, wherever else the word is in a name."""
    (tmp_path / "names.py").write_text(NAMES)
    load_plugin(tmp_path / "names.py")
    for name in ("LossAware", "LossAware(factor=2.5)", "Loss"):
        assert create_loss(name).specification() == name
    M = create_model("ActivationLike;Activation;LayerInLayer;Linear", "4;5;5;5;3")
    M.fit(np.eye(4), np.eye(4)[:, :3], loss="LossAware(2.5)", epochs=1)
    M.save(tmp_path / "m.npz")
    loaded = mg.load(tmp_path / "m.npz")
    assert [repr(layer) for layer in loaded.layers] == [repr(layer) for layer in M.layers]
    assert loaded.information["loss"] == "LossAware(factor=2.5)"
    assert create_loss(loaded.information["loss"]).factor == 2.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("def f(:", "SyntaxError"),
        ("x = 1", "no class in it derives from one of Layer, ActivationFunction, LossFunction, Prune"),
    ],
)
def test_bad_plugins_are_refused(tmp_path, content: str | None, message: str):
    file = tmp_path / "bad.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=f"bad.py'?: .*{message}"):
        load_plugin(file)


def test_a_plugin_must_be_python(tmp_path):
    (tmp_path / "plugin.txt").write_text("x = 1")
    with pytest.raises(ValueError, match=r"plugin.txt.*with the ending \.py"):
        load_plugin(tmp_path / "plugin.txt")
