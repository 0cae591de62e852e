r"""LaTeX from the source: the paper's equations, parentheses, names and sizes, and that the result compiles.

Expected strings are the paper's, with \mathsf{D} for \Gradient and N for \const{N}; where the code has the linear
form of an equation, or ε, or smoothed targets T', the expected string has it in the paper's notation.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import matgrad as mg
from matgrad import layers, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, SReLUActivation, sigmoid
from matgrad.foundation.notation import symbol
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.latex import latex_document, latex_equation, latex_function
from matgrad.inspection.typesetter import Typesetter
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import columns_mean, columns_sum, hadamard, row_repeat, rows_sum
from matgrad.optimizers import OPTIMIZERS
from support import PATIENCE

LAYERS = [cls for name, cls in vars(layers).items() if isinstance(cls, type) and name != "Layer"]
SOFTMAX = [
    f for _, f in inspect.getmembers(softmax_functions, inspect.isfunction) if f.__module__.endswith("x_functions")
]
D = r"\mathsf{D}"


def squeezed(latex: str) -> str:
    """Without whitespace, \\left and \\right, which do not change what is meant."""
    return re.sub(r"\s|\\left(?=\W)|\\right(?=\W)", "", latex)


def lines(latex: str) -> list[str]:
    """The lines of an aligned environment."""
    inner = re.sub(r"\\(begin|end)\{aligned\}", "", latex)
    return [squeezed(line).replace("&=", "=") for line in inner.split(r"\\")]


def layer_latex(layer: type, name: str) -> list[str]:
    found = [e for method in METHODS for e in equations(layer, method) if e.name == name]
    return [squeezed(latex_equation(e)) for e in found]


def everything() -> list[tuple[str, list[str]]]:
    """All equations of the package."""
    pairs = [*ACTIVATIONS.values(), SReLUActivation, *LOSSES.values()]
    return [
        *((c.__name__, [latex_equation(e) for method in METHODS for e in equations(c, method)]) for c in LAYERS),
        *((c.__name__, [latex_function(c.__call__, c), latex_function(c.gradient, c)]) for c in pairs),
        ("parts", [latex_function(getattr(SReLUActivation, name)) for name in ("left", "right", "middle")]),
        (
            "more parts",
            [latex_function(mg.CrossEntropyLoss.targets), latex_function(mg.CrossEntropyLoss.mean_gradient)],
        ),
        ("statistics", [latex_function(mg.BatchNormalizationLayer.update_statistics)]),
        ("dropout", [latex_function(mg.LinearDropoutLayer.dropout_matrix)]),
        *((c.__name__, [latex_function(c.update, c)]) for c in OPTIMIZERS.values()),
        ("softmax_functions & 100 %", [latex_function(f) for f in SOFTMAX]),
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
    assert layer_latex(getattr(mg, layer), name)[-1] == squeezed(expected)


def test_training_and_evaluation_are_told_apart():
    training, evaluation = layer_latex(mg.BatchNormalizationLayer, "DX")
    first = r"\left(1_N \cdot \frac{\Sigma^{-\frac12}}{N} \right) \odot"
    second = rf"(N \cdot {D}Z - 1_N \cdot s - Z \odot (1_N \cdot t)) \quad \text{{if }} \mathrm{{training}}"
    assert training == squeezed(rf"{D}X = {first} {second}")
    assert evaluation == squeezed(rf"{D}X = (1_N \cdot \Sigma^{{-\frac12}}) \odot {D}Z \quad \text{{otherwise}}")
    cases = r"\begin{cases} \frac{1_N^\top \cdot (R \odot R)}{N} & \text{if } \mathrm{training} \\"
    cases += r"\mathrm{running\ variance} & \text{otherwise} \end{cases}"
    assert layer_latex(mg.BatchNormalizationLayer, "Sigma") == [squeezed(rf"\Sigma = {cases}")]


def test_what_is_no_equation_of_its_own_is_written_out():
    # L, R = hadamard(DY, act.left(Z)), hadamard(DY, act.right(Z))
    assert layer_latex(mg.SReLULayer, "Dal") == [
        squeezed(rf"{D}a_l = 1_N^\top \cdot ({D}Y \odot \operatorname{{left}}(Z) \odot (Z - 1_N \cdot t_l))")
    ]


PAPER_FUNCTIONS = [
    (
        mg.SquaredErrorLoss().__call__,
        r"\mathcal{L}_{\mathrm{SE}}(Y, T) = 1_N^\top \cdot ((Y - T) \odot (Y - T)) \cdot 1_K",
    ),
    (
        mg.CrossEntropyLoss().__call__,
        r"\mathcal{L}_{\mathrm{CE}}(Y, T) = - 1_N^\top \cdot (T' \odot \log(Y)) \cdot 1_K",
    ),
    (
        mg.SoftmaxCrossEntropyLoss().gradient,
        r"\nabla_Y \mathcal{L}_{\mathrm{SCE}}(Y, T) = "
        r"\operatorname{stable-softmax}(Y) \odot (T' \cdot 1_K \cdot 1_K^\top) - T'",
    ),
    (
        mg.NegativeLogLikelihoodLoss().__call__,
        r"\mathcal{L}_{\mathrm{NLL}}(Y, T) = - 1_N^\top \cdot \log((Y \odot T) \cdot 1_K)",
    ),
    (sigmoid, r"\sigma(X) = \frac{1}{1 + e^{-X}}"),
    (softmax_functions.softmax, r"\mathrm{softmax}(X) = E \odot \left( \frac{1}{E \cdot 1_D}  \cdot 1_D^\top \right)"),
    (
        softmax_functions.softmax_jacobian,
        r"\frac{\partial}{\partial x} \mathrm{softmax}(x) = \mathrm{Diag}(y) - y^\top y",
    ),
]


@pytest.mark.parametrize(("function", "expected"), PAPER_FUNCTIONS)
def test_what_a_function_returns_is_the_papers(function, expected: str):
    assert lines(latex_function(function))[-1] == squeezed(expected)


def test_the_lines_of_a_function_are_in_order():
    assert lines(latex_function(mg.NesterovOptimizer.update)) == [
        squeezed(rf"\Delta' = \mu \cdot \Delta - \eta \cdot {D}x"),
        squeezed(rf"x' = x + \mu \cdot \Delta' - \eta \cdot {D}x"),
    ]
    assert latex_function(mg.GradientDescentOptimizer.update) == rf"x' = x - \eta \cdot {D}x"
    first, *_, last = lines(latex_function(OPTIMIZERS["AdamW"].update))  # two updates of x
    assert first.startswith("x'=x-")
    assert last.startswith("x''=x'-")
    targets = lines(latex_function(mg.CrossEntropyLoss().gradient))[0]
    assert targets == squeezed(r"T' = \operatorname{targets}(T)")
    assert lines(latex_function(mg.GELUActivation().gradient))[0].endswith(r"}{\sqrt{2\pi}}")  # not its value


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


# -- expressions -------------------------------------------------------------------------------------


def typeset(source: str, **sizes: tuple[str | None, str | None]) -> str:
    return Typesetter(sizes)(ast.parse(source, mode="eval").body).text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a - (b - c)", "a - (b - c)"),
        ("a + (b - c)", "a + b - c"),
        ("a + (-b)", "a + (-b)"),
        ("a - (-b + c)", "a - (-b + c)"),
        ("-(a + b)", "-(a + b)"),
        ("-a * b", r"-a \cdot b"),
        ("a * -b", r"a \cdot (-b)"),
        ("c - -a * b", r"c - (-a \cdot b)"),
        ("(X + Y) @ Z.T", r"(X + Y) \cdot Z^\top"),
        ("(X + Y).T", r"(X + Y)^\top"),
        ("X.T.T", r"(X^\top)^\top"),
        ("exp(X).T", r"(e^{X})^\top"),
        ("(X / n).T", r"\left( \frac{X}{n} \right)^\top"),
        ("-a / b", r"\frac{-a}{b}"),
        ("2 * X", "2 X"),
        ("2 * (X - Y)", "2 (X - Y)"),
        ("(-x) ** 2", "(-x)^{2}"),
        ("1e-05 * x", r"10^{-5} \cdot x"),
        ("hadamard(X, hadamard(Y, Z))", r"X \odot Y \odot Z"),
        ("hadamard(X @ Y, Z)", r"(X Y) \odot Z"),
        ("hadamard(-X, Y)", r"-X \odot Y"),
        ("hadamard(-(X @ Y), Z)", r"-(X Y) \odot Z"),
        ("hadamard(X, -Y)", r"X \odot (-Y)"),
        ("inv_sqrt(X + Y)", r"(X + Y)^{-\frac12}"),
        ("log1p(-X)", r"\log(1 + (-X))"),
        ("(a if t else b) + c", r"(\begin{cases} a & \text{if } t \neq 0 \\ b & \text{otherwise} \end{cases}) + c"),
    ],
)  # fmt: skip
def test_parentheses_stand_where_they_are_needed(source: str, expected: str):
    assert squeezed(typeset(source)) == squeezed(expected)


def test_sizes_follow_from_those_that_are_known():
    assert typeset("columns_sum(X)") == r"1^\top \cdot X"
    assert typeset("columns_sum(X)", X=("N", None)) == r"1_N^\top \cdot X"
    assert typeset("columns_sum(DX.T)", X=("N", "K")) == rf"1_K^\top \cdot {D}X^\top"
    assert typeset("rows_sum(Y @ X)", X=(None, "K")) == r"Y X \cdot 1_K"
    assert typeset("rows_sum(column_repeat(x, K + 1))") == r"x \cdot 1_{K + 1}^\top \cdot 1_{K + 1}"
    assert typeset("rows_mean(X)", X=("N", "K")) == r"\frac{X \cdot 1_K}{K}"
    assert typeset("columns_mean(X)") == r"\operatorname{columns-mean}(X)"
    assert typeset("elements_sum(X)", X=("N", "1")) == r"1_N^\top \cdot X"
    assert typeset("ones(2, n)") == r"1_{2 \times n}"
    assert typeset("zeros(m, n)") == "0_{mn}"
    assert typeset("dot(x, y)", x=("1", "n")) == r"x y^\top"
    assert typeset("dot(x, y)", y=("m", "1")) == r"x^\top y"
    assert typeset("dot(x, y)") == r"\langle x, y \rangle"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("X", "X"), ("DX", rf"{D}X"), ("D", "D"), ("Delta", r"\Delta"), ("Data", r"\mathrm{Data}"), ("c1", "c_1"),
     ("Dgamma", rf"{D}\gamma"), ("beta2", r"\beta_2"), ("Dbeta2", rf"{D}\beta_2"), ("W12", "W_{12}"),
     ("x_max", r"x_{\mathrm{max}}"), ("epsilon", r"\varepsilon"), ("running_mean", r"\mathrm{running\ mean}"),
     ("inv_sqrt_Sigma", r"\Sigma^{-\frac12}"), ("x''", "x''"), ("inv_sqrt_v'", r"(v^{-\frac12})'"), ("D1", "D_1")],
)  # fmt: skip
def test_names_are_letters_or_words(name: str, expected: str):
    assert symbol(name).text == expected


# -- layers of a user ------------------------------------------------------------------------------


class ScaledLayer(mg.ActivationLayer):
    """A layer of a user: parameters with long names, a base class, an update and sizes with other letters."""

    parameters = ("W", "b", "scale")

    def feedforward(self, X):
        Q = super().feedforward(X)
        n, _ = Q.shape

        Y = hadamard(row_repeat(self.scale, n), Q)
        Y = Y - row_repeat(columns_mean(Y), n)
        M = rows_sum(my_norm(Y))

        self.Q, self.M = Q, M
        return Y

    def backpropagate(self, Y, DY):
        DQ = hadamard(DY, row_repeat(self.scale, Y.shape[0]))
        Dscale = columns_sum(hadamard(DY, self.Q))
        super().backpropagate(self.Q, DQ)

        self.Dscale = Dscale


def my_norm(X):
    return X


def test_a_layer_of_a_user_is_typeset_in_its_own_names():
    found = [latex_equation(e) for method in METHODS for e in equations(ScaledLayer, method)]
    assert found == [
        r"Z = X W^\top + 1_N \cdot b",
        r"Q = \mathrm{act}(Z)",
        r"Y = (1_N \cdot \mathrm{scale}) \odot Q",
        r"Y' = Y - 1_N \cdot \frac{1_N^\top \cdot Y}{N}",
        r"M = \operatorname{my-norm}(Y') \cdot 1",
        rf"{D}Q = {D}Y \odot (1_N \cdot \mathrm{{scale}})",
        rf"{D}\mathrm{{scale}} = 1_N^\top \cdot ({D}Y \odot Q)",
        rf"{D}Z = {D}Q \odot \mathrm{{act}}'(Z)",
        rf"{D}W = {D}Z^\top \cdot X",
        rf"{D}b = 1_N^\top \cdot {D}Z",
        rf"{D}X = {D}Z \cdot W",
    ]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (mg.LinearLayer(2, 3), [r"Y = X W^\top + 1_N \cdot b", r"\mathsf{D}W = \mathsf{D}Y^\top \cdot X"]),
        (mg.DropoutLayer(2, dropout=0), ["Y = X", r"\mathsf{D}X = \mathsf{D}Y"]),
    ],
)  # fmt: skip
def test_the_equations_of_a_layer_without_dropout_have_no_R(layer, expected):
    found = [latex_equation(equations(type(layer), method)[0], layer) for method in METHODS]
    assert found == expected
