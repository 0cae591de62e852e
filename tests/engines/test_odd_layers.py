"""Compiled = eager for odd code of users: one representative of each kind that is followed, refused or warned of.

A twist computes a number c, or changes a matrix A, in a way that only eager execution sees as a matter of course.

These kinds are no longer caught, since they break the contract of docs/limits.md in ways that a shallow look at
attributes does not show: state that a step keeps in globals, closures, classes, modules, caches, iterators or inside
objects, if it first matters after more than two steps and not in the first batch of epochs 1, 2, 4, 8, …; a value that
is computed in the first step and kept (1/N of the first batch); a random generator that two recordings happen to draw
equal decisions from; the weights of another layer, read through a function. Recording may draw numbers from generators.
"""

from __future__ import annotations

import linecache
import sys
import textwrap
import warnings
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import matgrad as mg
from matgrad.activation_functions import HyperbolicTangentActivation
from matgrad.program.purity import Snapshot
from support import AfterEpoch, spread

ENGINES = ("numpy", "torch", "native")
D, H, K, N = 3, 4, 2, 12


@dataclass(frozen=True)
class Twist:
    """Code with the names A (a matrix), c (a number) and self; `between` runs between two epochs, with self."""

    name: str
    code: str  # in the method
    init: str = "pass"  # in __init__
    module: str = ""  # before the class
    between: str = "pass"
    place: str = "feedforward"
    is_compiled: bool = True  # whether without a warning


def setting(name: str, first: str, between: str, read: str, **details: Any) -> Twist:
    """A value that is changed between two epochs."""
    return Twist(name, f"c = {read}", f"self.v = {first}", between=between, **details)


def uncompiled(name: str, code: str, *rest: str, **details: Any) -> Twist:
    return Twist(name, code, *rest, is_compiled=False, **details)


LATE = "c = 1.0 if n < 5 else 2.0"  # of a counter that shows only after some steps
SETTINGS = [
    setting("a number", "0.5", "self.v = 0.8", "self.v"),
    setting("a number of an activation", "0.5", "self.v = 0.8", "self.v", place="activation"),
    setting("a number of an optimizer", "0.5", "self.v = 0.8", "self.v", place="optimizer"),
    setting("a number of a loss", "0.5", "self.v = 0.8", "self.v", place="loss"),
    setting("an array in place", "np.array([[0.5]])", "self.v *= 1.5", "float(self.v[0, 0])"),
    setting("a nested dictionary", "{'x': [0.5]}", "self.v['x'][0] = 0.8", "self.v['x'][0]"),
    setting("an object", "types.SimpleNamespace(x=0.5)", "self.v.x = 0.8", "self.v.x"),
    setting("a function", "lambda: 0.5", "self.v = lambda: 0.8", "self.v()"),
    Twist("a global", "c = RATE", module="RATE = 0.5\n", between="global RATE\nRATE = 0.8"),
]
TWISTS = [
    *SETTINGS,
    uncompiled("a counter", "self.n += 1\nc = 1.0 / self.n", "self.n = 0"),
    uncompiled("a counter that shows late", f"self.n += 1\nn = self.n\n{LATE}", "self.n = 0"),
    uncompiled("a counter of an activation", f"self.n += 1\nn = self.n\n{LATE}", "self.n = 0", place="activation"),
    uncompiled("a counter in a list", f"self.n[0] += 1\nn = self.n[0]\n{LATE}", "self.n = [0]"),
    uncompiled("a counter in an array", f"self.n += 1\nn = self.n[0]\n{LATE}", "self.n = np.zeros(1)"),
    uncompiled("a growing list", f"self.d.append(1)\nn = len(self.d)\n{LATE}", "self.d = []", place="optimizer"),
    uncompiled("the last matrix", "A, self.last = A + (0.1 * self.last if self.last is not None else 0 * A), A",
               "self.last = None", place="activation"),
    Twist("an attribute of this step", "self.N = A.shape[0]\nc = 1 / self.N"),
    Twist("matrices of this step in a list", "self.seen = [A, A]\nA = self.seen[0] + self.seen[1]"),
    uncompiled("numbers of a matrix", "try:\n    c = 0.5 if float(elements_sum(A)) > 0 else 0.8\nexcept TypeError:\n"
               "    c = 2.0"),
    uncompiled("a method of arrays", "c = float(A.max() > -100)"),
    uncompiled("the type of a matrix", "c = 0.5 if type(A).__name__ in ('ndarray', 'Tensor') else 2.0"),
    Twist("the number of examples", "c = 1 / A.shape[0] if len(A) > 3 else 2.0"),
    Twist("an alias in place", "A = 1 * A\nB = A\nB *= 0.5"),
    uncompiled("a transpose in place", "A = 1 * A\nB = A.T\nB *= 0.5"),
    uncompiled("an element in place", "A = 1 * A\nA[0, 0] = 0.5"),
    uncompiled("the targets in place", "T *= 0.5", place="loss"),
    Twist("weights in place", "self.x *= 0.99", place="optimizer"),
]  # fmt: skip

