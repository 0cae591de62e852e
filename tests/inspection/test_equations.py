"""Equations: what is read from the source of a layer, and watching and changing their values."""

from __future__ import annotations

import importlib.util
import linecache
import traceback
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.inspection.equations import METHODS, assignment, equations
from matgrad.inspection.observing import observed
from matgrad.matrix_operations import columns_sum, product_on, row_repeat

LAYERS = (
    mg.LinearLayer,
    mg.ActivationLayer,
    mg.SoftmaxLayer,
    mg.LogSoftmaxLayer,
    mg.SReLULayer,
    mg.BatchNormalizationLayer,
    mg.LayerNormalizationLayer,
    mg.RMSNormalizationLayer,
    mg.DropoutLayer,
)

USER_FILE = '''"""A user's layers."""
import matgrad as mg
from matgrad.matrix_operations import hadamard, row_repeat, columns_sum


def scaled(factor):
    class ScaleLayer(mg.Layer):
        """Y = factor·((1_N s) ⊙ X), with a closure, a private name and more than one line an equation."""

        parameters = ("s",)

        def __init__(self, D):
            self.__factor = 1.0
            self.s = __import__("numpy").ones((1, D), dtype="float32")
            super().__init__(D, D)
            self.set_optimizer("GradientDescent")

        def feedforward(self, X):
            N = X.shape[0]

            S = row_repeat(self.s, N)
            Y = factor * self.__factor * hadamard(
                S, X
            )

            self.X = X
            return Y

        def backpropagate(self, Y, DY, *, unused=None):
            N, _ = DY.shape
            def helper(A):
                B = factor * A
                return B

            Ds = columns_sum(helper(hadamard(DY, self.X)))
            DX = factor * hadamard(DY, row_repeat(self.s, N))

            self.Ds, self.DX = Ds, DX

    return ScaleLayer


class Doubled(mg.ActivationLayer):
    def feedforward(self, X):
        Z = super().feedforward(X)
        Y = 2 * Z
        return Y

    def backpropagate(self, Y, DY):
        DZ = 2 * DY
        super().backpropagate(Y, DZ)


class Passing(Doubled):
    def feedforward(self, X):
        return super().feedforward(X)
'''


