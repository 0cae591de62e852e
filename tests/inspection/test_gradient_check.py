"""The numeric gradient check: right models pass, and of wrong ones the first wrong equation is named."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import matgrad as mg
from architectures import random_architecture
from matgrad import activation_functions, loss_functions
from matgrad.inspection.gradient_check import GradientResult, check_gradients, first_wrong
from matgrad.layers import dropout, linear, normalization
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, row_repeat, step
from support import spread, to_numpy


def assert_right(results: list[GradientResult], context: str = "") -> None:
    wrong = first_wrong(results)
    assert wrong is None, f"{context}: {wrong}"


def batch(N: int, D: int, K: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)), rng.dirichlet(np.ones(K), N)


# -- right models ------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "case"), spread(range(30), [(1, True), (7, False), (7, True), (1, False)]))
def test_random_architectures_pass(seed: int, case: tuple[int, bool]):
    N, training = case
    a = random_architecture(seed, N)
    a.M.train(training)
    results = check_gradients(a.M, a.loss, a.X, a.T, max_elements=10)
    assert_right(results, f"seed {seed}, N = {N}, training {training}")
    assert max(result.relative_error for result in results) < 1e-5
    assert sum(result.checked for result in results) > 20 * sum(result.skipped for result in results)


def test_every_gradient_is_checked_in_order_of_backpropagation():
    M = mg.MultilayerPerceptron(
        [mg.BatchNormalizationLayer(4), mg.SReLULayer(4, 3, shared=True), mg.SoftmaxLayer(3, 5)]
    )
    results = check_gradients(M, "CrossEntropy", *batch(6, 4, 5))
    assert_right(results)
    names = ["CrossEntropyLoss.gradient"]
    names += [f"layer 3 SoftmaxLayer.{D}" for D in ("DZ", "DW", "Db", "DX")]
    names += [f"layer 2 SReLULayer.{D}" for D in ("DZ", "DW", "Db", "DX", "Dal", "Dtl", "Dar", "Dtr")]
    names += [f"layer 1 BatchNormalizationLayer.{D}" for D in ("DZ", "Dbeta", "Dgamma", "DX")]
    assert [result.name for result in results] == names
    sizes = [30, 30, 15, 5, 18, 18, 12, 3, 24, 1, 1, 1, 1, 24, 4, 4, 24]
    assert [result.checked + result.skipped for result in results] == [min(size, 20) for size in sizes]
    everything = check_gradients(M, "CrossEntropy", *batch(6, 4, 5), max_elements=1000)
    assert [result.checked + result.skipped for result in everything] == sizes
    assert str(results[2]).startswith("layer 3 SoftmaxLayer.DW is right: 15 elements checked, relative error")


def test_elements_at_corners_are_skipped_and_counted():
    M = mg.MultilayerPerceptron([mg.ActivationLayer(2, 3, mg.ReLUActivation()), mg.LinearLayer(3, 2)])
    M.layers[0].W = np.array([[1.0, -1], [2, 3], [0, 0.5]])
    M.layers[0].b = np.zeros((1, 3))
    X, T = np.array([[1.0, 1], [0.3, -0.7], [0, 0]]), np.array([[1.0, 0], [0, 1], [1, 0]])
    results = {result.name: result for result in check_gradients(M, "SquaredError", X, T)}
    assert_right(list(results.values()))
    DZ = results["layer 1 ActivationLayer.DZ"]
    assert (DZ.checked, DZ.skipped) == (5, 4)  # Z is 0 at (0, 0) and in the last row
    DX = results["layer 1 ActivationLayer.DX"]
    assert (DX.checked, DX.skipped) == (2, 4)
    assert results["layer 2 LinearLayer.DW"].skipped == 0
    assert "4 at corners skipped" in str(DZ)


def test_corners_that_cancel_are_no_mistake():
    # relu(x) - relu(-x) = x, but relu'(0) = 1 on both sides gives 2 at 0
    M = mg.MultilayerPerceptron([mg.ActivationLayer(1, 2, mg.ReLUActivation()), mg.LinearLayer(2, 1)])
    M.layers[0].W, M.layers[0].b = np.array([[1.0], [-1.0]]), np.zeros((1, 2))
    M.layers[1].W, M.layers[1].b = np.array([[1.0, -1.0]]), np.zeros((1, 1))
    results = check_gradients(M, "SquaredError", np.array([[0.0], [0.4]]), np.array([[1.0], [2.0]]))
    assert_right(results)
    assert (results[-1].name, results[-1].checked, results[-1].skipped) == ("layer 1 ActivationLayer.DX", 1, 1)


# -- the model is left as it is ----------------------------------------------------------------


def test_the_model_is_not_changed(backend):
    a = random_architecture(11)
    a.M.to(backend.name, dtype="float32")
    X, T = backend.matrix(a.X, "float32"), backend.matrix(a.T, "float32")
    Y = a.M.feedforward(X)
    a.M.backpropagate(Y, a.loss.mean_gradient(Y, T))
    state = a.M.state()
    values = {name: to_numpy(value).copy() for name, value in state.items()}
    attributes = [dict(vars(layer)) for layer in a.M.layers]

    assert_right(check_gradients(a.M, a.loss, X, T))

    assert a.M.backend.name == backend.name
    assert a.M.dtype == "float32"
    assert all(a.M.state()[name] is value for name, value in state.items())
    for name, value in values.items():
        np.testing.assert_array_equal(to_numpy(state[name]), value, err_msg=name)
    for layer, before in zip(a.M.layers, attributes, strict=True):
        assert all(vars(layer)[name] is value for name, value in before.items())


def test_bad_input_is_refused_with_a_clear_error():
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)])
    X, T = batch(4, 3, 2)
    with pytest.raises(ValueError, match=r"X: expected size N × 3, found 4 × 2"):
        check_gradients(M, "SquaredError", X[:, :2], T)
    with pytest.raises(ValueError, match="X has 3 rows and T has 4"):
        check_gradients(M, "SquaredError", X[:3], T)
    with pytest.raises(ValueError, match="the loss of this batch is nan"):
        check_gradients(M, "SquaredError", X * np.nan, T)
    with pytest.raises(ValueError, match="CrossEntropyLoss cannot follow"):
        check_gradients(M, "CrossEntropy", X, T)


# -- wrong equations ---------------------------------------------------------------------------

# a layer in its module, and for each of its equations what is replaced by what
DW, DZ = "product_on(W, DY.T, X)", "hadamard(DY, act.gradient(Z))"
MUTANTS = {
    (dropout, "LinearDropoutLayer(5, 4, dropout=0.3)"): [
        ("DW", f"self.drop({DW})", DW),
        ("DX", "DY @ self.drop(W)", "DY @ W"),
    ],
    (linear, "ActivationLayer(5, 4, mg.GELUActivation())"): [
        ("DW", DW, f"2 * {DW}"),
        ("Db", "columns_sum(DY)", "columns_sum(DY) / DY.shape[0]"),
    ],
    (linear, "LinearLayer(5, 5)"): [  # square, so that the size does not tell that a transpose is missing
        ("DW", DW, "product_on(W, X.T, DY)"),
        ("DX", "DY @ W", "Y @ W"),
    ],
    (linear, "SoftmaxLayer(5, 4)"): [
        ("DZ", "DY - column_repeat(rows_sum(hadamard(DY, Y)), K)", "DY - column_repeat(rows_sum(DY), K)"),
    ],
    (linear, "LogSoftmaxLayer(5, 4)"): [
        ("DZ", "hadamard(stable_softmax(Z), column", "hadamard(Y, column"),
    ],
    (linear, "SReLULayer(5, 4, 0.2, -0.5, 0.3, 0.5)"): [
        ("Dal", "Dal = columns_sum(hadamard(L,", "Dal = columns_sum(hadamard(R,"),
        ("Dtl", "row_repeat(act.al, N)", "row_repeat(act.tl, N)"),
    ],
    (linear, "SReLULayer(5, 4, 0.2, -0.5, 0.3, 0.5, shared=True)"): [
        ("Dal", "return rows_sum(gradient) if", "return rows_sum(gradient) / 4 if"),
    ],
    (normalization, "BatchNormalizationLayer(5)"): [
        ("Dbeta", "columns_sum(DY)", "columns_sum(DY) / N"),
        ("DX", "t = columns_sum(hadamard(Z, DZ))", "t = columns_sum(hadamard(Y, DZ))"),
    ],
    (normalization, "BatchNormalizationLayer(5)", "in evaluation mode"): [
        ("DX", "DX = hadamard(row_repeat(inv_sqrt_Sigma, N), DZ)", "DX = DZ"),
    ],
    (normalization, "LayerNormalizationLayer(5)"): [
        ("Dgamma", "columns_sum(hadamard(DY, Z))", "columns_sum(hadamard(DY, Y))"),
        ("DX", "t = rows_mean(hadamard(Z, DZ))", "t = rows_mean(hadamard(Z, DY))"),
    ],
    (normalization, "RMSNormalizationLayer(5)"): [
        ("Dgamma", "columns_sum(hadamard(DY, Z))", "columns_sum(hadamard(DY, self.X))"),
        ("DX", "t = rows_mean(hadamard(Z, DZ))", "t = rows_mean(hadamard(Y, DZ))"),
    ],
}
# gradients of losses and activations; the first is reported by its own name, the second by the equation that uses it
LOSS_MUTANTS = [
    ("SquaredErrorLoss", "2 * (Y - T)", "2 * (T - Y)"),
    ("MeanSquaredErrorLoss", "return 2 * ((Y - T) / (K * N))", "return 2 * ((Y - T) / N)"),
]
ACTIVATION_MUTANTS = [
    ("HyperbolicTangentActivation", "- hadamard(Y, Y)", "- Y"),
    ("SigmoidActivation", "return hadamard(Y, 1 - Y)", "return hadamard(X, 1 - X)"),
    ("GELUActivation", "return self._Phi(X) + hadamard(X, phi)", "return self._Phi(X)"),
]


def mutant(folder: Path, module: ModuleType, old: str, new: str, cls: str = "") -> ModuleType:
    """A copy of the module in a file of its own, with the first `old` of a class replaced, or the last of the file."""
    text = inspect.getsource(module)
    assert old in text, f"{module.__name__} has no {old!r}"
    start = text.find(f"class {cls}(") if cls else -1
    i = text.find(old, start) if start >= 0 and old in text[start:] else text.rindex(old)
    path = folder / f"{module.__name__.rpartition('.')[2]}.py"
    path.write_text(text[:i] + new + text[i + len(old) :], encoding="utf-8")
    specification = importlib.util.spec_from_file_location(f"mutant_{path.stem}", path)
    copy = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(copy)
    return copy


def model_with(layer: mg.Layer) -> mg.MultilayerPerceptron:
    """The layer in the middle of a model, with parameters that are not 0 or 1."""
    layers = [mg.ActivationLayer(6, 5, mg.HyperbolicTangentActivation()), layer, mg.LinearLayer(layer.output_size, 3)]
    rng = np.random.default_rng(4)
    for part in layers:
        for name in part.parameters:
            setattr(part, name, getattr(part, name) + rng.normal(0, 0.3, getattr(part, name).shape))
        if "running_variance" in part.buffers:
            part.running_variance = part.running_variance + 0.7
    return mg.MultilayerPerceptron(layers)


@pytest.mark.parametrize(
    ("layer", "mutation"), [(layer, mutation) for layer, mutations in MUTANTS.items() for mutation in mutations]
)
def test_the_first_wrong_equation_of_a_layer_is_named(tmp_path: Path, layer: tuple, mutation: tuple[str, str, str]):
    (module, expression, *evaluation), (D, old, new) = layer, mutation
    name = f"{expression.partition('(')[0]}.{D}"
    right = model_with(eval(expression, vars(module) | {"mg": mg}))
    wrong = model_with(
        eval(expression, vars(mutant(tmp_path, module, old, new, expression.partition("(")[0])) | {"mg": mg})
    )
    for M in (right, wrong):
        M.train(not evaluation)
    X, T = batch(7, 6, 3)
    assert_right(check_gradients(right, "SquaredError", X, T))
    result = first_wrong(check_gradients(wrong, "SquaredError", X, T))
    assert result is not None, f"{old} → {new} is not found"
    assert result.name == f"layer 2 {name}"
    assert result.relative_error > 1e-3
    line = Path(result.equation.file).read_text(encoding="utf-8").splitlines()[result.equation.line - 1]
    assert line.strip().partition("  #")[0] == result.equation.source
    where = f"{result.equation.file}:{result.equation.line}: {result.equation.source}"
    values = f"found {result.found:.6g}, central differences give {result.expected:.6g}"
    assert (
        str(result)
        == f"layer 2 {name} is wrong at row {result.row + 1}, column {result.column + 1}: {values} ({where})"
    )


@pytest.mark.parametrize(("name", "old", "new"), LOSS_MUTANTS)
def test_a_wrong_loss_gradient_is_named(tmp_path: Path, name: str, old: str, new: str):
    loss = getattr(mutant(tmp_path, loss_functions, old, new), name)()
    M, (X, T) = mg.MultilayerPerceptron([mg.LinearLayer(6, 3)]), batch(7, 6, 3)
    assert_right(check_gradients(M, getattr(mg, name)(), X, T))
    result = first_wrong(check_gradients(M, loss, X, T))
    assert result is not None
    assert result.name == f"{name}.gradient"
    assert new.strip().removeprefix("return ") in result.equation.source


@pytest.mark.parametrize(("name", "old", "new"), ACTIVATION_MUTANTS)
def test_a_wrong_activation_gradient_is_named_before_the_equation_that_uses_it(
    tmp_path: Path, name: str, old: str, new: str
):
    act = getattr(mutant(tmp_path, activation_functions, old, new), name)()
    M = model_with(mg.ActivationLayer(5, 4, getattr(mg, name)()))
    for expected in ([], [f"layer 2 {name}.gradient", "layer 2 ActivationLayer.DZ"]):
        results = check_gradients(M, "SquaredError", *batch(7, 6, 3))
        assert [result.name for result in results if not result.ok][:2] == expected
        M.layers[1].act = act
    assert new.strip().splitlines()[-1].removeprefix("return ").split("(")[0] in first_wrong(results).equation.source


# -- a user's own ------------------------------------------------------------------------------


class RowScale(mg.Layer):
    """A = (1_N s) ⊙ X;  Y = A ⊙ A, with gradients of several kinds."""

    parameters = ("s",)

    def __init__(self, D: int, variant: str = "") -> None:
        self.s = np.full((1, D), 0.5, dtype=np.float32)
        super().__init__(D, D)
        self.variant = variant

    def feedforward(self, X):
        N, _ = X.shape

        A = hadamard(row_repeat(self.s, N), X)
        Y = hadamard(A, A)

        self.X, self.A = X, A
        return Y

    def backpropagate(self, Y, DY):
        N, _ = DY.shape

        DY = 2 * DY
        DA = hadamard(DY, self.A)
        DA = -DA if self.variant == "sign" else DA
        self.Ds = columns_sum(hadamard(DA, self.X))
        DX = hadamard(DA, row_repeat(self.s, N))

        self.DX = DX
        if self.variant == "nothing":
            self.Ds = None
        if self.variant == "size":
            self.Ds = self.Ds.T
        if self.variant == "nan":
            self.DX = self.DX * np.where(np.arange(N)[:, None] == 2, np.nan, 1.0)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("sign", "layer 1 RowScale.DA is wrong at row"),
        ("nothing", "layer 1 RowScale.Ds is wrong: found nothing, expected size 1 × 4 ("),
        ("size", "layer 1 RowScale.Ds is wrong: found size 4 × 1, expected size 1 × 4 ("),
        ("nan", "layer 1 RowScale.DX is wrong at row 3, column"),
    ],
)
def test_a_layer_of_ones_own(variant: str, message: str):
    X, T = batch(5, 4, 4)
    results = check_gradients(RowScale(4), "SquaredError", X, T)
    assert_right(results)
    assert [result.equation.name for result in results] == ["gradient", "DA", "DX", "Ds"]
    wrong = first_wrong(check_gradients(RowScale(4, variant), "SquaredError", X, T))
    assert str(wrong).startswith(message)
    assert "test_gradient_check.py:" in str(wrong)


class Bend(mg.ActivationFunction):
    """x·[x ≥ 0], with a wrong derivative."""

    def __call__(self, X):
        return hadamard(X, step(X))

    def gradient(self, X):
        return step(-X)


def test_a_wrong_derivative_is_found_where_everything_is_at_a_corner():
    layer = mg.ActivationLayer(3, 4, mg.ReLUActivation())
    X, T = np.zeros((5, 3)), batch(5, 3, 4)[1]
    results = check_gradients(layer, "SquaredError", X, T)
    assert_right(results)
    assert (results[1].checked, results[1].skipped) == (0, 20)
    layer.act = Bend()
    wrong = first_wrong(check_gradients(layer, "SquaredError", X, T))
    assert wrong is not None
    assert wrong.name == "layer 1 ActivationLayer.DZ"
    assert not results[1].tells


class CubicLoss(mg.LossFunction):
    """1_Nᵀ ((Y - T) ⊙ (Y - T) ⊙ (Y - T)) 1_K, with a factor too little in the gradient."""

    def __call__(self, Y, T):
        return elements_sum(hadamard(Y - T, hadamard(Y - T, Y - T)))

    def gradient(self, Y, T):
        return 2 * hadamard(Y - T, Y - T)


def test_an_activation_and_a_loss_of_ones_own():
    X, T = batch(5, 3, 4)
    wrong = first_wrong(check_gradients(mg.ActivationLayer(3, 4, Bend()), "SquaredError", X, T))
    assert str(wrong).startswith("layer 1 Bend.gradient is wrong at row")
    assert str(wrong).endswith("return step(-X))")
    wrong = first_wrong(check_gradients(mg.LinearLayer(3, 4), CubicLoss(), X, T))
    assert str(wrong).startswith("CubicLoss.gradient is wrong at row")
    assert str(wrong).endswith("return 2 * hadamard(Y - T, Y - T))")
    assert wrong.found / wrong.expected == pytest.approx(2 / 3)


class Doubled(mg.ActivationLayer):
    """Y = 2 Z, where Z is the result of the base class, which has another Z."""

    def feedforward(self, X):
        Z = super().feedforward(X)
        Y = 2 * Z
        return Y

    def backpropagate(self, Y, DY):
        DZ = 2 * DY
        super().backpropagate(Y / 2, DZ)


def test_equal_names_of_a_class_and_its_base_are_kept_apart():
    results = check_gradients(Doubled(3, 4, mg.SigmoidActivation()), "SquaredError", *batch(5, 3, 4))
    assert_right(results)
    assert [result.equation.name for result in results] == ["gradient", "DZ", "DZ", "DW", "Db", "DX"]


class Counting(mg.LinearLayer):
    """A layer with a buffer that every feedforward changes and uses."""

    buffers = ("count",)

    def __init__(self, D: int, K: int) -> None:
        self.count = np.ones((1, 1))
        super().__init__(D, K)
        self.buffers = ("count",)

    def feedforward(self, X):
        Y = float(self.count[0, 0]) * super().feedforward(X)
        self.scale = float(self.count[0, 0])
        self.count += 1
        return Y

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, self.scale * DY)


def test_all_runs_start_with_the_same_buffers():
    layer = Counting(3, 4)
    results = check_gradients(layer, "SquaredError", *batch(5, 3, 4))
    assert_right(results)
    assert not any(result.skipped for result in results)
    assert layer.count == 1


# -- elements that are not compared one by one ---------------------------------------------------


class ForgettingLayer(mg.LinearLayer):
    """DW forgets the last feature."""

    buffers = ("kept",)

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.kept = np.ones((1, input_size))
        self.kept[0, -1] = 0

    def backpropagate(self, Y, DY):
        X, W, kept = self.X, self.W, self.kept

        DW = hadamard(DY.T @ X, row_repeat(kept, self.output_size))
        Db = columns_sum(DY)
        DX = DY @ W

        self.DW, self.Db, self.DX = DW, Db, DX


def test_a_few_wrong_elements_among_many_are_found():
    mg.manual_seed(0)
    rng = np.random.default_rng(0)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(64, 64, "ReLU"), ForgettingLayer(64, 10)])
    results = check_gradients(M, "SquaredError", rng.normal(size=(6, 64)), rng.normal(size=(6, 10)), max_elements=4)
    wrong = first_wrong(results)
    assert wrong is not None
    assert wrong.name == "layer 2 ForgettingLayer.DW"
    assert wrong.column == 63
    assert [r.name for r in results if not r.ok] == [wrong.name]


CERTAIN = {"SoftmaxCrossEntropy": "Linear", "CrossEntropy": "Softmax", "LogProbability": "LogSoftmax"}


@pytest.mark.parametrize(("loss", "layer"), [*CERTAIN.items(), ("BinaryCrossEntropy", "Linear")])
def test_certain_models_are_not_called_wrong(layer, loss):
    M = mg.create_model(layer, "4;4")
    M.layers[0].W = 50 * np.eye(4)
    results = check_gradients(M, loss, np.eye(4), np.eye(4))
    assert first_wrong(results) is None