LAYER = """
class Odd(mg.LinearLayer):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        {init}
    def feedforward(self, X):
        A, c = X, 1.0
        {code}
        return super().feedforward(c * A)
"""
PLACES = {
    "feedforward": LAYER,
    "activation": """
class Odd(mg.ActivationFunction):
    def __init__(self):
        {init}
    def __call__(self, Z):
        A, c = Z, 1.0
        {code}
        return c * A
    def gradient(self, Z):
        return ones(*Z.shape, like=Z)
""",
    "optimizer": """
class Odd(mg.Optimizer):
    def __init__(self, x, Dx):
        super().__init__(x, Dx)
        {init}
    def update(self, eta):
        A, c = self.Dx, 1.0
        {code}
        self.x = self.x - eta * (c * A)
""",
    "loss": """
class Odd(mg.LossFunction):
    accepts = {{"real"}}
    def __init__(self):
        {init}
    def __call__(self, Y, T):
        return elements_sum(hadamard(Y - T, Y - T))
    def gradient(self, Y, T):
        A, c = Y, 1.0
        {code}
        return c * A - T
""",
}
HEADER = "import types\nimport numpy as np\nimport matgrad as mg\nfrom matgrad.matrix_operations import *\n"
_numbers = count()


def made(twist: Twist, engine: str) -> tuple[mg.MultilayerPerceptron, mg.LossFunction, Any]:
    """A model with the odd part in its middle, the loss, and the change between two epochs."""
    parts = {name: textwrap.indent(getattr(twist, name), " " * 8).lstrip() for name in ("init", "code")}
    source, name = HEADER + twist.module + PLACES[twist.place].format(**parts), f"odd_{next(_numbers)}"
    sys.modules[name] = module = ModuleType(name)
    linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(keepends=True), f"<{name}>")
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    mg.manual_seed(0)
    Odd, loss, middle = module.Odd, mg.MeanSquaredErrorLoss(), mg.LinearLayer(H, H)
    if twist.place == "feedforward":
        middle = Odd(H, H)
    elif twist.place == "activation":
        middle = mg.ActivationLayer(H, H, Odd())
    M = mg.MultilayerPerceptron([mg.ActivationLayer(D, H, "HyperbolicTangent"), middle, mg.LinearLayer(H, K)])
    M.set_optimizer("GradientDescent")
    M.to(engine, dtype="float64")
    if twist.place == "optimizer":
        middle.optimizer = Odd(middle.W, None)
    elif twist.place == "loss":
        loss = Odd()
    odd = {"feedforward": middle, "activation": getattr(middle, "act", None), "optimizer": middle.optimizer}
    names = {"self": odd.get(twist.place, loss)}
    return M, loss, lambda: exec(textwrap.dedent(twist.between), module.__dict__, names)


def trained(twist: Twist, engine: str, *, compiled: bool) -> dict[str, np.ndarray] | str:
    """The state after training, or the name of the error."""
    rng = np.random.default_rng(0)
    M, loss, between = made(twist, engine)
    loader = mg.DataLoader(rng.normal(size=(N, D)), rng.normal(size=(N, K)), 5).to(M.backend.name, dtype="float64")
    options = {"compiled": compiled, "callbacks": [AfterEpoch(lambda run: between())]}
    try:
        mg.stochastic_gradient_descent(M, 2, loss, mg.ConstantScheduler(0.05), loader, **options)
    except Exception as error:
        return type(error).__name__
    return {name: M.backend.to_numpy(A) for name, A in M.state().items()}


@pytest.mark.parametrize(("twist", "engine"), spread(TWISTS, ENGINES, name=lambda twist: twist.name))
def test_compiled_training_computes_what_the_equations_do(twist: Twist, engine: str):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expected, found = (trained(twist, engine, compiled=compiled) for compiled in (False, True))
    if isinstance(expected, str):
        assert found == expected
        return
    for name, A in expected.items():
        np.testing.assert_allclose(found[name], A, rtol=1e-9, atol=1e-12, err_msg=name)
    messages = [str(w.message) for w in caught if "uncompiled" in str(w.message)]
    assert len(messages) == (not twist.is_compiled), messages


