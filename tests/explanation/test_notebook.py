"""What a notebook shows of models, layers and programs: their equations, sizes and numbers, and no foreign HTML."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from html_support import formulas, numbers, parsed, rows, text

import matgrad as mg
from composites import custom, model
from matgrad.foundation.numbers import generator
from matgrad.inspection.observing import observed
from support import to_numpy

D, K, N = 4, 3, 11
SUPPORT = mg.Support.random(K, D, 5, np.random.default_rng(1))
LAYERS = {
    "linear": lambda: mg.LinearLayer(D, K),
    "sparse": lambda: mg.ActivationLayer(D, K, "ReLU", support=SUPPORT),
    "dropout": lambda: mg.ActivationDropoutLayer(D, K, "Sigmoid", dropout=0.5),
    "softmax": lambda: mg.SoftmaxLayer(D, K),
    "log-softmax": lambda: mg.LogSoftmaxLayer(D, K),
    "srelu": lambda: mg.SReLULayer(D, K),
    "batch normalization": lambda: mg.BatchNormalizationLayer(D),
    "layer normalization": lambda: mg.LayerNormalizationLayer(D),
    "RMS normalization": lambda: mg.RMSNormalizationLayer(D),
    "dropout of neurons": lambda: mg.DropoutLayer(D),
    "scale": lambda: custom.ScaleLayer(D, D),
    "residual": lambda: custom.ShortcutLayer(D, D),
}


def lines_of(html: str) -> list[list[str]]:
    """The rows of the first table, without its head."""
    return rows(next(parsed(html).iter("table")))[1:]


# -- layers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_shows_its_equations_with_sizes_and_source(name):
    layer = LAYERS[name]()
    html = layer._repr_html_()
    executed = {}

    def keep(_, equation, value):
        executed[equation] = " × ".join("N" if n == N else str(n) for n in value.shape)
        return value

    clone = layer.clone()
    with observed([clone], keep):
        Y = clone.feedforward(np.ones((N, D), np.float32))
        clone.backpropagate(Y, Y)
    for (equation, expected), (_, _, size, source) in zip(executed.items(), lines_of(html), strict=True):
        assert size.removesuffix(", sparse") == expected
        assert source.startswith(equation.source)
        assert source.endswith(f"/{equation.file.rpartition('/')[2]}:{equation.line}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", ["Y=X·W⊤+1N·b", "DW=DY⊤·X", "Db=1N⊤·DY", "DX=DY·W"]),
        ("dropout", ["Z=X·(W⊙R)⊤+1N·b", "Y=σ(Z)", "DZ=DY⊙σ′(Z)", "DW=(DZ⊤·X)⊙R", "Db=1N⊤·DZ", "DX=DZ·(W⊙R)"]),
        ("scale", ["Y=(1N·s)⊙X", "Ds=1N⊤·(DY⊙X)", "DX=(1N·s)⊙DY"]),
    ],
)
def test_the_equations_of_a_layer(name, expected):
    (table, *_) = parsed(LAYERS[name]()._repr_html_()).iter("table")
    assert formulas(table) == expected


def test_a_layer_shows_its_parameters():
    layer = LAYERS["linear"]()
    _, W, b = parsed(layer._repr_html_()).iter("table")
    shown = np.array([numbers(row[1:]) for row in rows(W)[1:]])
    np.testing.assert_allclose(shown, to_numpy(layer.W), atol=0.00051)
    assert [row[1:] for row in rows(b)[1:]] == [["0"] * K]


def test_a_layer_shows_its_parts():
    layer = LAYERS["residual"]()
    layer.parts()[0].set_optimizer("Adam")
    root = parsed(layer._repr_html_())
    assert text(root).startswith("ShortcutLayer(4,4)4→4·40parameters·Adam,GradientDescent")
    first, second = root.iter("details")
    assert formulas(next(first.iter("table")))[:2] == ["Z=X·W⊤+1N·b", "Y=relu(Z)"]
    assert text(second.find("summary")) == "2LinearLayer(4,4)"
    assert formulas(second)[0] == "Y=X·W⊤+1N·b"


def test_showing_changes_nothing():
    M = model()
    M.fit(np.ones((6, 5)), np.array([0, 1, 2, 0, 1, 2]), epochs=1)
    before, random = copy.deepcopy(M.state()), copy.deepcopy(generator().bit_generator.state)
    attributes = [{*vars(layer)} for _, layer in M.walk()]
    for thing in (M, *(layer for _, layer in M.walk()), M.program()):
        parsed(thing._repr_html_())
    assert generator().bit_generator.state == random
    assert [{*vars(layer)} for _, layer in M.walk()] == attributes
    for name, X in M.state().items():
        np.testing.assert_array_equal(to_numpy(X), to_numpy(before[name]), err_msg=name)


# -- layers of users ----------------------------------------------------------------------------------

HOSTILE = '''
import matgrad as mg
class HostileLayer(mg.LinearLayer):
    """Y = <b>X</b> & <script>alert(1)</script> of `X<i>`"""
    def feedforward(self, X):
        Z = super().feedforward(X)
        Y = mark(Z, "<img src=x onerror=alert(2)>")
        return Y
    def __repr__(self):
        return "<script>alert(3)</script>"
def mark(Z, text):
    return Z
'''


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import hostile

    return hostile.HostileLayer(D, K)


def test_what_users_write_is_text(hostile):
    M = mg.MultilayerPerceptron([hostile, mg.LinearLayer(K, 2)])
    for thing in (hostile, M, M.program()):
        root = parsed(thing._repr_html_())
        assert not {"script", "i"} & {element.tag for element in root.iter()}
        assert not [image for image in root.iter("img") if image.get("src") == "x"]
    shown = text(parsed(hostile._repr_html_()))
    assert "<script>alert(3)</script>" in shown
    assert "Y=<b>X</b>&<script>alert(1)</script>ofX<i>" in shown
    assert 'Y=mark(Z,"<imgsrc=xonerror=alert(2)>")hostile.py:7' in shown


def test_a_layer_without_source_says_so():
    namespace: dict = {}
    exec(HOSTILE, namespace)
    layer = namespace["HostileLayer"](D, K)
    for thing in (layer, mg.MultilayerPerceptron([layer])):
        assert "thesourceofHostileLayer.feedforwardisnotavailable" in text(parsed(thing._repr_html_()))


# -- models -----------------------------------------------------------------------------------------


def test_a_model_is_a_table_of_its_layers():
    M = mg.create_model("ReLU;BatchNormalization;Softmax", [6, 5, 3])
    for layer, optimizer in zip(M.layers, ("Momentum(0.5)", "GradientDescent", "Adam"), strict=True):
        layer.set_optimizer(optimizer)
    first, second, third, total = lines_of(M._repr_html_())
    assert [(x[0], x[1], *x[3:]) for x in (first, second, third)] == [
        ("1", "ActivationLayer(6, 5, ReLU)", "6 → 5", "35", "Momentum(mu=0.5)"),
        ("2", "BatchNormalizationLayer(5, 5)", "5 → 5", "10", "GradientDescent"),
        ("3", "SoftmaxLayer(5, 3)", "5 → 3", "18", "Adam"),
    ]
    assert total == ["", "total", "", "", "63", ""]
    assert text(parsed(M._repr_html_())).startswith(f"MultilayerPerceptronon{M.engine},float32")


def test_backpropagation_is_folded():
    root = parsed(mg.create_model("ReLU;Linear", [6, 5, 3])._repr_html_())
    first, second = folded = [formulas(details) for details in root.iter("details")]
    assert folded == [
        ["DZ=DY⊙relu′(Z)", "DW=DZ⊤·X", "Db=1N⊤·DZ", "DX=DZ·W"],
        ["DW=DY⊤·X", "Db=1N⊤·DY", "DX=DY·W"],
    ]
    assert [x for x in formulas(root) if x not in first + second] == ["Z=X·W⊤+1N·b", "Y=relu(Z)", "Y=X·W⊤+1N·b"]


def test_a_sparse_model_shows_densities():
    M = mg.create_model("ReLU;Linear", [10, 20, 5])
    M.set_densities("0.1;1")
    table = next(parsed(M._repr_html_()).iter("table"))
    head, first, second, total = rows(table)
    assert head == ["", "layer", "equations", "sizes", "density", "parameters", "optimizer"]
    assert (first[4:6], second[4:6], total[5]) == (["0.1", "40"], ["1", "105"], "145")


# -- programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [True, False])
def test_a_program_has_its_lines_with_the_equations_that_they_come_from(fused):
    program = mg.create_model("ReLU;Softmax", [3, 4, 2]).program(fused=fused)
    table, opened = parsed(program._repr_html_()).iter("table")
    given, _, *printed = str(program).splitlines()
    assert len(rows(table)) == len(printed)
    assert len(rows(opened)) == len(program.text(is_opened=True).splitlines()) - 2
    labels = {value.equation for value in program.instructions}
    for cells, line in zip(table.iter("tr"), printed, strict=True):
        name, right, label = cells
        assert text(name).replace("Δ", "") in {x.replace(".delta", "") for x in _plain(line.partition(" = ")[0])}
        assert text(right).startswith("=")
        assert "".join(label.itertext()) in labels
    assert given.count("×") == text(parsed(program._repr_html_())).partition("Z1")[0].count("×")


def _plain(name: str) -> set[str]:
    """Ways to write a name: W1.delta' is Δ with the index W1 and a prime after the index or before."""
    name = name.strip().replace("'", "′")
    return {name, name.replace(".delta", "")}
