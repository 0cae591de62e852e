"""A name means one thing: what plugins may define, and what files keep of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.callbacks.methods import METHODS
from matgrad.learning_rate import SCHEDULERS
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS
from matgrad.sparse.rules import GROWERS, PRUNERS
from matgrad.specifications.models import LAYERS
from matgrad.specifications.plugins import REGISTRIES, load_plugin
from matgrad.specifications.shaped import SHAPED
from matgrad.weight_initializers import INITIALIZERS

X, T = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 3
HALF = """
import matgrad as mg

class HalfActivation(mg.ActivationFunction):
    def __init__(self, factor=0.5):
        self.factor = factor
    def __call__(self, X):
        return self.factor * X
    def gradient(self, X):
        return 0 * X + self.factor
"""
LOSS = "import matgrad as mg\nclass DoubleLoss(mg.SquaredErrorLoss):\n    pass\n"


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def taken() -> list[dict[str, object]]:
    """All that is known by name."""
    return [dict(registry) for _, registry, *_ in REGISTRIES]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("LinearLayer", "Layer"),
        ("ConvLayer", "Layer"),
        ("ReLULayer", "Layer"),  # a layer that is called as an activation function is
        ("ReLU", "ActivationFunction"),  # the ending may be missing
        ("SigmoidActivation", "ActivationFunction"),
        ("SoftmaxActivation", "ActivationFunction"),  # an activation function that is called as a layer is
        ("SquaredErrorLoss", "LossFunction"),
        ("SoftmaxCrossEntropy", "LossFunction"),
        ("MagnitudePrune", "Prune"),
        ("RandomGrow", "Grow"),
        ("RigL", "Callback"),
        ("TopologyCallback", "Callback"),
    ],
)
def test_no_class_of_a_plugin_replaces_one_of_the_package(tmp_path, name, base):
    before = taken()
    with pytest.raises(ValueError, match=r"mine.py'?: there is a .* in the package already; rename"):
        load_plugin(write(tmp_path / "mine.py", f"import matgrad as mg\nclass {name}(mg.{base}): pass\n"))
    assert taken() == before


@pytest.mark.parametrize(
    ("module", "registry", "name", "known"),
    [
        ("specifications.models", "LAYERS", "Linear", LAYERS),
        ("specifications.shaped", "SHAPED", "Conv", SHAPED),
        ("activation_functions", "ACTIVATIONS", "ReLU", ACTIVATIONS),
        ("loss_functions", "LOSSES", "SquaredError", LOSSES),
        ("optimizers", "OPTIMIZERS", "Adam", OPTIMIZERS),
        ("learning_rate", "SCHEDULERS", "Cosine", SCHEDULERS),
        ("weight_initializers", "INITIALIZERS", "Xavier", INITIALIZERS),
        ("sparse.rules", "PRUNERS", "SET", PRUNERS),
        ("sparse.rules", "GROWERS", "Gradient", GROWERS),
        ("callbacks.methods", "METHODS", "SET", METHODS),
    ],
)
def test_what_a_plugin_puts_in_place_of_a_name_is_refused(tmp_path, module, registry, name, known):
    """A plugin may also write to the dictionaries of names, with new ones."""
    lines = f"from matgrad.{module} import {registry}\n{registry}[{{!r}}] = Mine\n"
    mine = "import matgrad as mg\nclass MineLayer(mg.LinearLayer): pass\nclass Mine: pass\n"
    before = taken()
    with pytest.raises(ValueError, match="in the package already; rename Mine"):
        load_plugin(write(tmp_path / "mine.py", mine + lines.format(name)))
    assert taken() == before
    load_plugin(write(tmp_path / "mine.py", mine + lines.format("Another")))
    assert known["Another"].__name__ == "Mine"
    with pytest.raises(ValueError, match=r"'Another' in .*mine.py already"):
        load_plugin(write(tmp_path / "other.py", mine.replace("MineL", "OtherL") + lines.format("Another")))


def test_two_plugins_cannot_define_one_name(tmp_path):
    first = load_plugin(write(tmp_path / "a.py", HALF))
    other = HALF.replace("0.5", "0.25")
    with pytest.raises(ValueError, match=r"b.py'?: there is a .* 'Half' in .*a.py already; rename HalfActivation"):
        load_plugin(write(tmp_path / "b.py", other))
    assert ACTIVATIONS["Half"] is first.HalfActivation
    with pytest.raises(ValueError, match="'Half'"):
        load_plugin(write(tmp_path / "c.py", "import matgrad as mg\nclass Half(mg.LinearLayer): pass\n"))
    both = "import matgrad as mg\nclass MineLoss(mg.HuberLoss): pass\nclass Mine(mg.HuberLoss): pass\n"
    with pytest.raises(ValueError, match="a loss 'Mine' in this file, MineLoss, already; rename Mine"):
        load_plugin(write(tmp_path / "d.py", both))


def test_a_file_that_is_loaded_again_replaces_what_it_defined(tmp_path):
    load_plugin(write(tmp_path / "a.py", HALF + "class OldLoss(mg.HuberLoss): pass\n"))
    again = load_plugin(write(tmp_path / "a.py", HALF.replace("0.5", "0.25")))
    assert ACTIVATIONS["Half"] is again.HalfActivation
    assert "Old" not in LOSSES
    copy = load_plugin(write(tmp_path / "copy.py", HALF.replace("0.5", "0.25")))
    assert ACTIVATIONS["Half"] is copy.HalfActivation


def test_what_is_run_is_what_was_hashed(tmp_path):
    """A compiled file beside the plugin, as of the same time and size, is not it."""
    import py_compile

    path = write(tmp_path / "a.py", HALF)
    time = path.stat().st_mtime
    py_compile.compile(str(path))
    path.write_text(HALF.replace("0.5", "0.7"))
    os.utime(path, (time, time))
    assert load_plugin(path).HalfActivation().factor == 0.7


# -- model files and checkpoints ---------------------------------------------------------------------


def test_a_model_is_loaded_with_the_same_plugin_only(tmp_path):
    path = write(tmp_path / "half.py", HALF)
    load_plugin(path)
    M = mg.create_model("Half;Linear", "4;5;3")
    M.fit(X, T, epochs=1)
    M.save(tmp_path / "m.npz")
    Y = M.predict(X)
    assert (mg.load(tmp_path / "m.npz").predict(X) == Y).all()
    assert "plugins" not in mg.load(tmp_path / "m.npz").information

    load_plugin(write(path, HALF.replace("0.5", "0.25")))
    expected = hashlib.sha256(HALF.encode()).hexdigest()
    with pytest.raises(
        ValueError, match=f"'HalfActivation' is from the plugin 'half.py' with the SHA-256 '{expected}'"
    ):
        mg.load(tmp_path / "m.npz")
    load_plugin(path, changed=True)
    assert mg.load(tmp_path / "m.npz").layers[0].act.factor == 0.25
    load_plugin(write(path, HALF))
    (renamed,) = [path.rename(tmp_path / "renamed.py")]
    load_plugin(renamed)
    assert (mg.load(tmp_path / "m.npz").predict(X) == Y).all(), "the content counts"


def test_another_class_of_the_same_name_is_not_the_one_of_the_file(tmp_path):
    load_plugin(write(tmp_path / "half.py", HALF))
    mg.create_model("Half;Linear", "4;5;3").save(tmp_path / "m.npz")
    for content in (HALF.replace("HalfActivation", "Half"), HALF + "# other\n"):
        load_plugin(write(tmp_path / "half.py", content))
        with pytest.raises(ValueError, match=r"'HalfActivation' is from the plugin 'half\.py'"):
            mg.load(tmp_path / "m.npz")
    ACTIVATIONS["Half"] = mg.ReLUActivation
    with pytest.raises(ValueError, match="name it, with --plugin or"):
        mg.load(tmp_path / "m.npz")


def test_the_loss_of_a_plugin_is_needed_only_where_it_is_used(tmp_path):
    path = write(tmp_path / "loss.py", LOSS)
    load_plugin(path)
    M = mg.create_model("Linear", "4;3")
    M.fit(X, T, loss="Double", epochs=1, learning_rate=0.001)
    M.save(tmp_path / "m.npz")
    del LOSSES["Double"]
    N = mg.load(tmp_path / "m.npz")
    assert (N.predict(X) == M.predict(X)).all()
    with pytest.raises(ValueError, match="the model was trained with the loss 'Double', name one"):
        N.fit(X, T, epochs=1)
    load_plugin(write(path, LOSS + "# other\n"))
    with pytest.raises(ValueError, match=r"'DoubleLoss' is from the plugin 'loss\.py'"):
        mg.load(tmp_path / "m.npz")


RULE = """
import matgrad as mg
from matgrad.sparse.rules import MagnitudePrune

