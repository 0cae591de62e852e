"""`mg.derive`: the paper's equations, normalizations, every operation of the table, and what it says of bad input."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import matgrad as mg
from matgrad import derivation
from matgrad.activation_functions import create_activation
from matgrad.cli.verify import layer_named
from matgrad.foundation.notation import document
from matgrad.foundation.numbers import own_generator
from matgrad.judges import prove_layer
from matgrad.judges.index_judge import Symbols, is_proved
from matgrad.program import adjoint
from matgrad.program.entries import symbols
from matgrad.program.operations import COMPOSED, OPERATIONS
from matgrad.program.text import program_latex
from matgrad.specifications.models import LAYERS
from support import PATIENCE

ENGINE = Path(derivation.__file__).parent
ACTIVATIONS = ("ReLU", "LeakyReLU", "AllReLU", "HyperbolicTangent", "Sigmoid", "GELU", "SiLU", "ELU", "Softplus")

LAYER_NORMALIZATION = """
gamma: 1 D = 1
beta: 1 D = 0

R = X - column_repeat(rows_mean(X), D)
Sigma = rows_mean(hadamard(R, R))  # of every row
inv_sqrt_Sigma = inv_sqrt(Sigma, 1e-5)
Z = hadamard(column_repeat(inv_sqrt_Sigma, D), R)
Y = hadamard(row_repeat(gamma, N), Z) + row_repeat(beta, N)
"""
RMS_NORMALIZATION = (
    "gamma: 1 D = 1; s = inv_sqrt(rows_mean(hadamard(X, X)), 1e-5); Z = hadamard(column_repeat(s, D), X); "
    "Y = hadamard(row_repeat(gamma, N), Z)"
)


def maker(name: str):
    """The constructor of a layer from D and K."""
    if name not in LAYERS:
        return lambda D, K: mg.ActivationLayer(D, K, name)
    cls = LAYERS[name]
    return lambda D, K: cls(D, D if cls.keeps_size else K)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [*LAYERS, *ACTIVATIONS])
def test_derived_gradients_are_those_of_the_layer(name, training):
    """In index notation: for all sizes."""
    mg.manual_seed(1)
    with own_generator():
        found = mg.derive(maker(name), training=training)
    assert found.is_proved, found.problems
    of_layers = Symbols()
    N = of_layers.size("N")
    layer = of_layers.layer(maker(name), training=training)
    derived = object.__new__(found.layer)
    vars(derived).update(vars(layer), _optimizers={})
    X = symbols("X", N, layer.input_size)
    for line in found.feedforward:  # a drawn matrix is an input of the derived layer
        if "U" in re.findall(r"\w+", line.code):
            drawn = next(x for x in re.findall(r"U\.[\w.]+", layer.clone().feedforward(X).entry.key))
            derived.U = symbols(drawn, N, layer.input_size)
    G = symbols("G", N, layer.output_size)
    layer.backpropagate(layer.feedforward(X), G)
    derived.backpropagate(derived.feedforward(X), G)
    for gradient_name in (*(f"D{parameter}" for parameter in layer.parameters), "DX"):
        assert is_proved(getattr(derived, gradient_name), getattr(layer, gradient_name)), gradient_name


def test_the_equations_of_the_paper():
    assert mg.derive(mg.LinearLayer).equations == {"DW": "DY.T @ X", "Db": "columns_sum(DY)", "DX": "DY @ W"}
    softmax = mg.derive(mg.SoftmaxLayer).equations
    assert softmax["DZ"] == "hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))"
    assert softmax["DW"] == "DZ.T @ X"
    assert mg.derive(maker("ReLU")).equations["DZ"] == "hadamard(DY, act.gradient(Z))"
    log_softmax = mg.derive(mg.LogSoftmaxLayer).equations
    assert log_softmax["DZ"] == "DY - hadamard(column_repeat(rows_sum(DY), K), exp(Y))"
    batch = mg.derive(mg.BatchNormalizationLayer).equations
    assert batch["DZ"] == "hadamard(row_repeat(gamma, N), DY)"
    assert (batch["s"], batch["s1"]) == ("columns_sum(DZ)", "columns_sum(hadamard(DZ, Z))")
    assert batch["DX"] == (
        "hadamard(row_repeat(inv_sqrt_Sigma, N), N * DZ - row_repeat(s, N) - hadamard(row_repeat(s1, N), Z)) / N"
    )


def test_the_variance_as_the_paper_writes_it():
    found = mg.derive(
        "gamma: 1 D = 1; beta: 1 D; R = X - row_repeat(columns_mean(X), N); Sigma = diag(R.T @ R).T / N; "
        "s = inv_sqrt(Sigma); Z = hadamard(row_repeat(s, N), R); "
        "Y = hadamard(row_repeat(gamma, N), Z) + row_repeat(beta, N)"
    )
    assert found.is_proved
    assert "@" not in "".join(found.equations.values()), "no N×N or D×D product"


@pytest.mark.parametrize(
    ("text", "function"),
    [
        (LAYER_NORMALIZATION, torch.nn.functional.layer_norm),
        (RMS_NORMALIZATION, torch.nn.functional.rms_norm),
    ],
    ids=["layer normalization", "RMS normalization"],
)
def test_normalizations_of_rows(text, function):
    found = mg.derive(text, name="Normalization")
    assert found.is_proved, found.problems
    layer, rng = found.layer(5, 5), np.random.default_rng(3)
    for name in layer.parameters:
        setattr(layer, name, rng.normal(size=(1, 5)))
    X, DY = rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
    Y = layer.feedforward(X)
    layer.backpropagate(Y, DY)

    x, *parameters = leaves = [
        torch.tensor(A, requires_grad=True) for A in (X, *(getattr(layer, p) for p in layer.parameters))
    ]
    expected = function(x, (5,), *(p.reshape(-1) for p in parameters), eps=1e-5)
    np.testing.assert_allclose(Y, expected.detach().numpy(), rtol=1e-12)
    for name, g in zip(
        ("X", *layer.parameters), torch.autograd.grad((expected * torch.tensor(DY)).sum(), leaves), strict=True
    ):
        np.testing.assert_allclose(getattr(layer, f"D{name}"), g.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


def test_the_code_is_a_layer_that_trains():
    found = mg.derive(LAYER_NORMALIZATION, name="RowNormalization")
    assert found.layer.__name__ == "RowNormalizationLayer"
    assert all(check.ok for check in prove_layer(found.layer)), "the prover of layers agrees"
    mg.manual_seed(0)
    M = mg.MultilayerPerceptron()
    M.layers += [mg.ActivationLayer(4, 6, "ReLU"), found.layer(6, 6), mg.LinearLayer(6, 3)]
    X, T = (
        np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32),
        np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2, 0]],
    )
    results = mg.check_gradients(M, mg.SoftmaxCrossEntropyLoss(), X, T)
    assert all(result.ok for result in results)
    assert M.feedforward(X).dtype == np.float32


OPERATIONS_OF_X = {
    "transpose": "(X.T + X.T).T",
    "row_repeat": "row_repeat(columns_sum(X), N)",
    "column_repeat": "column_repeat(rows_sum(X), K)",
    "full": "elements_sum(X) * ones(N, K)",
    "add": "X + tanh(X)",
    "subtract": "X - tanh(X)",
    "hadamard": "hadamard(X, W @ W.T @ ones(K, 1) @ ones(1, D))",
    "negative": "-X",
    "copy": "X",
    "scale": "dot(b, b) * X",
    "divide": "X / (1 + dot(b, b))",
    "power": "X ** 3",
    "exp": "exp(X)",
    "log": "log(X)",
    "log1p": "log1p(X)",
    "reciprocal": "reciprocal(X)",
    "sqrt": "sqrt(X)",
    "inv_sqrt": "inv_sqrt(X, 0.1)",
    "tanh": "tanh(X)",
    "erf": "erf(X)",
    "log_sigmoid": "log_sigmoid(X)",
    "clip": "clip(X, 2)",
    "sign": "hadamard(X, sign(X))",
    "step": "hadamard(X, step(X))",
    "call": "SiLU(X)",
    "elements_sum": "elements_sum(hadamard(X, X)) * X",
    "dot": "dot(columns_sum(X), columns_mean(X)) * X",
    "columns_sum": "columns_sum(hadamard(X, X))",
    "rows_sum": "rows_sum(hadamard(X, X))",
    "columns_mean": "columns_mean(hadamard(X, X))",
    "rows_mean": "rows_mean(hadamard(X, X))",
    "columns_max": "columns_max(X)",
    "rows_max": "rows_max(X)",
    "matmul": "X @ W.T",
    "diag": "diag(X.T @ X)",
    "Diag": "X @ Diag(columns_sum(X))",
    "stack": "stack(unstack(tanh(row_repeat(columns_sum(X), N * K)), K), K)",
    "unstack": "unstack(row_repeat(columns_sum(X), N * K), K)",
    "block_product": "Diag(row_repeat(columns_sum(X), N * K), K) @ row_repeat(columns_sum(X), N * D)",
    "block_transposed_product": "Diag(row_repeat(columns_sum(X), N * K), K).T @ row_repeat(columns_sum(X), N * K)",
    "diag_product": "diag_product(row_repeat(columns_sum(X), N * K), row_repeat(columns_sum(X), N * K).T, K)",
}


def adapted(expression: str) -> str:
    """The equations in which an operation is tested: only square matrices have a diagonal."""
    return f"W: K D; b: 1 K; Y = {expression}".replace(
        "W @ W.T @ ones(K, 1) @ ones(1, D)", "ones(N, 1) @ columns_sum(W)"
    )


def test_every_operation_has_an_adjoint():
    differentiable = {name for name, row in OPERATIONS.items() if row.index is not None and row.shapes.operands}
    fused = {"add_scaled", "gate", "product_sum"}  # which only engines make
    assert differentiable - fused | COMPOSED.keys() == adjoint.ADJOINTS.keys() == OPERATIONS_OF_X.keys()


@pytest.mark.parametrize("operation", OPERATIONS_OF_X)
def test_the_adjoint_of_every_operation_is_proved(operation):
    found = mg.derive(adapted(OPERATIONS_OF_X[operation]))
    assert found.is_proved, found.problems


def test_a_wrong_rule_is_not_proved(monkeypatch):
    monkeypatch.setitem(adjoint.ADJOINTS, "tanh", lambda DY, Y, X: (DY,))
    found = mg.derive("Y = tanh(X)")
    assert not found.is_proved
    assert [x.split(":")[0] for x in found.problems] == ["DX is not proved"]
    assert "# NOT PROVED" in str(found)


def test_nothing_is_divided_by_that_feedforward_does_not_divide_by():
    """DX is not DY ⊙ Y / X: where X is 0, that has no value."""
    found = mg.derive("g: 1 D = 1; Y = hadamard(row_repeat(g, N), hadamard(X, X))")
    assert "reciprocal" not in found.code


def test_no_name_of_a_layer_is_in_the_source():
    for path in ENGINE.glob("*.py"):
        for cls in LAYERS.values():
            for name in (cls.__name__, cls.__name__.removesuffix("Layer")):
                assert not re.search(rf"\b{name}\b", path.read_text()), f"{name} in {path.name}"


def test_latex():
    assert mg.derive(mg.SoftmaxLayer).latex.splitlines()[4] == (
        r"\mathsf{D}Z &= Y \odot (\mathsf{D}Y - (\mathsf{D}Y \odot Y) \cdot 1_K \cdot 1_K^\top) \\"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no equation"),
        ("Z = X", "the last equation: expected that of the output, Y = …, found Z"),
        ("Y = X +* 2", "'Y = X +* 2': invalid syntax; expected NAME = EXPRESSION, or NAME: ROWS COLUMNS"),
        ("Y = foo(X)", "unknown operation 'foo'; known: Diag, clip"),
        ("Y = hadamard(X, g)", "g is not defined; known: D, N, X, Diag"),
        ("g: 1 D; Y = hadamard(X, g)", "hadamard: expected equal sizes, found N × D and 1 × D"),
        ("Y = X @ X", "'Y = X @ X': matmul: expected shapes m k, k n -> m n, found N × D, N × D"),
        ("Y = X + rows_sum(X)", "add: expected shapes"),
        ("Y = X[0]", "X[0] is not allowed; expected the operators"),
        ("Y = ones(3, D)", "expected a size, 1 or a name such as N, found 3"),
        ("Y = elements_sum(X)", "expected a matrix, found a scalar"),
        ("Y = 3", "expected a matrix, found 3"),
        ("Y = exp", "expected a matrix, found exp"),
        ("Y = X; Y = X", "Y has a meaning already"),
        ("DX = X; Y = DX", "DX has a meaning already"),
        ("exp = X; Y = exp", "exp is the name of a size or a function"),
        ("g: 1 d; Y = X", "'g: 1 d': expected two sizes, each 1 or a name such as N, D or K, found 'd'"),
        ("g: 1 D = one; Y = X", "expected a number after =, found 'one'"),
    ],
)
def test_bad_equations(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        mg.derive(text)


def test_a_bad_name():
    with pytest.raises(ValueError, match="expected one that a Python class can have, found 'a b'"):
        mg.derive("Y = X", name="a b")


def test_a_layer_that_looks_at_numbers():
    class Clipped(mg.Layer):
        def feedforward(self, X):
            Y = X if X[0, 0] else X + X
            return Y

    with pytest.raises(TypeError, match="cannot depend on the numbers in a matrix"):
        mg.derive(Clipped)


def test_only_feedforward_is_read():
    class Doubled(mg.Layer):
        def feedforward(self, X):
            Y = X + X
            self.X = X
            return Y

        def backpropagate(self, Y, DY):
            raise AssertionError

    assert mg.derive(Doubled).equations == {"DX": "2 * DY"}


def test_gradient_of_an_unused_parameter_is_zero():
    found = mg.derive("W: K D; Y = tanh(X)")
    assert found.is_proved
    assert found.equations["DW"] == "zeros(K, D, like=DY)"


def test_a_derivative_in_feedforward_is_looked_into():
    class Slope(mg.Layer):
        keeps_size = True

        def __init__(self, D, K):
            super().__init__(D, K)
            self.act = create_activation("Sigmoid")
            self.alpha = -0.5

        def feedforward(self, X):
            Y = self.act.gradient(X) + (self.alpha * X if self.alpha else X)
            return Y

    assert mg.derive(Slope).is_proved


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("sigmoid(X)", torch.sigmoid),
        ("max(0, X)", torch.relu),
        ("X / (1 + exp(-X))", torch.nn.functional.silu),
        ("X * σ(X)", torch.nn.functional.silu),
    ],
)
def test_what_students_type(typed, expected):
    found = mg.derive(f"Y = {typed}")
    assert found.is_proved
    layer = found.layer(3, 3)
    X = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    Y, G = expected(X), torch.ones(4, 3)
    Y.backward(G)
    np.testing.assert_allclose(layer.feedforward(X.detach().numpy()), Y.detach(), rtol=1e-5, atol=1e-6)
    layer.backpropagate(Y.detach().numpy(), G.numpy())
    np.testing.assert_allclose(layer.DX, X.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("hadamrd(X, X)", "did you mean hadamard?"), ("sigmiod(X)", "did you mean Sigmoid?"), ("max(X)", "max(X, 0)")],
)
def test_a_name_is_suggested(typed, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        mg.derive(f"Y = {typed}")


def test_formulas_in_a_notebook():
    html = mg.derive("Y = X / (1 + exp(-X))")._repr_html_()
    assert html.count("<math") == 5
    assert "proved" in html


def compiled(folder, *bodies):
    """Whether pdflatex accepts a document."""
    (folder / "notes.tex").write_text(document(*bodies), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "notes.tex"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, errors="replace")
    assert found.returncode == 0, found.stdout[-2000:]


NEEDS_LATEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


@NEEDS_LATEX
def test_latex_compiles(tmp_path):
    found = mg.derive("inv_sqrt_Sigma = inv_sqrt(rows_sum(X * X), 1); Y = X * column_repeat(inv_sqrt_Sigma**3, D)")
    compiled(tmp_path, mg.derive(mg.BatchNormalizationLayer).latex, found.latex)
    assert r"^{-\frac12})^{3}" in found.latex


@NEEDS_LATEX
@pytest.mark.slow
def test_latex_of_everything_compiles(tmp_path):
    derived = [
        mg.derive(layer_named(x), training=training).latex
        for x in (*LAYERS, *ACTIVATIONS)
        for training in (True, False)
    ]
    models = [mg.create_model(f"{x};Linear", "6;5;4") for x in ACTIVATIONS]
    models += [mg.create_model("BatchNormalization;SReLU;Softmax", "6;5;4"), mg.create_model("LogSoftmax", "6;4")]
    programs = [program_latex(M.program(), is_opened=x) for M in models for x in (True, False)]
    compiled(tmp_path, *derived, *programs)
