"""Explanations: the equations of a step in order, with values, formulas, sources and verdicts that are right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from html_support import formulas, parsed, text

import matgrad as mg
from architectures import random_architecture, torch_gradients
from matgrad.datasets import Normalization
from matgrad.explanation.page import page_data
from matgrad.explanation.text import matrix_text
from matgrad.matrix_operations import columns_sum
from matgrad.sparse.matrix import SparseMatrix

PACKAGE = Path(mg.__file__).parents[1]
CUSTOM = Path(__file__).parents[2] / "docs" / "custom.py"


def explained(layers: str, sizes: str, N: int = 5, **options) -> mg.Explanation:
    """A new model, explained on random examples of random classes."""
    mg.manual_seed(0)
    wanted = {name: options.pop(name) for name in ("densities", "dropouts") if name in options}
    M = mg.create_model(layers, sizes, **wanted)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, M.layers[0].input_size))
    return mg.explain(M, X, rng.integers(0, M.layers[-1].output_size, N), **options)


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_gradients_are_those_of_torch(seed):
    a = random_architecture(seed)
    found = mg.explain(a.M, a.X, a.T, loss=a.loss)
    a.M.train().feedforward(a.X)  # draws what dropout drops, which torch is given
    for name, expected in torch_gradients(a).items():
        layer, _, parameter = name.rpartition(".")
        value = found[f"layer {layer or 1} D{parameter}"].value
        value = value.to_dense() if isinstance(value, SparseMatrix) else value
        if value.shape != expected.shape:  # a parameter of SReLU that all columns share
            value = value.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-11 * max(np.abs(expected).max(), 1e-3))


def test_the_update_is_that_of_torch():
    e = explained("ReLU;Linear", "4;5;3", eta=0.1)
    W = torch.tensor(e.M.layers[0].W, requires_grad=True)
    W.grad = torch.tensor(e["layer 1 DW"].value)
    torch.optim.SGD([W], lr=0.1, momentum=0.9).step()
    np.testing.assert_allclose(e["layer 1 W"].value, W.detach(), rtol=1e-13)


def test_examples_are_normalized_as_in_training():
    M = mg.create_model("Linear", "2;1")
    X, T = np.array([[0.0, 4.0], [2.0, 0.0]]), np.array([10.0, 20.0])
    M.normalization, M.target_normalization = (Normalization.of("standard", A) for A in (X, T[:, None]))
    e = mg.explain(M, X, T)
    np.testing.assert_allclose(e.X, [[-1, 1], [1, -1]])
    np.testing.assert_allclose(e.T, [[-1], [1]])


# -- what is shown -----------------------------------------------------------------------------


def test_the_order_is_that_of_execution():
    e = explained("ReLU;Linear", "4;5;3")
    names = [f"{x.phase} {x.name}" for x in e]
    assert names[:12] == [
        *("feedforward Z1", "feedforward Y1", "feedforward Y2", "loss ℒ", "loss DY", "backpropagate DW2"),
        *("backpropagate Db2", "backpropagate DX2", "backpropagate DZ1", "backpropagate DW1", "backpropagate Db1"),
        "backpropagate DX1",
    ]
    assert e["layer 2 DW"] is e["layer 2 LinearLayer.DW"] is e["DW2"]
    assert names[12:16] == [f"optimize {x}'" for x in ("W1.delta", "W1", "b1.delta", "b1")]


@pytest.mark.parametrize("layers", ["BatchNormalization;GELU;LogSoftmax", "SReLU;Dropout(0.5);Softmax"])
def test_the_source_is_what_stands_in_the_file(layers):
    for x in explained(layers, "3;4;2"):
        file, line = x.written.location.rsplit(":", 1)
        lines = (PACKAGE / file).read_text().splitlines()
        assert x.written.source.split("  #")[0].split("\n")[0] in lines[int(line) - 1], x.title


def test_formulas():
    e = explained("ReLU;Softmax", "3;4;2")
    assert e["layer 1 DZ"].written.latex == r"\mathsf{D}Z = \mathsf{D}Y \odot \mathrm{relu}'(Z)"
    assert e["layer 2 DW"].written.numbered == r"\mathsf{D}W_2 = \mathsf{D}Z_2^\top \cdot Y_1"
    assert e["layer 2 DW"].written.text == "DW2 = DZ2ᵀ Y1"
    assert e["layer 2 Y"].written.text == "Y2 = softmax(Z2)"
    assert e["layer 2 Y"].written.opened.startswith(r"\begin{aligned} U_1 &= e^{Z_2 - \max(Z_2)")
    assert e["loss"].written.numbered.startswith(r"\mathcal{L} = ")
    assert e["layer 1 W.delta"].written.latex == r"\Delta' = \mu \cdot \Delta - \eta \cdot \mathsf{D}x"
    assert e["layer 1 W"].written.latex == r"x' = x + \Delta'"


def test_what_is_switched_off_is_not_written():
    e = explained("BatchNormalization;ReLU;Linear", "3;4;2", dropouts="0.5;0")
    assert e["layer 1 mu"].written.latex == r"\mu = \frac{1_N^\top \cdot X}{N}"
    assert "if" not in e["layer 1 DX"].written.latex
    assert e["layer 2 Z"].written.latex == r"Z = X \cdot (W \odot R)^\top + 1_N \cdot b"
    assert e["layer 3 Y"].written.latex == r"Y = X \cdot W^\top + 1_N \cdot b"


def test_parts_of_a_layer_of_ones_own():
    mg.load_plugin(CUSTOM)
    e = explained("Shortcut;Linear", "4;3")
    assert [x.name for x in e][:4] == ["Z1.1", "Y1.1", "Y1.2", "Z1"]
    assert e["layer 1.2 DW"].shape == (4, 4)
    assert e["layer 1 Y"].written.location.endswith("custom.py:" + e["layer 1 Y"].written.location.split(":")[1])


def test_sparse_matrices_have_holes():
    e = explained("ReLU;Linear", "6;8;3", densities="0.25;1")
    W, DW = e.M.layers[0].W, e["layer 1 DW"].value
    assert isinstance(DW, SparseMatrix)
    assert DW.support is W.support
    assert isinstance(e["layer 1 W"].value, SparseMatrix)
    assert matrix_text(DW).count("·") == 6 * 8 - W.support.nnz


# -- verdicts ----------------------------------------------------------------------------------


class WrongLayer(mg.LinearLayer):
    """A linear layer whose Db is wrong."""

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)

        Db = 2 * columns_sum(DY)

        self.Db = Db


class WrongLoss(mg.SquaredErrorLoss):
    """A loss whose gradient is wrong."""

    def gradient(self, Y, T):
        return 3 * (Y - T)


class StoringLayer(mg.LinearLayer):
    """A linear layer with a right equation of DW, which stores something else, and DX without an equation."""

    def backpropagate(self, Y, DY):
        X, W = self.X, self.W

        DW = DY.T @ X
        Db = columns_sum(DY)

        self.DW, self.Db, self.DX = 2 * DW, Db, DY @ W


class RepeatingLayer(mg.LinearLayer):
    """A linear layer whose Db has two values, of which the last is right."""

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)

        Db = 7 * columns_sum(DY)
        Db = Db / 7

        self.Db = Db


class MomentumOptimizer(mg.GradientDescentOptimizer):
    """An optimizer with the name of another."""


class ScaledLayer(mg.Layer):
    """Y = c X: a layer whose constructor is not that of others."""

    keeps_size = True

    def __init__(self, factor: float, size: int) -> None:
        super().__init__(size, size)
        self.factor = factor

    def feedforward(self, X):
        Y = self.factor * X

        self.X = X
        return Y

    def backpropagate(self, Y, DY):
        DX = self.factor * DY

        self.DX = DX


def test_what_a_layer_stores_is_judged_however_it_was_computed():
    e = mg.explain(mg.MultilayerPerceptron([StoringLayer(3, 2)]), np.eye(3), [0, 1, 0])
    computed, stored = (x for x in e if x.title == "layer 1 StoringLayer.DW")
    assert computed.verdict.ok is None
    assert stored.verdict.ok is False
    np.testing.assert_array_equal(stored.value, 2 * computed.value)
    assert e["layer 1 DW"] is stored
    assert e["layer 1 DX"].verdict.ok
    assert e["layer 1 DX"].written.source.startswith("self.DW, self.Db, self.DX = ")


def test_of_two_values_the_last_one_is_judged_and_found():
    e = mg.explain(mg.MultilayerPerceptron([RepeatingLayer(3, 2)]), np.eye(3), [0, 1, 0])
    assert [x.verdict.ok for x in e if x.quantity == "Db"] == [None, None, True]
    np.testing.assert_allclose(e["layer 1 Db"].value, e["DY"].value.sum(axis=0, keepdims=True))


def test_only_the_first_wrong_equation_is_blamed():
    e = mg.explain(mg.MultilayerPerceptron([mg.LinearLayer(3, 2)]), np.eye(3), [0, 1, 0], loss=WrongLoss())
    assert e["DY"].verdict.ok is False
    assert e["layer 1 DW"].verdict.ok is None
    assert "WrongLoss.DY is wrong, on which it depends" in e["layer 1 DW"].verdict.details[0]


def test_a_class_is_not_judged_by_the_checks_of_another_of_its_name():
    M = mg.MultilayerPerceptron([mg.LinearLayer(2, 2)])
    M.layers[0].set_optimizer("GradientDescent")
    M.layers[0]._optimizers["W"] = MomentumOptimizer(M.layers[0].W, None)
    e = mg.explain(M, np.eye(2), [0, 1], verify=True)
    assert e["layer 1 W"].verdict.ok is None
    assert e["layer 1 b"].verdict.ok


def test_a_model_that_diverged_is_explained():
    M = mg.create_model("ReLU;Linear", "3;4;2")
    M.layers[0].W = np.full((4, 3), np.nan, np.float32)
    e = mg.explain(M, np.eye(3), [0, 1, 0])
    assert np.isnan(e["layer 1 Z"].value).all()
    assert e["layer 2 DW"].verdict.details == ("not compared: the loss of this batch is nan: expected a finite number",)
    assert "NaN" not in e.page().partition("<body")[0]


def test_layers_with_a_constructor_of_their_own_have_a_page():
    M = mg.MultilayerPerceptron([ScaledLayer(2.0, 3), mg.LinearLayer(3, 2)])
    e = mg.explain(M, np.eye(3), [0, 1, 0])
    np.testing.assert_array_equal(e["layer 1 Y"].value, 2 * np.eye(3))
    assert "(3;2)" in page_data(e)["title"]
    assert e.page()


def test_what_dropout_drops_is_shown():
    e = explained("ReLU;Dropout(0.5);Linear", "3;40;2", dropouts="0.25;0")
    assert {*np.unique(e["layer 1 R"].value).round(6)} == {0, round(1 / 0.75, 6)}
    assert {*np.unique(e["layer 2 R"].value)} == {0, 2}
    np.testing.assert_array_equal(e["layer 2 Y"].value, e["layer 1 Y"].value * e["layer 2 R"].value)
    assert e["layer 2 R"].written.source == "self.R = self.dropout_matrix(X)"
    assert e["layer 2 Y"].written.text == "Y2 = Y1 ⊙ R2"


def test_updates_are_written_as_they_are_computed():
    M = mg.create_model("Linear", "3;2")
    M.set_optimizer("AdamW(weight_decay=0.1)")
    w = mg.explain(M, np.eye(3), [0, 1, 0])["layer 1 W"].written
    assert w.latex.startswith(r"x' = x - \eta \cdot \lambda \cdot x - \eta \cdot ")
    assert w.source == "self.x = self.x - eta * self.weight_decay * self.x"
    M.set_optimizer("Momentum(0.9, weight_decay=0.1, l1=0.2)")
    w = mg.explain(M, np.eye(3), [0, 1, 0])["layer 1 W.delta"].written
    assert r"\mathsf{D}x &:= \mathsf{D}x + \lambda \cdot x + \lambda_1 \cdot \mathrm{sign}(x) \\" in w.latex
    assert "0.1·W1 + 0.2·sign(W1)" in w.text


def test_every_gradient_is_compared_with_differences():
    for x in explained("BatchNormalization;ReLU;Softmax", "3;4;2"):
        is_gradient = x.phase == "backpropagate" and x.quantity not in ("s", "t")
        assert x.verdict.ok is (True if is_gradient or x.name == "DY" else None), x.title


def test_a_wrong_equation_is_called_wrong():
    M = mg.MultilayerPerceptron([WrongLayer(3, 2)])
    e = mg.explain(M, np.eye(3), [0, 1, 0])
    assert e["layer 1 DW"].verdict.ok
    inherited, wrong = (x for x in e if x.title == "layer 1 WrongLayer.Db")
    assert inherited.verdict.ok is None
    assert wrong.verdict.ok is False
    assert "WRONG" in str(wrong)
    assert re.search(r"found \S+, central differences give \S+$", wrong.verdict.details[0])


def test_symbolic_verdicts():
    told = []
    e = explained("ReLU;Linear", "3;4;2", verify=True, progress=told.append)
    assert [*dict.fromkeys(told)] == ["Linear", "ReLU", "SoftmaxCrossEntropy", "Momentum"]
    for x in e:
        assert x.verdict.ok, x.title
        assert any("symbolic check" in line for line in x.verdict.details), x.title


@pytest.mark.parametrize(
    ("X", "T", "eta", "problem"),
    [
        (np.ones((2, 3)), [0, 1], 0.1, "4"),
        (np.full((2, 4), np.nan), [0, 1], 0.1, "finite"),
        (np.ones((2, 4)), [0, 1], np.nan, "eta: expected a number above 0"),
    ],
)
def test_bad_input_is_refused(X, T, eta, problem):
    with pytest.raises(ValueError, match=problem):
        mg.explain(mg.create_model("ReLU;Linear", "4;5;3"), X, T, eta=eta)


# -- in a notebook -----------------------------------------------------------------------------


def test_an_equation_is_shown_with_its_value():
    e = explained("ReLU;Linear", "4;5;3")["layer 2 DW"]
    root = parsed(e._repr_html_())
    assert formulas(root)[:2] == ["DW=DY⊤·X", "DW2=DY⊤·Y1"]
    assert f"{e.value[0, 0]:.3g}"[:5] in text(root)
    assert "centraldifferencesonthisbatchagree" in text(root)


def test_an_unknown_name_is_said_before_anything_is_compared(monkeypatch):
    monkeypatch.setattr("matgrad.explanation.explanation.Judge", lambda *_: pytest.fail("gradients are compared"))
    M = mg.create_model("ReLU;Linear", [4, 5, 3])
    with pytest.raises(ValueError, match=r"unknown equation 'DQ9' \(known: layer 1 Z.* layer 2 DW"):
        mg.explain(M, np.ones((2, 4)), np.array([0, 1]), equation="DQ9", verify=True)


class SteepActivation(mg.ActivationFunction):
    """tanh, with a wrong derivative"""

    def __call__(self, X):
        """tanh(x)"""
        return mg.matrix_operations.tanh(X)

    def gradient(self, X):
        """1 - tanh(x)"""
        return 1 - mg.matrix_operations.tanh(X)


def test_wrong_is_the_cause_alone_with_what_was_expected_and_found():
    layers = [mg.ActivationLayer(3, 4, SteepActivation()), mg.ActivationLayer(4, 4, SteepActivation())]
    M = mg.MultilayerPerceptron([*layers, mg.LinearLayer(4, 2)])
    e = mg.explain(M, np.eye(3), [0, 1, 0], verify=True)
    (wrong,) = e.wrong
    assert wrong.title == "layer 2 ActivationLayer.DZ"
    assert re.search(
        r"SteepActivation.gradient is wrong at row [1-3], column [1-4]: found .*, central differences give", str(wrong)
    )
    assert e["layer 2 DW"].verdict.details == ("not judged: layer 2 ActivationLayer.DZ is wrong, on which it depends",)
    assert e["layer 3 DW"].verdict.ok