@pytest.mark.parametrize("twist", SETTINGS, ids=lambda twist: twist.name)
def test_predictions_follow_settings_of_all_kinds(twist: Twist):
    M, _, change = made(twist, "numpy")
    X = np.random.default_rng(0).normal(size=(2500, D))
    for _ in range(2):
        np.testing.assert_allclose(M.predict(X), M.clone().eval().feedforward(X), rtol=1e-9)
        change()


COUNTER = """
CALLS = 0
def calls():
    global CALLS
    CALLS += 1
    return CALLS
"""


def test_a_difference_that_shows_in_a_later_epoch_is_caught_there():
    """State that no snapshot shows: the comparison on a real batch finds it in epoch 2, 4 or 8."""
    twist = uncompiled("a global counter", "c = 1.0 if calls() < 9 else 2.0", module=COUNTER)
    with pytest.warns(UserWarning, match="continues uncompiled"):
        trained(twist, "numpy", compiled=True)


def test_the_warning_names_what_is_kept():
    twist = next(twist for twist in TWISTS if twist.name == "a counter")
    with pytest.warns(UserWarning, match=r"a layer keeps Odd\.n from step to step"):
        trained(twist, "numpy", compiled=True)


BUILT_IN = [
    *(f"{name.removesuffix('Layer')}" for name in ("LayerNormalizationLayer", "RMSNormalizationLayer")),
    *("BatchNormalization", "Dropout(0.5)", "ReLU", "SReLU", "LeakyReLU(0.1)", "Softmax", "LogSoftmax", "Linear"),
]


@pytest.mark.parametrize("layer", BUILT_IN)
def test_what_the_package_has_is_built_in(layer: str):
    M = mg.create_model(f"{layer};Linear", "4;3" if "Norm" in layer or "Drop" in layer else "4;4;3")
    for optimizer in ("GradientDescent", "Momentum(0.9)", "Adam", "AdamW"):
        M.set_optimizer(optimizer)
        assert Snapshot(M, mg.SoftmaxCrossEntropyLoss()).is_builtin
    M.layers[0].note = lambda: 1
    assert not Snapshot(M).is_builtin


SETTINGS_OF_OURS = {
    "an activation": lambda M, loss: setattr(M.layers[0].act, "alpha", 0.7),
    "another activation": lambda M, loss: setattr(M.layers[0], "act", HyperbolicTangentActivation()),
    "a layer": lambda M, loss: setattr(M.layers[1], "momentum", 0.5),
    "an optimizer": lambda M, loss: setattr(M.layers[0]._optimizers["W"], "mu", 0.2),
    "another optimizer": lambda M, loss: M.layers[0].set_optimizer("GradientDescent"),
    "a loss": lambda M, loss: setattr(loss, "delta", 0.1),
    "the mode of dropout": lambda M, loss: setattr(M.layers[3], "dropout", 0.0),
    "a layer of the model": lambda M, loss: M.layers.__setitem__(2, mg.ActivationLayer(4, 4, "ReLU")),
}


@pytest.mark.parametrize(("name", "engine"), spread(list(SETTINGS_OF_OURS), ENGINES, name=str))
def test_training_follows_settings_of_the_package(name: str, engine: str):
    """No stale result: between two epochs, between two fits, and in evaluation."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(1500, D)), rng.normal(size=(1500, K))
    states = []
    for compiled in (False, True):
        mg.manual_seed(0)
        layers = [mg.ActivationLayer(D, 4, "LeakyReLU(0.1)"), mg.BatchNormalizationLayer(4)]
        layers += [mg.LinearLayer(4, 4), mg.LinearDropoutLayer(4, K, dropout=0.3)]
        M, loss = mg.MultilayerPerceptron(layers), mg.HuberLoss()
        M.set_optimizer("Momentum(0.9)")
        M.to(engine, dtype="float64")

        def change(run, M=M, loss=loss) -> None:
            if run.epoch == 1:
                SETTINGS_OF_OURS[name](M, loss)
                M.to(engine, dtype="float64")

        options = {"epochs": 2, "batch_size": 500, "seed": 0, "compiled": compiled}
        history = M.fit(X, T, loss=loss, callbacks=[AfterEpoch(change)], **options)
        M.layers[-1].b = 2 * M.layers[-1].b
        again = M.fit(X, T, loss=loss, **options)
        states.append({"loss": history["loss"] + again["loss"], "Y": M.predict(X)})
    for key, A in states[0].items():
        np.testing.assert_allclose(states[1][key], A, rtol=1e-7, atol=1e-10, err_msg=key)