def user_module(folder: Path, text: str = USER_FILE):
    """A module from a file with this text."""
    path = folder / "user_layers.py"
    path.write_text(text, encoding="utf-8")
    specification = importlib.util.spec_from_file_location("user_layers", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def names(layer_class: type[mg.Layer], method: str) -> list[str]:
    return [equation.name for equation in equations(layer_class, method)]


# -- reading -----------------------------------------------------------------------------------


def test_an_inherited_equation_has_the_name_of_the_layer_and_the_place_of_the_base_class():
    Z, Y = equations(mg.ActivationLayer, "feedforward")
    (base,) = equations(mg.LinearLayer, "feedforward")
    assert (str(Z), str(Y), str(base)) == ("ActivationLayer.Z", "ActivationLayer.Y", "LinearLayer.Y")
    assert (Z.file, Z.line, Z.source) == (base.file, base.line, base.source)
    assert Z.owner is mg.ActivationLayer
    DW = equations(mg.ActivationLayer, "backpropagate")[1]
    assert (str(DW), DW.owner) == ("ActivationLayer.DW", mg.LinearLayer)
    assert DW.source == "DW = product_on(W, DY.T, X)"


def test_a_user_layer_with_closure_private_name_and_long_lines(tmp_path: Path):
    ScaleLayer = user_module(tmp_path).scaled(3.0)
    S, Y = equations(ScaleLayer, "feedforward")
    assert (S.name, Y.name) == ("S", "Y")
    assert Y.source == "Y = factor * self.__factor * hadamard( S, X )"
    assert "Y = factor" in USER_FILE.splitlines()[Y.line - 1]
    assert names(ScaleLayer, "backpropagate") == ["Ds", "DX"]


def test_results_of_base_classes_are_named_by_their_caller(tmp_path: Path):
    module = user_module(tmp_path)
    for layer_class in (module.Doubled, module.Passing):
        found = [(e.name, e.owner.__name__) for e in equations(layer_class, "feedforward")]
        assert found == [("Z", "ActivationLayer"), ("Z", "Doubled"), ("Y", "Doubled")]
        found = [(e.name, e.owner.__name__) for e in equations(layer_class, "backpropagate")]
        expected = [("DZ", "Doubled"), ("DZ", "ActivationLayer"), *((n, "LinearLayer") for n in ("DW", "Db", "DX"))]
        assert found == expected


class Branches(mg.LinearLayer):
    """What is an equation and what is not."""

    def feedforward(self, X):
        N = X.shape[0]
        W, b = self.W, self.b
        alpha = 0.5
        A = B = X
        A += B
        C: np.ndarray = A
        V = W.T
        for _ in range(2):
            H = X @ V
        try:
            with np.errstate():
                Y = H + row_repeat(b, N)
        finally:
            Y = alpha * Y
        self.X, self.R = C, None
        return Y

    def backpropagate(self, Y, DY):
        if self.training:
            DX = DY @ self.W
        elif Y is None:
            DX = DY
        else:
            DX = -DY
        while False:
            DW = product_on(self.W, DY.T, self.X)
        match Y:
            case None:
                Db = columns_sum(DY)
        self.DX, self.DW, self.Db = DX, DW, Db


def test_what_is_an_equation():
    sources = [equation.source for equation in equations(Branches, "feedforward")]
    assert sources == ["V = W.T", "H = X @ V", "Y = H + row_repeat(b, N)", "Y = alpha * Y"]
    sources = [equation.source for equation in equations(Branches, "backpropagate")]
    assert sources == [
        "DX = DY @ self.W",
        "DX = DY",
        "DX = -DY",
        "DW = product_on(self.W, DY.T, self.X)",
        "Db = columns_sum(DY)",
    ]


def test_bad_input_is_refused_with_a_clear_error():
    with pytest.raises(ValueError, match="expected one of feedforward, backpropagate, found 'optimize'"):
        equations(mg.LinearLayer, "optimize")
    space = {"mg": mg}
    exec("class Unseen(mg.LinearLayer):\n  def feedforward(self, X):\n    Y = X\n    return Y", space)
    with pytest.raises(ValueError, match=r"the source of Unseen\.feedforward is not available"):
        equations(space["Unseen"], "feedforward")

    class Short(mg.LinearLayer):
        feedforward = lambda self, X: X  # noqa: E731

    with pytest.raises(ValueError, match="expected a plain"):
        equations(Short, "feedforward")
    short = Short(2, 3)
    with observed([short], lambda *args: None):
        assert short.feedforward(1) == 1


class Setting(mg.Layer):
    """Attributes and variables that are set in all forms."""

    def __init__(self) -> None:
        self.Da = self.Dz = 0

    def backpropagate(self, Y, DY):
        self.Da = 1
        (self.Db, [Dc, *Dd]), De = (2, [3, 4]), 5
        Df: int = 6
        self.Dg += 7
        if (Dh := 8) and Df:
            pass
        for Dj in (Dc, Dd, De, Dh):
            self.helper(Dj)
        self.Da = max(
            10,
            11,
        )

    def helper(self, Dk):
        self.Dk = Dk


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("Da", "self.Da = max( 10, 11, )"),
        ("Dd", "(self.Db, [Dc, *Dd]), De = (2, [3, 4]), 5"),
        ("Df", "Df: int = 6"),
        ("Dg", "self.Dg += 7"),
        ("Dk", "self.Dk = Dk"),
        ("Dz", "def backpropagate(self, Y, DY):"),
    ],
)
def test_where_something_is_set(name: str, source: str):
    found = assignment(Setting, "backpropagate", name)
    assert found.source == source
    line = Path(found.file).read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert line.strip().startswith(source.split("(")[0].strip())
    assert str(found) == f"Setting.{name}"


# -- watching ----------------------------------------------------------------------------------


def run(layer: mg.Layer, N: int = 5, seed: int = 0) -> list[np.ndarray]:
    """Output and gradients of the layer for a random batch."""
    rng = np.random.default_rng(seed)
    Y = layer.feedforward(rng.normal(size=(N, layer.input_size)).astype(np.float32))
    layer.backpropagate(Y, rng.normal(size=Y.shape).astype(np.float32))
    return [Y, layer.DX, *(getattr(layer, f"D{name}") for name in layer.parameters)]


def classes() -> list:
    return [dict(vars(cls)) for cls in (mg.Layer, *LAYERS)]


def make(layer_class: type[mg.Layer]) -> mg.Layer:
    mg.manual_seed(1)
    return layer_class(4, 3, mg.ReLUActivation()) if layer_class is mg.ActivationLayer else layer_class(4, 4)


