r"""LaTeX of what is recorded: the paper's equations, names and sizes, and that the result compiles.

Expected strings are the paper's, with \mathsf{D} for \Gradient and N for \const{N}; where the code has the linear
form of an equation, or ε, the expected string has it in the paper's notation.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad import layers, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, sigmoid
from matgrad.foundation.notation import symbol
from matgrad.inspection.latex import function_latex, latex_document, layer_latex, mode_latex, update_latex
from matgrad.judges.blocks import MADE
from matgrad.judges.definitions import SOFTMAX
from matgrad.judges.suite import example_of
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import columns_mean, columns_sum, exp, hadamard, row_repeat, rows_sum
from matgrad.optimizers import OPTIMIZERS
from support import PATIENCE

LAYERS = [
    *(mg.LinearLayer, mg.ActivationLayer, mg.SoftmaxLayer, mg.LogSoftmaxLayer, mg.SReLULayer),
    *(mg.BatchNormalizationLayer, mg.LayerNormalizationLayer, mg.RMSNormalizationLayer, mg.DropoutLayer),
    *layers.dropout.DROPOUT_LAYERS.values(),
]
D = r"\mathsf{D}"


def squeezed(latex: str) -> str:
    """Without whitespace, \\left, \\right and the dots of products, which do not change what is meant."""
    return re.sub(r"\s|\\left(?=\W)|\\right(?=\W)|\\cdot", "", latex)


def lines(latex: str) -> list[str]:
    """The lines of an aligned environment."""
    inner = re.sub(r"\\(begin|end)\{aligned\}", "", latex)
    return [squeezed(line).replace("&=", "=").replace("&:=", ":=") for line in inner.split(r"\\")]


def layer_lines(cls: type, name: str) -> list[str]:
    return [squeezed(x) for e, found in mode_latex(example_of(cls)).items() if e.name == name for x in found]


def everything() -> list[tuple[str, list[str]]]:
    """All equations of the package."""
    made = [make(3, 4) for makes in MADE.values() for make in makes]
    pairs = [cls() for cls in (*ACTIVATIONS.values(), *LOSSES.values())]
    softmax = [getattr(softmax_functions, name) for name in SOFTMAX]
    softmax += [getattr(softmax_functions, f"{name}_jacobian") for name in SOFTMAX]
    parts = [part for layer in made for _, part in layer.walk()]
    return [
        *((c.__name__, [x for found in mode_latex(example_of(c)).values() for x in found]) for c in LAYERS),
        *((type(part).__name__, [*layer_latex(part).values()]) for part in parts),
        *((type(f).__name__, [function_latex(f.__call__), function_latex(f.gradient)]) for f in pairs),
        ("targets", [function_latex(mg.CrossEntropyLoss(0.1).targets)]),
        *((c.__name__, [*update_latex(c(np.zeros((2, 3)), None)).values()]) for c in OPTIMIZERS.values()),
        ("softmax_functions & 100 %", [function_latex(f) for f in softmax]),
    ]


EVERYTHING = everything()


# -- the paper's equations -----------------------------------------------------------------------

# in the paper softmax(Z) is the function; the code runs stable-softmax(Z), which the paper defines too
PAPER_LAYERS = [
    ("LinearLayer", "Y", r"Y = X W^\top + 1_N \cdot b"),
    ("LinearLayer", "DW", rf"{D}W = {D}Y^\top \cdot X"),
    ("LinearLayer", "Db", rf"{D}b = 1_N^\top \cdot {D}Y"),
    ("LinearLayer", "DX", rf"{D}X = {D}Y \cdot W"),
    ("ActivationLayer", "Z", r"Z = X W^\top + 1_N \cdot b"),
    ("ActivationLayer", "Y", r"Y = \mathrm{act}(Z)"),
    ("ActivationLayer", "DZ", rf"{D}Z = {D}Y \odot \mathrm{{act}}'(Z)"),
    ("ActivationLayer", "DW", rf"{D}W = {D}Z^\top \cdot X"),
    ("ActivationLayer", "DX", rf"{D}X = {D}Z \cdot W"),
    ("SReLULayer", "DX", rf"{D}X = {D}Z \cdot W"),
    ("LinearDropoutLayer", "Y", r"Y = X (W \odot R)^\top + 1_N \cdot b"),
    ("LinearDropoutLayer", "DW", rf"{D}W = ({D}Y^\top \cdot X) \odot R"),
    ("ActivationDropoutLayer", "Z", r"Z = X (W \odot R)^\top + 1_N \cdot b"),
    ("ActivationDropoutLayer", "DX", rf"{D}X = {D}Z (W \odot R)"),
    ("SoftmaxLayer", "Y", r"Y = \operatorname{stable-softmax}(Z)"),
    ("SoftmaxLayer", "DZ", rf"{D}Z = Y \odot ({D}Y - ({D}Y \odot Y) \cdot 1_K \cdot 1_K^\top)"),
    (
        "LogSoftmaxLayer",
        "DZ",
        rf"{D}Z = {D}Y - \operatorname{{stable-softmax}}(Z) \odot ({D}Y \cdot 1_K \cdot 1_K^\top )",
    ),
    ("BatchNormalizationLayer", "R", r"R = X - 1_N \cdot \mu"),
    ("BatchNormalizationLayer", "inv_sqrt_Sigma", r"\Sigma^{-\frac12} := (\Sigma + \varepsilon)^{-\frac12}"),
    ("BatchNormalizationLayer", "Z", r"Z = (1_N \cdot \Sigma^{-\frac12}) \odot R"),
    ("BatchNormalizationLayer", "Dgamma", rf"{D}\gamma = 1_N^\top \cdot ({D}Y \odot Z)"),
]
OTHER_LAYERS = [
    ("LayerNormalizationLayer", "Z", r"Z = (\Sigma^{-\frac12} \cdot 1_D^\top) \odot R"),
    (
        "LayerNormalizationLayer",
        "DX",
        rf"{D}X = (\Sigma^{{-\frac12}} \cdot 1_D^\top) \odot ({D}Z - s \cdot 1_D^\top - Z \odot (t \cdot 1_D^\top))",
    ),
]


@pytest.mark.parametrize(("layer", "name", "expected"), [*PAPER_LAYERS, *OTHER_LAYERS])
def test_an_equation_of_a_layer_is_the_papers(layer: str, name: str, expected: str):
    assert layer_lines(getattr(mg, layer), name)[0] == squeezed(expected)


def test_training_and_evaluation_are_told_apart():
    training, evaluation = layer_lines(mg.BatchNormalizationLayer, "DX")
    first = r"\left(1_N \cdot \frac{\Sigma^{-\frac12}}{N} \right) \odot"
    assert training == squeezed(rf"{D}X = {first} (N \cdot {D}Z - 1_N \cdot s - Z \odot (1_N \cdot t))")
    after = squeezed(r"\quad \text{in evaluation mode}")
    assert evaluation == squeezed(rf"{D}X = (1_N \cdot \Sigma^{{-\frac12}}) \odot {D}Z") + after
    assert layer_lines(mg.BatchNormalizationLayer, "Sigma") == [
        squeezed(r"\Sigma = \frac{1_N^\top \cdot (R \odot R)}{N}"),
        squeezed(r"\Sigma = \mathrm{running\ variance}") + after,
    ]
    assert layer_lines(mg.LinearLayer, "DX") == [squeezed(rf"{D}X = {D}Y \cdot W")]


def test_what_is_no_equation_of_its_own_is_written_out():
    # L, R = hadamard(DY, act.left(Z)), hadamard(DY, act.right(Z))
    assert layer_lines(mg.SReLULayer, "Dal") == [
        squeezed(rf"{D}a_l = 1_N^\top \cdot (({D}Y \odot \operatorname{{left}}(Z)) \odot (Z - 1_N \cdot t_l))")
    ]


PAPER_FUNCTIONS = [
    (
        mg.SquaredErrorLoss().__call__,
        r"\mathcal{L}_{\mathrm{SE}}(Y, T) = 1_N^\top \cdot ((Y - T) \odot (Y - T)) \cdot 1_K",
    ),
    (
        mg.CrossEntropyLoss().__call__,
        r"\mathcal{L}_{\mathrm{CE}}(Y, T) = - 1_N^\top \cdot (T \odot \log(Y)) \cdot 1_K",
    ),
    (
        mg.SoftmaxCrossEntropyLoss().gradient,
        r"\nabla_Y \mathcal{L}_{\mathrm{SCE}}(Y, T) = "
        r"\operatorname{stable-softmax}(Y) \odot (T \cdot 1_K \cdot 1_K^\top) - T",
    ),
    (
        mg.NegativeLogLikelihoodLoss().__call__,
        r"\mathcal{L}_{\mathrm{NLL}}(Y, T) = - 1_N^\top \cdot \log((Y \odot T) \cdot 1_K)",
    ),
    (sigmoid.__call__, r"\sigma(X) = \frac{1}{1 + e^{-X}}"),
    (softmax_functions.softmax, r"\mathrm{softmax}(X) = E \odot \left( \frac{1}{E \cdot 1_D}  \cdot 1_D^\top \right)"),
    (
        softmax_functions.softmax_jacobian,
        r"\frac{\partial}{\partial x} \mathrm{softmax}(x) = \mathrm{Diag}(y) - y^\top y",
    ),
]


@pytest.mark.parametrize(("function", "expected"), PAPER_FUNCTIONS)
def test_what_a_function_returns_is_the_papers(function, expected: str):
    assert lines(function_latex(function))[-1] == squeezed(expected)


def test_the_updates_of_an_optimizer_refer_to_each_other():
    optimizer = mg.NesterovOptimizer(np.zeros((2, 3)), None)
    assert {name: squeezed(x) for name, x in update_latex(optimizer).items()} == {
        "delta": squeezed(rf"\Delta' = \mu \cdot \Delta - \eta \cdot {D}x"),
        "x": squeezed(rf"x' = x + \mu \cdot \Delta' - \eta \cdot {D}x"),
    }


def test_variables_of_a_function_have_lines():
    assert lines(function_latex(softmax_functions.softmax))[0] == "E=e^{X}"
    assert lines(function_latex(mg.CrossEntropyLoss(0.1).gradient))[0] == squeezed(r"T' = \operatorname{targets}(T)")
    assert lines(function_latex(mg.GELUActivation().gradient))[0].endswith(r"}{\sqrt{2\pi}}")  # not its value


# -- everything ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("title", "found"), EVERYTHING, ids=[title for title, _ in EVERYTHING])
def test_every_equation_is_typeset_with_balanced_brackets(title: str, found: list[str]):
    assert found
    for latex in found:
        assert re.search(r"&?=", latex), latex
        assert r"\texttt" not in latex, f"{title}: not understood: {latex}"
        assert "self" not in latex
        assert latex.count(r"\left(") == latex.count(r"\right)"), latex
        assert re.findall(r"\\begin\{(\w+)\}", latex)[::-1] == re.findall(r"\\end\{(\w+)\}", latex), latex
        for opening, closing in ("{}", "()"):
            depths = [latex[:k].count(opening) - latex[:k].count(closing) for k in range(len(latex) + 1)]
            assert min(depths) == 0, latex
            assert depths[-1] == 0, latex


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_document_of_everything_compiles(tmp_path: Path):
    (tmp_path / "notes.tex").write_text(latex_document(EVERYTHING), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "notes.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, errors="replace")
    assert result.returncode == 0, result.stdout[-2000:]
    assert (tmp_path / "notes.pdf").stat().st_size > 10_000
    assert "Overfull" not in result.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [("X", "X"), ("DX", rf"{D}X"), ("D", "D"), ("Delta", r"\Delta"), ("Data", r"\mathrm{Data}"), ("c1", "c_1"),
     ("Dgamma", rf"{D}\gamma"), ("beta2", r"\beta_2"), ("Dbeta2", rf"{D}\beta_2"), ("W12", "W_{12}"),
     ("x_max", r"x_{\mathrm{max}}"), ("epsilon", r"\varepsilon"), ("running_mean", r"\mathrm{running\ mean}"),
     ("inv_sqrt_Sigma", r"\Sigma^{-\frac12}"), ("x''", "x''"), ("inv_sqrt_v'", r"(v^{-\frac12})'"), ("D1", "D_1")],
)  # fmt: skip
def test_names_are_letters_or_words(name: str, expected: str):
    assert symbol(name) == expected


# -- layers of a user ------------------------------------------------------------------------------


class ScaledLayer(mg.ActivationLayer):
    """A layer of a user: parameters with long names, a base class and an update."""

    parameters = ("W", "b", "scale")

    def __init__(self, input_size, output_size):
        self.scale = np.ones((1, output_size))
        super().__init__(input_size, output_size, "GELU")

    def feedforward(self, X):
        Q = super().feedforward(X)
        n, _ = Q.shape

        Y = hadamard(row_repeat(self.scale, n), Q)
        Y = Y - row_repeat(columns_mean(Y), n)
        M = rows_sum(exp(Y))

        self.Q, self.M = Q, M
        return Y

    def backpropagate(self, Y, DY):
        DQ = hadamard(DY, row_repeat(self.scale, Y.shape[0]))
        Dscale = columns_sum(hadamard(DY, self.Q))
        super().backpropagate(self.Q, DQ)

        self.Dscale = Dscale


@pytest.mark.parametrize(("D", "K"), [(2, 3), (3, 3)])
def test_a_layer_of_a_user_is_written_in_its_own_names(D: int, K: int):
    D_ = r"\mathsf{D}"
    assert [*layer_latex(ScaledLayer(D, K)).values()] == [
        r"Z = X \cdot W^\top + 1_N \cdot b",
        r"Q = \operatorname{gelu}(Z)",
        r"Y = (1_N \cdot \mathrm{scale}) \odot Q",
        r"Y' = Y - 1_N \cdot \frac{1_N^\top \cdot Y}{N}",
        r"M = e^{Y'} \cdot 1_K",
        rf"{D_}Q = {D_}Y \odot (1_N \cdot \mathrm{{scale}})",
        rf"{D_}\mathrm{{scale}} = 1_N^\top \cdot ({D_}Y \odot Q)",
        rf"{D_}Z = {D_}Q \odot \operatorname{{gelu}}'(Z)",
        rf"{D_}W = {D_}Z^\top \cdot X",
        rf"{D_}b = 1_N^\top \cdot {D_}Z",
        rf"{D_}X = {D_}Z \cdot W",
    ]


def test_a_layer_of_an_image_has_the_numbers_that_it_needs():
    layer = layers.ConvolutionLayer((2, 3, 1), 2, 2, padding=1)
    found = {str(e): squeezed(x) for e, x in layer_latex(layer).items()}
    assert found["ConvolutionLayer.U"] == squeezed(r"U = \mathrm{stack}_{{12}}(X \cdot E^\top)")
    assert found["ConvolutionLayer.DX"] == squeezed(rf"{D}X = \mathrm{{stack}}_{{{{12}}}}^{{-1}}({D}U) \cdot E")


def test_a_layer_that_fails_has_the_equations_before():
    class Broken(mg.LinearLayer):
        def feedforward(self, X):
            Z = super().feedforward(X)
            Y = np.maximum(Z, 0)
            return Y

    assert [*layer_latex(Broken(2, 3)).values()] == [r"Z = X \cdot W^\top + 1_N \cdot b"]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (mg.LinearLayer(2, 3), [r"Y = X \cdot W^\top + 1_N \cdot b", rf"{D}W = {D}Y^\top \cdot X"]),
        (mg.DropoutLayer(2, dropout=0), ["Y = X", rf"{D}X = {D}Y"]),
    ],
)
def test_the_equations_of_a_layer_without_dropout_have_no_R(layer, expected):
    assert [*layer_latex(layer).values()][:2] == expected
