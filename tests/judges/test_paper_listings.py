"""The paper and the code agree: the paper's layer listings compute what the package's methods compute."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
import sympy as sp

import matgrad as mg
from matgrad import matrix_operations, softmax_functions
from matgrad.judges.equality import compare, symbols
from matgrad.judges.sympy_judge import SymPyAlgebra
from support import DATA

PAPER = DATA.parent / "paper.tex"

# the heading in the appendix: a layer
LAYERS = {
    "linear layer": mg.LinearLayer(2, 4),
    "activation layer": mg.ActivationLayer(2, 4, "Sigmoid"),
    "softmax layer": mg.SoftmaxLayer(2, 4),
    "log-softmax layer": mg.LogSoftmaxLayer(2, 4),
    "batch normalization layer": mg.BatchNormalizationLayer(4),
    "linear dropout layer": mg.LinearDropoutLayer(2, 4),
    "activation dropout layer": mg.ActivationDropoutLayer(2, 4, "HyperbolicTangent"),
}

pytestmark = pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside the checkout")


def listings(heading: str) -> list[str]:
    """The feedforward and the backpropagation listing under a heading of the appendix."""
    appendix = PAPER.read_text().partition(r"\appendix")[2]
    section = appendix.partition(rf"\paragraph{{{heading}}}")[2].partition(r"\paragraph{")[0]
    found = re.findall(r"\\begin\{lstlisting\}(.*?)\\end\{lstlisting\}", section, re.DOTALL)
    return [dedent(text).strip() for text in found[:2]]


@pytest.mark.parametrize("heading", LAYERS)
def test_the_listing_and_the_layer_compute_the_same(heading: str):
    listed = LAYERS[heading]
    layer = SymPyAlgebra({"D": 2, "K": 4}).layer(lambda D, K: listed)
    if isinstance(layer, mg.BatchNormalizationLayer):
        layer.epsilon = 0  # the paper leaves it out
    N, D, K = 3, layer.input_size, layer.output_size
    X, DY = symbols("X", N, D), symbols("G", N, K)
    Y = layer.feedforward(X)
    layer.backpropagate(Y, DY)
    computed = {name: getattr(layer, name) for name in ("DX", *layer.intermediates) if name != "R"} | {"Y": Y}
    computed |= {f"D{name}": getattr(layer, f"D{name}") for name in layer.parameters}

    names = {name: getattr(matrix_operations, name) for name in matrix_operations.__all__}
    names |= {name: getattr(softmax_functions, name) for name in ("softmax", "log_softmax")}
    names |= {"identity": sp.eye, "ones": sp.ones}  # the paper's have no `like`
    names |= {"X": X, "DY": DY, "N": N, "D": D, "K": K, "act": getattr(layer, "act", None)}
    names |= {name: getattr(layer, name) for name in layer.parameters}
    if isinstance(layer, mg.LinearDropoutLayer):
        names["R"] = layer.R
    feedforward, backpropagation = listings(heading)
    exec(feedforward, names)
    exec(backpropagation, names)

    printed = re.findall(r"^(\w+) =", f"{feedforward}\n{backpropagation}", re.MULTILINE)
    assert len(printed) >= 4
    for name in printed:
        if name in computed:  # R, Sigma and inv_sqrt(Sigma) of batch normalization are seen through Z
            problem = compare(computed[name], names[name])
            assert not problem, f"{heading}, {name} {problem}"
    assert {"Y", "DX"} <= set(printed)