@pytest.mark.parametrize("layer_class", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_results_are_identical_and_every_equation_is_seen_in_order(layer_class, training: bool):
    layer = make(layer_class)
    layer.training = training
    expected, before, own = run(layer), classes(), set(vars(layer))
    seen = []
    with observed([layer], lambda layer, equation, value: (seen.append((equation, value)), value)[1]):
        actual = run(layer)
        assert classes() == before
        assert type(layer) is layer_class
    assert vars(layer).keys() == own
    for A, E in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(A, E)
    listed = [e for method in METHODS for e in equations(layer_class, method)]
    for equation in listed:
        line = linecache.getline(equation.file, equation.line)
        assert line.strip().partition("  #")[0] == equation.source
    skipped = {"s", "t", "DX"} if layer_class is mg.BatchNormalizationLayer else set()  # in one of two branches
    assert [e for e, _ in seen if e.name not in skipped] == [e for e in listed if e.name not in skipped]
    assert sum(e.name == "DX" for e, _ in seen) == 1
    values = {e.name: value for e, value in seen}
    assert values["Y"] is actual[0]
    assert values["DX"] is actual[1]


def test_a_hook_changes_values():
    layer = make(mg.ActivationLayer)
    with observed([layer], lambda layer, equation, value: 0 * value if equation.name == "DZ" else value):
        _, DX, DW, Db = run(layer)
    assert not DX.any()
    assert not DW.any()
    assert not Db.any()
    assert run(layer)[1].any()


def test_a_copy_of_an_observed_layer_is_a_plain_layer():
    layer = make(mg.ActivationLayer)
    expected = run(make(mg.ActivationLayer))
    with observed([layer], lambda layer, equation, value: 0 * value):
        twin = layer.clone()
        actual = run(twin)
        assert layer.X is None
    for A, E in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(A, E)


def test_a_method_that_was_replaced_in_the_object_stays():
    layer = make(mg.ActivationLayer)
    layer.feedforward = replaced = lambda X: mg.ActivationLayer.feedforward(layer, X)
    seen = []
    with observed([layer], lambda layer, equation, value: (seen.append(equation.name), value)[1]):
        assert layer.feedforward is replaced
        run(layer)
    assert layer.feedforward is replaced
    assert seen == ["DZ", "DW", "Db", "DX"]


def test_contexts_nest_and_the_outer_hook_comes_first():
    layer = make(mg.ActivationLayer)
    own = set(vars(layer))
    plain = run(layer)[0]
    calls = []

    def hook(factor: float, outer: bool):
        def inner(layer, equation, value):
            calls.append((outer, equation.name))
            return value + factor if equation.name == "Y" else value

        return inner

    with observed([layer], hook(1, True)):
        with observed([layer], hook(2, False)):
            assert equations(mg.ActivationLayer, "feedforward")[0].name == "Z"
            both = run(layer)[0]
        assert calls[:4] == [(True, "Z"), (False, "Z"), (True, "Y"), (False, "Y")]
        calls.clear()
        one = run(layer)[0]
        assert {outer for outer, _ in calls} == {True}
    np.testing.assert_allclose(both, plain + 3, rtol=1e-6)
    np.testing.assert_allclose(one, plain + 1, rtol=1e-6)
    assert set(vars(layer)) == own
    np.testing.assert_array_equal(run(layer)[0], plain)


def test_a_traceback_under_observation_shows_the_line_of_the_equation():
    layer = make(mg.ActivationLayer)

    def failing(X):
        raise ArithmeticError

    layer.act = failing
    with pytest.raises(ArithmeticError) as plain:
        run(layer)
    with pytest.raises(ArithmeticError) as watched, observed([layer], lambda layer, equation, value: value):
        run(layer)

    def frames(error):
        return [f for f in traceback.extract_tb(error.tb) if f.filename.endswith("linear.py")]

    (expected,), (actual,) = frames(plain), frames(watched)
    assert actual.line == expected.line == "Y = act(Z)"
    assert (actual.lineno, actual.colno, actual.end_colno) == (expected.lineno, expected.colno, expected.end_colno)


def test_user_layers_from_a_file_are_observed(tmp_path: Path):
    module = user_module(tmp_path)
    for layer in (module.scaled(3.0)(4), module.Doubled(4, 3, mg.SigmoidActivation())):
        expected, seen = run(layer), []
        with observed([layer], lambda layer, equation, value, seen=seen: (seen.append(equation), value)[1]):
            actual = run(layer)
        for A, E in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(A, E)
        assert seen == [e for method in METHODS for e in equations(type(layer), method)]


class Halved(mg.Layer):
    """A mixin: which class `super()` goes to depends on the layer."""

    def feedforward(self, X):
        H = 0.5 * X
        Y = super().feedforward(H)
        return Y

    def renewed(self):
        return super().specification()


class HalvedLinear(Halved, mg.LinearLayer):
    def feedforward(self, X):
        S = 3 * super(HalvedLinear, self).feedforward(X)  # noqa: UP008
        if super().renewed() != "HalvedLinear":  # not `assert`, which pytest rewrites: the source would be another
            raise AssertionError
        return S


def test_super_goes_where_it_goes_without_observation():
    layer, seen = HalvedLinear(4, 3), []
    expected = run(layer)
    with observed([layer], lambda _, e, value: (seen.append((e.name, e.owner.__name__)), value)[1]):
        actual = run(layer)
    for A, E in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(A, E)
    assert seen[:3] == [("H", "Halved"), ("Y", "Halved"), ("S", "HalvedLinear")]
    bare = Halved(4, 3)
    with observed([bare], lambda layer, equation, value: value), pytest.raises(NotImplementedError):
        run(bare)
