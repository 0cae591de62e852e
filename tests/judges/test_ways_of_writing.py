"""A gradient is judged by its value, in whatever way a user sets it; what is missing or unreadable is wrong."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import matgrad as mg
from cli_support import run
from matgrad.inspection.gradient_check import check_gradients
from matgrad.judges.sympy_judge import check_layer
from matgrad.matrix_operations import ones

# Y = (1_N s) ⊙ X; what follows it is the layer's way to set Ds, with a factor C, and DX
HEAD = """
import functools
import numpy as np
import matgrad as mg
from matgrad.matrix_operations import columns_sum, hadamard, row_repeat

C = {C}


def ds(layer, DY):
    return C * columns_sum(hadamard(DY, layer.X))


def dx(layer, DY):
    return hadamard(row_repeat(layer.s, DY.shape[0]), DY)


def decorated(method):
    @functools.wraps(method)
    def wrapper(self, Y, DY):
        return method(self, Y, DY)
    return wrapper


def bare(method):
    def wrapper(*arguments):
        return method(*arguments)
    return wrapper


def store(layer, Ds, DX):
    layer.Ds, layer.DX = Ds, DX


class Base(mg.Layer):
    keeps_size = True
    parameters = ("s",)

    def __init__(self, input_size, output_size):
        self.s = np.ones((1, input_size), dtype=np.float32)
        super().__init__(input_size, output_size)
        self.set_optimizer("GradientDescent")

    def feedforward(self, X):
        Y = hadamard(row_repeat(self.s, X.shape[0]), X)
        self.X = X
        return Y


