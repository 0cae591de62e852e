"""The parser of specifications: what it reads, and what it says about what it cannot read."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.activation_functions import ACTIVATIONS
from matgrad.learning_rate import SCHEDULERS
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS
from matgrad.specifications.parsing import Call, create, lookup, parse_call
from matgrad.weight_initializers import INITIALIZERS

# -- what can be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("ReLU", Call("ReLU")),
        ("ReLU()", Call("ReLU")),
        ("ReLU( )", Call("ReLU")),
        ("  ReLU ( ) ", Call("ReLU")),
        ("_name2", Call("_name2")),
        ("Momentum(0.9)", Call("Momentum", [0.9])),
        ("Momentum(mu=0.9)", Call("Momentum", [], {"mu": 0.9})),
        ("Momentum( mu = 0.9 )", Call("Momentum", [], {"mu": 0.9})),
        ("\tMomentum(\n0.9,\n  weight_decay = 1e-4\n)\n", Call("Momentum", [0.9], {"weight_decay": 1e-4})),
        ("Uniform(-0.1, 0.1)", Call("Uniform", [-0.1, 0.1])),
        ("Uniform(-.5,+.5)", Call("Uniform", [-0.5, 0.5])),
        ("Uniform(a=-1;b=1)", Call("Uniform", [], {"a": -1, "b": 1})),
        ("Adam(0.9, 0.999, 1e-8)", Call("Adam", [0.9, 0.999, 1e-8])),
        ("F(1E+3, -2.5e-2, 1.)", Call("F", [1000.0, -0.025, 1.0])),
        ("MultiStepLR(0.1; 10, 15; 0.1)", Call("MultiStepLR", [0.1, [10, 15], 0.1])),
        ("MultiStepLR(0.1;10,15,20;0.1)", Call("MultiStepLR", [0.1, [10, 15, 20], 0.1])),
        ("MultiStepLR(0.1; 10; 0.1)", Call("MultiStepLR", [0.1, 10, 0.1])),
        ("F(m=1, 2; n=3)", Call("F", [], {"m": [1, 2], "n": 3})),
        ("F(1; m = -1, 2.5)", Call("F", [1], {"m": [-1, 2.5]})),
        ("F(True, False)", Call("F", [True, False])),
        ("F(step, renew=epoch)", Call("F", ["step"], {"renew": "epoch"})),
        ("F(5; G(0.1; 50))", Call("F", [5, "G(0.1; 50)"])),
        ("F(5, G(0.1, 50))", Call("F", [5, "G(0.1, 50)"])),
        ("F(5, G(a; b, c))", Call("F", [5, "G(a; b, c)"])),
        ("F( g = G(a = 1), h=2)", Call("F", [], {"g": "G(a = 1)", "h": 2})),
        ("F(G(1), H(2); 3)", Call("F", [["G(1)", "H(2)"], 3])),
        ("F(G(H(1)))", Call("F", ["G(H(1))"])),
    ],
)
def test_parse_call(text, call):
    assert parse_call(text) == call


@pytest.mark.parametrize(("text", "kind"), [("1", int), ("-3", int), ("1.0", float), ("1e3", float), ("True", bool)])
def test_numbers_keep_their_kind(text, kind):
    (value,) = parse_call(f"F({text})").arguments
    assert type(value) is kind


def test_create_calls_the_factory():
    """First the given arguments, then those of the text; defaults fill the rest."""

    def factory(x, a, b=2, *, c=3):
        return x, a, b, c

    registry = {"F": factory}
    assert create("F(1)", registry, "thing", "x") == ("x", 1, 2, 3)
    assert create("F(1, c=5)", registry, "thing", "x") == ("x", 1, 2, 5)
    assert create("F(b=4, a=1)", registry, "thing", "x") == ("x", 1, 4, 3)


def test_every_name_is_found():
    for registry in (ACTIVATIONS, INITIALIZERS, LOSSES, OPTIMIZERS, SCHEDULERS):
        for name, entry in registry.items():
            assert lookup(name, registry, "thing") is entry


# -- what cannot be read -----------------------------------------------------------------------

MALFORMED = [
    "",
    "   ",
    "()",
    "(0.9)",
    "0.9",
    "2Momentum",
    "-Momentum",
    "Momentum(",
    "Momentum)",
    "Momentum(0.9",
    "Momentum 0.9)",
    "Momentum(0.9))",
    "Momentum((0.9)",
    "Momentum(0.9)(0.1)",
    "Momentum(0.9) Adam",
    "Momentum()()",
    "Momentum[0.9]",
    "Momentum 0.9",
    "Momentum = 0.9",
    "Momentum-um(0.9)",
    "Momentum, Adam",
    "mat.Momentum(0.9)",
    "Momentum(f(1)",
    "Momentum(f)1(2)",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_calls_are_refused(text):
    """The error repeats the text and says what a specification looks like."""
    with pytest.raises(ValueError, match="cannot read") as caught:
        parse_call(text)
    assert repr(text) in str(caught.value)
    assert "expected Name or Name(argument, ...)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("F(,)", 1),
        ("F(1,)", 2),
        ("F(,1)", 1),
        ("F(1,,2)", 2),
        ("F(1;;2)", 2),
        ("F(;)", 1),
        ("F(a=)", 1),
        ("F(=1)", 1),
        ("F(1, =)", 2),
        ("F(a==1)", 1),
        ("F(a=b=1)", 1),
        ("F(1a=2)", 1),
        ("F(a b=2)", 1),
        ("F(1, 2, a-b=3)", 3),
        ("Momentum((0.9))", 1),
        ("F(1; 2(3))", 2),
        ("F(1; G(3) 4)", 2),
        ("F(1; G=(3))", 2),
        ("F(1, G(2),)", 3),
    ],
)
def test_malformed_arguments_are_refused(text, position):
    """The error repeats the text and counts the arguments."""
    with pytest.raises(ValueError, match=f"cannot read argument {position} of") as caught:
        parse_call(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("text", "position"), [("F(a=1, 2)", 2), ("F(1; a=2; 3, 4)", 3)])
def test_positional_after_keyword_is_refused(text, position):
    with pytest.raises(ValueError, match=f"argument {position} of .* needs a keyword") as caught:
        parse_call(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["F(a=1, a=2)", "F(1; a=2; b=3; a=2)"])
def test_repeated_keywords_are_refused(text):
    """As in Python: no value is silently forgotten."""
    with pytest.raises(ValueError, match=r"\ba\b") as caught:
        parse_call(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["F(1; 2,; 3)", "F(1; ,; 3)", "F(1; 2,,3; 4)", "F(m=1, ; n=2)"])
def test_empty_elements_of_lists_are_refused(text):
    """An empty element is not the empty word."""
    with pytest.raises(ValueError, match="cannot read"):
        parse_call(text)


def test_specifications_inside_each_other_are_few():
    deep = "F(" * 1000 + ")" * 1000
    with pytest.raises(ValueError, match=r"found 999 specifications inside each other, expected at most 8"):
        parse_call(deep)


# -- unknown names and wrong arguments ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "registry", "nearest"),
    [
        ("momentum", OPTIMIZERS, "Momentum"),
        ("MOMENTUM", OPTIMIZERS, "Momentum"),
        ("Momentom", OPTIMIZERS, "Momentum"),
        ("GradientDecent", OPTIMIZERS, "GradientDescent"),
        ("Adamw", OPTIMIZERS, "AdamW"),
        ("Relu", ACTIVATIONS, "ReLU"),
        ("LeakyRelu", ACTIVATIONS, "LeakyReLU"),
        ("Hyperbolictangent", ACTIVATIONS, "HyperbolicTangent"),
        ("XavierNormalised", INITIALIZERS, "XavierNormalized"),
        ("Multi_Step_LR", SCHEDULERS, "MultiStepLR"),
        ("SoftmaxCrossEntrop", LOSSES, "SoftmaxCrossEntropy"),
    ],
)
def test_the_nearest_name_is_suggested(name, registry, nearest):
    with pytest.raises(ValueError, match="unknown thing") as caught:
        create(f"{name}(1)", registry, "thing")
    assert f"unknown thing {name!r}; did you mean {nearest!r}?" in str(caught.value)
    assert all(known in str(caught.value) for known in registry)


def test_nothing_is_suggested_for_a_strange_name():
    with pytest.raises(ValueError, match=r"^unknown optimizer 'Zzz' \(known: GradientDescent, Momentum, "):
        create("Zzz", OPTIMIZERS, "optimizer", None, None)


def function(x, a, b=2.5, *, kind="step"):
    """A factory with all kinds of parameters."""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("F", "'a'"),
        ("F()", "'a'"),
        ("F(1, 2, 3)", "too many positional arguments"),
        ("F(1; 2; 3; 4)", "too many positional arguments"),
        ("F(1, c=2)", "'c'"),
        ("F(1, a=2)", "'a'"),
        ("F(1, x=2)", "'x'"),
        ("F(b=2)", "'a'"),
    ],
)
def test_wrong_arguments_name_the_usage(text, problem):
    """The usage leaves out what does not come from the text."""
    with pytest.raises(ValueError, match="usage") as caught:
        create(text, {"F": function}, "thing", "x")
    message = str(caught.value)
    assert message.startswith(f"thing {text!r}: ")
    assert problem in message
    assert message.endswith("usage: F(a, b=2.5, kind='step')")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "text", ["Momentum(big)", "Momentum(1; 2, 3)", "Adam(0.9, 0.999, eps)", "Momentum(mu=None)", "Adam(F(1))"]
)
def test_words_where_numbers_belong_are_refused(text):
    """A number is asked for where it is read, not at the first update."""
    x = np.zeros((2, 3))
    with pytest.raises(ValueError, match=text.partition("(")[0]):
        create(text, OPTIMIZERS, "optimizer", x, None)
