"""Specifications with the shapes of images and tokens: sizes, what is saved, and errors that name the layer."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.specifications.models import create_model, model_specification

MODELS = {
    "Conv(32, 3, padding=1, act=ReLU);MaxPool(2);Linear": ("8x6x3", [10], [144, 1536, 384, 10]),
    "Conv(4, 3, stride=2, dilation=2, groups=2, act=AllReLU(0.3));Linear": ("9x9x2", [3], [162, 36, 3]),
    "Conv(4, 3);AvgPool(2, stride=1, padding=1);Linear": ("9x2", [3], [18, 28, 32, 3]),
    "Each(BatchNormalization);ReLU;Linear": ("4x4x2", [5, 3], [32, 32, 5, 3]),
    "Embedding(64, vocabulary=30);Positions;Transformer(4, heads=4);Linear": ("8", [10], [8, 512, 512, 512, 10]),
    "Embedding(6, vocabulary=9);Positions(sinusoidal);Transformer(1, heads=2, causal=False, hidden=5, act=SiLU)": (
        "3",
        [],
        [3, 18, 18, 18],
    ),
    "Residual(Each(LayerNormalization;Linear(192));Attention(4);Each(Linear(64)))": ("5x64", [], [320, 320]),
    "Rotary(2, groups=1);Attention(2, causal=False, groups=1);Each(AllReLU(4, 0.3))": ("3x8", [], [24, 24, 12, 12]),
    "Sequence(Each(Gated(SiLU(6);Linear(6)));Each(Linear(2)));Linear": ("3x4", [2], [12, 6, 2]),
}


@pytest.mark.parametrize("layers", MODELS)
def test_sizes_follow_from_the_shape_and_specifications_make_the_model_again(layers: str, tmp_path):
    shape, rest, expected = MODELS[layers]
    M = create_model(layers, [shape, *rest])
    assert [M.layers[0].input_size, *(layer.output_size for layer in M.layers)] == expected
    description = model_specification(M)
    assert description["sizes"] == ";".join(map(str, [shape, *rest]))
    again = create_model(**description)
    assert repr(again) == repr(M)
    M.save(tmp_path / "model.npz")
    X = np.random.default_rng(0).integers(9, size=(4, M.layers[0].input_size)).astype("float32")
    np.testing.assert_array_equal(mg.load(tmp_path / "model.npz").predict(X), M.predict(X))


def test_a_shape_may_be_a_tuple():
    assert create_model("Conv(2, 3);Linear", [(5, 6, 1), 3]).layers[0].output_shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("layers", "sizes", "message"),
    [
        ("Conv(2, 3);Linear", "784;10", r"layer 1: Conv: expected an image \(H × W × C\) or tokens .*, found 784"),
        ("Conv(2, 9);Linear", "8x8x1;10", "layer 1: a window spans 9, expected at most 8: the input is 8 × 8 × 1, ch"),
        ("Conv(2, 3);Flatten;Linear", "8x8x1;10", "layer 2: no 'Flatten' is needed"),
        ("Conv(2, 3);ReLU;MaxPool(2);Linear", "8x8x1;10", r"a function is in one, as in Conv\(8, 3, act=ReLU\)"),
        ("Conv(2, 3);Conv(2, 7);Linear", "8x8x1;10", "layer 2: a window spans 7, expected at most 6"),
        ("Conv(3, 3, groups=2);Linear", "8x8x2;10", "layer 1: Conv: expected numbers of channels that 2 groups divide"),
        ("MaxPool(2, padding=2);Linear", "8x8x2;10", "layer 1: MaxPool: expected a padding of at most half the size 2"),
        ("Conv(0, 3);Linear", "8x8x2;10", "layer 1: Conv: channels must be a positive integer, found 0"),
        ("Conv(2, 3, padding=-1);Linear", "8x8x2;10", "layer 1: Conv: padding must be an integer of 0 or more"),
        ("Conv(2, 3);Linear", "8x8;x;10", "expected an integer, found 'x'"),
        ("Conv(2, 3);Linear", "axb;10", "layer size 1: expected an integer or a shape such as 28x28x1, found 'axb'"),
        ("Conv(2, 3);Linear", "8x8x1", "expected 2 layer sizes for 1 linear layers"),
        ("Embedding(4);Linear", "3;2", "layer 1: Embedding: expected the number of different labels, as in"),
        ("Embedding(4, vocabulary=5);Linear", "3x2;2", r"layer 1: Embedding: expected labels \(L\), found 3 × 2"),
        ("Positions(fixed);Linear", "3x2;2", "layer 1: Positions: expected learned or sinusoidal, found 'fixed'"),
        ("Attention(2);Linear", "3x8;2", "layer 1: Attention: expected tokens with a multiple of 6 features"),
        (
            "Attention(3, groups=2);Linear",
            "3x8;2",
            "layer 1: Attention: expected a number of heads that 2 groups divide",
        ),
        ("Attention(2);Linear", "24;2", r"layer 1: Attention: expected tokens \(L × d\), found 24"),
        ("Rotary(1);Linear", "3x9;2", "layer 1: Rotary: expected an even number of features of a head, found 3"),
        ("Transformer(1, heads=3);Linear", "3x8;2", "Transformer: expected a number of features that 3 heads divide"),
        (
            "Residual(Each(Linear(3)));Linear",
            "3x8;2",
            "Residual: expected an output of 3 × 8 as its input, found 3 × 3",
        ),
        ("Residual(Linear);Linear", "3x8;2", "expected its size as the first argument, as in Linear\\(64\\)"),
        ("Gated(Linear(3);Linear(4));Linear", "3x8;2", "expected two layers of equal sizes, found 24 → 3, 24 → 4"),
        ("Each();Linear", "3x8;2", "expected at least one layer inside, found none"),
        ("Each(Linear(2));Linear", "8;2", r"layer 1: Each: expected tokens \(L × d\) or an image"),
        ("Embedding(1000000, vocabulary=100000000);Linear", "3;2", "Embedding: asks for .* expected at most"),
        ("Conv(1000000000, 3);Linear", "99x99x9999;2", "Conv: asks for .* expected at most"),
    ],
)
def test_errors_name_the_layer_and_the_shape(layers: str, sizes: str, message: str):
    with pytest.raises(ValueError, match=message):
        create_model(layers, sizes)


def test_a_density_of_the_whole_model_is_divided_among_the_parts():
    mg.manual_seed(0)
    M = create_model("Conv(8, 3, act=ReLU);MaxPool(2);Linear", "8x8x2;10", densities="ER(0.3)")
    layers = M.linear_layers()
    stored = sum(layer.nnz for layer in layers)
    assert abs(stored - 0.3 * sum(x.input_size * x.output_size for x in layers)) <= 1
    assert layers[0].density > layers[1].density
    assert create_model("Conv(8, 3);Linear", "8x8x2;10", densities="0.5;0.1").linear_layers()[1].density == 0.1


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"EachLayer: LinearLayer.* has 3 outputs, but LinearLayer.* has 4 inputs"):
        mg.EachLayer(2, mg.LinearLayer(2, 3), mg.LinearLayer(4, 2))
    with pytest.raises(ValueError, match="ResidualLayer: found 2 inputs and 3 outputs"):
        mg.ResidualLayer(mg.LinearLayer(2, 3))
    with pytest.raises(ValueError, match="SequenceLayer: expected at least one layer, found none"):
        mg.SequenceLayer()
    with pytest.raises(ValueError, match="a window has 3 elements"):
        mg.WindowsLayer(np.zeros((2, 3), int), 4, mg.LinearLayer(2, 1))
    with pytest.raises(ValueError, match="one_hot: expected integers from -1 to 3"):
        mg.WindowsLayer(np.full((2, 3), 4), 4, mg.LinearLayer(3, 1))
    with pytest.raises(ValueError, match="a mask of 3 × 3 booleans"):
        mg.AttentionLayer((3, 6), mask=np.ones((2, 2), bool))
    with pytest.raises(ValueError, match="a token may look at no token"):
        mg.AttentionLayer((3, 6), mask=np.triu(np.ones((3, 3), bool), 1))