class ScaleLayer(Base):
"""
WAYS = {
    "attributes": """
        def backpropagate(self, Y, DY):
            self.Ds = ds(self, DY)
            self.DX = dx(self, DY)
        """,
    "a helper function": """
        def backpropagate(self, Y, DY):
            store(self, ds(self, DY), dx(self, DY))
        """,
    "a tuple": """
        def backpropagate(self, Y, DY):
            Ds, DX = ds(self, DY), dx(self, DY)
            self.Ds, self.DX = Ds, DX
        """,
    "an equation and another value": """
        def backpropagate(self, Y, DY):
            Ds = ds(self, DY) / C
            self.Ds = C * Ds
            self.DX = dx(self, DY)
        """,
    "annotated": """
        def backpropagate(self, Y, DY):
            Ds: object = ds(self, DY)
            self.DX: object = dx(self, DY)
            self.Ds = Ds
        """,
    "walrus": """
        def backpropagate(self, Y, DY):
            store(self, (Ds := ds(self, DY)), (DX := dx(self, DY)))
        """,
    "augmented": """
        def backpropagate(self, Y, DY):
            self.Ds = 0 * self.s
            self.Ds = self.Ds + ds(self, DY)
            DX = 0 * DY
            DX = DX + dx(self, DY)
            self.DX = DX
        """,
    "setattr": """
        def backpropagate(self, Y, DY):
            setattr(self, "Ds", ds(self, DY))
            for name, value in (("DX", dx(self, DY)),):
                setattr(self, name, value)
        """,
    "decorated without a name": """
        @bare
        def backpropagate(self, Y, DY):
            Ds = ds(self, DY)
            self.Ds, self.DX = Ds, dx(self, DY)
        """,
    "a lambda": """
        backpropagate = lambda self, Y, DY: store(
            self, ds(self, DY), dx(self, DY))
        """,
    "inherited": """
        def backpropagate(self, Y, DY):
            Ds = ds(self, DY)
            self.Ds, self.DX = Ds, dx(self, DY)

    class ScaleLayer(ScaleLayer):
        pass
        """,
    "a property": """
        @property
        def Ds(self):
            return self._Ds

        @Ds.setter
        def Ds(self, value):
            self._Ds = value

        def backpropagate(self, Y, DY):
            self.Ds, self.DX = ds(self, DY), dx(self, DY)
        """,
    "exec": """
        exec("def backpropagate(self, Y, DY):\\n  Ds = ds(self, DY)\\n  self.Ds, self.DX = Ds, dx(self, DY)")
        """,
}
# what is wrong whatever C is, and what is said of it
MISTAKES = {
    "no Ds": ("Ds", "found nothing", "self.DX = dx(self, DY)"),
    "no DX": ("DX", "found nothing", "self.Ds = ds(self, DY)"),
    "a number": ("Ds", "found 3, expected a matrix", "self.Ds, self.DX = 3, dx(self, DY)"),
    "a list": ("Ds", "found [1, 2], expected a matrix", "self.Ds, self.DX = [1, 2], dx(self, DY)"),
    "infinite": ("DX", "expected a finite number", "self.Ds, self.DX = ds(self, DY), dx(self, DY) / 0"),
    "another size": ("DX", "found a matrix of size 2 × 3", "self.Ds, self.DX = ds(self, DY), dx(self, DY).T"),
}


def written(folder: Path, body: str, C: int = 1) -> ModuleType:
    """A module with the layer, from a file."""
    path = folder / f"layer_{C}.py"
    body = textwrap.indent(textwrap.dedent(body), "    ").replace("    class", "class", 1)
    path.write_text(HEAD.replace("{C}", str(C)) + body)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def symbolically(layer: mg.Layer) -> dict[str, bool]:
    return {check.name.partition(".")[2]: check.ok for check in check_layer(layer)}


def numerically(layer: mg.Layer) -> dict[str, bool]:
    X, T = np.random.default_rng(0).normal(size=(2, 5, layer.input_size))
    results = check_gradients(layer, "SquaredError", X, T)
    assert all(result.tells for result in results)
    return {result.equation.name: result.ok for result in results[1:]}


@pytest.mark.parametrize("judge", [symbolically, numerically])
@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_is_judged_by_its_value(tmp_path: Path, way: str, judge):
    for C, ok in ((1, True), (7, False)):
        layer = written(tmp_path, WAYS[way], C).ScaleLayer(2, 2)
        assert judge(layer) == {"Ds": ok, "DX": True}, f"C = {C}"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_missing_or_unreadable_is_wrong(tmp_path: Path, mistake: str):
    name, message, statement = MISTAKES[mistake]
    layer = written(tmp_path, f"def backpropagate(self, Y, DY):\n    {statement}").ScaleLayer(2, 2)
    (check,) = [check for check in check_layer(layer) if not check.ok]
    assert check.name == f"ScaleLayer.{name}"
    assert message in check.message
    assert "layer_1.py:" in check.location


def test_what_feedforward_left_is_not_a_gradient(tmp_path: Path):
    body = """
        def feedforward(self, X):
            self.Ds = 0 * self.s
            return super().feedforward(X)

        def backpropagate(self, Y, DY):
            self.DX = dx(self, DY)
        """
    layer = written(tmp_path, body).ScaleLayer(2, 2)
    assert symbolically(layer) == numerically(layer) == {"Ds": False, "DX": True}


@pytest.mark.parametrize("way", ["attributes", "a lambda", "exec"])
def test_the_command_line_finds_it(tmp_path: Path, way: str):
    written(tmp_path, WAYS[way], 7)
    result = run("verify", "--plugin", tmp_path / "layer_7.py", "--layer", "Scale")
    assert result.exit_code == 1
    assert "ScaleLayer.Ds is wrong" in result.stdout
    assert "0 of 0" not in result.stdout
    result = run("check", "--plugin", tmp_path / "layer_7.py", "--layers", "Scale;Linear", "--layer-sizes", "3;2")
    assert result.exit_code == 1
    assert "layer 1 ScaleLayer.Ds is wrong" in result.stdout


# -- what a layer may be, and what is said of it -----------------------------------------------


class Switch(mg.Layer):
    """A layer that decides by a number, and runs one of its parts only in training mode."""

    def __init__(self, rate: float, run: bool = True) -> None:
        super().__init__(2, 2)
        self.rate, self.run = rate, run
        self.part = mg.LinearLayer(2, 2)

    def parts(self):
        return (self.part,)

    def feedforward(self, X):
        self.X = X
        factor = 2 if self.rate > 0.5 else 3
        return factor * (self.part.feedforward(X) if self.run and self.training else X)

    def backpropagate(self, Y, DY):
        factor = 2 if self.rate > 0.5 else 3
        if self.run and self.training:
            self.part.backpropagate(Y, factor * DY)
            self.DX = self.part.DX
        else:
            self.DX = factor * DY


@pytest.mark.parametrize("rate", [0.2, 0.7])
def test_a_layer_may_decide_by_its_numbers(rate: float):
    assert all(symbolically(Switch(rate)).values())


def test_a_part_that_does_not_run_is_reported():
    (check,) = [check for check in check_layer(Switch(0.7, run=False)) if not check.ok]
    assert check.name == "Switch.1 LinearLayer.Y"
    assert "Switch does not run this part" in check.message
    X, T = np.random.default_rng(0).normal(size=(2, 5, 2))
    (wrong,) = [result for result in check_gradients(Switch(0.7, run=False), "SquaredError", X, T) if not result.ok]
    assert str(wrong).startswith("layer 1.1 LinearLayer.Y is wrong: Switch does not run this part")
    layer = Switch(0.7)
    layer.training = layer.part.training = False
    assert [check.note for check in check_layer(layer)] == ["", "Switch does not run this part"]
    assert all(check.ok for check in check_layer(layer))


def test_another_input_is_found():
    class Shifted(mg.LinearLayer):
        def feedforward(self, X):
            Y = super().feedforward(X)
            self.X = 2 * X
            return Y

        def backpropagate(self, Y, DY):
            self.X = self.X / 2
            super().backpropagate(Y, DY)
            self.X = 2 * self.X

    (check,) = [check for check in check_layer(Shifted(2, 4)) if not check.ok]
    assert check.name == "Shifted.X"
    assert "self.X is not the input of feedforward" in check.message


class NumpyLayer(mg.Layer):
    def feedforward(self, X):
        self.X = X
        return self.f(X)

    def f(self, X):
        return np.exp(X)

    def backpropagate(self, Y, DY):
        self.DX = DY * Y


class SummedLayer(NumpyLayer):
    def f(self, X):
        return np.array(X)


class BrokenLayer(NumpyLayer):
    def f(self, X):
        return broken(X)


def broken(X):
    return X.nothing


class HalfActivation(mg.ActivationFunction):
    def __call__(self, X):
        return X / 2


class ThirdActivation(HalfActivation):
    def gradient(self, X):
        return ones(*X.shape, like=X) / 3


@pytest.mark.parametrize(
    ("layer", "name", "message", "source"),
    [
        (NumpyLayer(2, 2), "NumpyLayer.f", "write it with those of matgrad.matrix_operations", "return np.exp(X)"),
        (SummedLayer(2, 2), "SummedLayer.Y", "found a NumPy array", "return self.f(X)"),
        (BrokenLayer(2, 2), "BrokenLayer.f", "raises AttributeError", "return X.nothing"),
        (
            mg.ActivationLayer(2, 4, HalfActivation()),
            "HalfActivation.gradient",
            "is not defined",
            "class HalfActivation",
        ),
        (mg.ActivationLayer(2, 4, ThirdActivation()), "ThirdActivation.gradient", "expected  G_11/2", "/ 3"),
    ],
)
def test_the_first_failure_names_class_method_and_line(layer: mg.Layer, name: str, message: str, source: str):
    first = next(check for check in check_layer(layer) if not check.ok)
    assert first.name == name
    assert message in first.message
    assert source in first.message
    assert "test_ways_of_writing.py:" in first.location
