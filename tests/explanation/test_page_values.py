"""The numbers of the page equal those of Python, for everything that the package has, over several steps."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS
from matgrad.sparse.matrix import values_of

STEPS = 3
ARITHMETIC = Path(__file__).with_name("entries.js").read_text()
# these have the size of the layer before
KEEPING = ("BatchNormalization", "LayerNormalization", "RMSNormalization", "Dropout(0.3)")
MIDDLE = (*KEEPING, "SReLU", "SReLU(shared=True)", "Linear")
EPSILON = {"Adagrad", "RMSProp", "Adam", "AdamW"}  # if small, rounding errors of a gradient that is 0 become steps
UPDATES = [f"{name}({'epsilon=1e-3' if name in EPSILON else 'weight_decay=0.01'})" for name in OPTIMIZERS]
PARTS = zip(
    LOSSES, cycle(ACTIVATIONS), cycle(MIDDLE), cycle(UPDATES), cycle(["1", "0.5"]), cycle([0, 0, 0.2]), strict=False
)
CASES = [pytest.param(*parts, marks=() if i % 3 == 0 else pytest.mark.slow) for i, parts in enumerate(PARTS)]


def check(page, explanation: mg.Explanation) -> None:
    """Compare the value of each equation, then the state after some steps."""
    for e, found in zip(explanation, page.evaluate("() => matgrad.values()"), strict=True):
        assert found == pytest.approx(np.ravel(values_of(e.value)), rel=1e-9, abs=1e-11), e.title
    for found, expected, read, marked in page.evaluate(ARITHMETIC):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-11)
        assert read == marked
    page.evaluate("count => matgrad.takeSteps(count)", STEPS)
    step, state = mg.make_step(explanation.M, explanation.loss), explanation.M.state()
    for _ in range(STEPS):
        state = step(state, explanation.X, explanation.T, explanation.eta)
    found = page.evaluate("() => matgrad.current()")
    for name, x in matrices_of(state).items():
        assert found[name] == pytest.approx(np.ravel(x), rel=1e-9, abs=1e-11), name


@pytest.mark.parametrize(("loss", "activation", "middle", "optimizer", "density", "dropout"), CASES)
def test_values_and_steps_equal_those_of_python(open_page, loss, activation, middle, optimizer, density, dropout):
    mg.manual_seed(3)
    accepted = LOSSES[loss].accepts
    last = "Linear" if "real" in accepted else "Softmax" if "probability" in accepted else "LogSoftmax"
    sizes = "4;5;3" if middle in KEEPING else "4;5;6;3"
    M = mg.create_model(
        f"{activation};{middle};{last}", sizes, optimizers=optimizer, densities=density, dropouts=dropout
    )
    rng = np.random.default_rng(3)
    explanation = mg.explain(M, rng.normal(size=(5, 4)), mg.one_hot(rng.integers(0, 3, 5), 3), loss=loss)
    check(open_page(explanation), explanation)


def test_composite_layers(open_page):
    mg.load_plugin(Path(__file__).parents[2] / "docs" / "custom.py")
    mg.manual_seed(3)
    M = mg.create_model("SquaredReLU;Scale;Shortcut;Linear", "4;5;3")
    rng = np.random.default_rng(3)
    explanation = mg.explain(M, rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), loss="PseudoHuber")
    check(open_page(explanation), explanation)