class FewPrune(MagnitudePrune):
    pass

class FewMethod(mg.Callback):
    pass
"""


@pytest.mark.parametrize(
    ("content", "layers", "loss", "callbacks"),
    [
        (HALF, "Half;Linear", "SquaredError", lambda: []),
        (LOSS, "ReLU;Linear", "Double", lambda: []),
        (RULE, "ReLU;Linear", "SquaredError", lambda: [METHODS["FewMethod"]()]),
        (RULE, "ReLU;Linear", "SquaredError", lambda: [mg.Topology(PRUNERS["Few"](0.1), "Random")]),
    ],
    ids=["layer", "loss", "callback", "rule"],
)
def test_a_run_is_resumed_with_the_same_plugin_only(tmp_path, content, layers, loss, callbacks):
    path = write(tmp_path / "mine.py", content)

    def fit(**options: object) -> np.ndarray:
        mg.manual_seed(0)
        M = mg.create_model(layers, "4;5;3", densities=0.5)
        own = [*callbacks(), mg.Checkpoints(tmp_path / "ck", keep=9)]
        M.fit(X, T, loss=loss, epochs=3, learning_rate=0.001, callbacks=own, **options)
        return M.predict(X)

    load_plugin(path)
    Y = fit()
    file = sorted((tmp_path / "ck").glob("step-*"))[1]
    load_plugin(write(path, content + "# other\n"))
    with pytest.raises(ValueError, match=r"safetensors: '\w+' is from the plugin 'mine.py'"):
        fit(resume=file)
    load_plugin(write(path, content))
    for later in sorted((tmp_path / "ck").glob("*.safetensors"))[2:]:
        later.unlink()
    assert (fit(resume=file) == Y).all()


# -- classes of a script -----------------------------------------------------------------------------


def test_a_class_of_a_script_that_is_called_like_another_is_not_saved_as_that(tmp_path):
    """Its name would be read as the package's layer, activation function or loss, which computes something else."""

    class ReLUActivation(mg.ActivationFunction):
        def __call__(self, X):
            return 2 * X

        def gradient(self, X):
            return 0 * X + 2

    class LinearLayer(mg.LinearLayer):
        pass

    class MineLayer(mg.ActivationLayer):  # whose specification is that of its activation function
        pass

    for layer in (mg.ActivationLayer(4, 3, ReLUActivation()), LinearLayer(4, 3), MineLayer(4, 3, "ReLU")):
        M = mg.MultilayerPerceptron()
        M.layers.append(layer)
        M.save(tmp_path / "m.npz")
        with pytest.raises(ValueError, match=r"layer 1, .* is the specification of .*, but that names matgrad\."):
            mg.load(tmp_path / "m.npz")


def test_a_loss_of_a_script_that_is_called_like_another_is_not_kept_as_that(tmp_path):
    class SquaredErrorLoss(mg.SquaredErrorLoss):
        def gradient(self, Y, T):
            return 2 * super().gradient(Y, T)

    M = mg.create_model("Linear", "4;3")
    M.fit(X, T, loss=SquaredErrorLoss(), epochs=1, learning_rate=0.001)
    M.save(tmp_path / "m.npz")
    with pytest.raises(ValueError, match=r"the model was trained with the loss 'test_plugins.SquaredError', name one"):
        mg.load(tmp_path / "m.npz").fit(X, T, epochs=1)
