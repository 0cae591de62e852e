"""The recorder: what is recorded is what is computed, and what needs numbers is refused."""

from __future__ import annotations

import math
from types import MethodType

import numpy as np
import pytest

import matgrad as mg
from matgrad import matrix_operations as table
from matgrad.backends import get_backend
from matgrad.backends.base import RecordingError
from matgrad.matrix_operations import columns_sum, hadamard, row_repeat
from matgrad.program import optimized, record, record_computation
from matgrad.program.computations import make_step
from matgrad.program.operations import OPERATIONS
from program_support import executed, outputs

SHAPES = {"X": (3, 4), "Y": (3, 4), "S": (4, 4), "x": (1, 4), "y": (3, 1), "P": (3, 4), "eta": ()}

SELECTION = table.one_hot(np.array([2, -1, 0, 2, 2]), 4)
FUNCTIONS = [row.name for row in OPERATIONS.values() if row.rule == "* -> *" and hasattr(table, row.name)]
# what can be written with the table and the operators; X and Y may be negative, P is positive
EXPRESSIONS = {
    **{name: lambda m, name=name: getattr(table, name)(m["P"]) for name in FUNCTIONS},
    "zeros": lambda m: table.zeros(3, 4, like=m["X"]) + m["X"],
    "ones": lambda m: table.ones(3, 4, like=m["X"]),
    "identity": lambda m: table.identity(4, like=m["X"]) @ m["S"],
    "dot": lambda m: table.dot(m["x"], m["x"]) * m["X"],
    "hadamard": lambda m: table.hadamard(m["X"], m["Y"]),
    "diag": lambda m: table.diag(m["S"]),
    "Diag": lambda m: table.Diag(m["x"]),
    "elements_sum": lambda m: table.elements_sum(m["X"]),
    "column_repeat": lambda m: table.column_repeat(m["y"], 5),
    "row_repeat": lambda m: table.row_repeat(m["x"], 5),
    "columns_sum": lambda m: table.columns_sum(m["X"]),
    "rows_sum": lambda m: table.rows_sum(m["X"]),
    "columns_max": lambda m: table.columns_max(m["X"]),
    "rows_max": lambda m: table.rows_max(m["X"]),
    "columns_mean": lambda m: table.columns_mean(m["X"]),
    "rows_mean": lambda m: table.rows_mean(m["X"]),
    "apply": lambda m: table.apply(lambda x: x**3 + 2 * x - 1, m["X"]),
    "inv_sqrt": lambda m: table.inv_sqrt(m["P"], 0.1),
    "log_sigmoid": lambda m: table.log_sigmoid(m["X"]),
    "step": lambda m: table.step(m["X"]),
    "sign": lambda m: table.sign(m["X"]),
    "clip": lambda m: table.clip(m["X"], 0.5),
    "positive": lambda m: table.positive(m["X"]),
    "product_on": lambda m: table.product_on(m["S"], m["X"].T, m["Y"]),
    "uniform": lambda m: table.uniform(2, 3, seed=5, count=7, like=m["X"]),
    "stack": lambda m: table.stack(m["X"], 2) @ table.stack(m["S"], 2).T,
    "unstack": lambda m: table.unstack(m["S"], 2),
    "diag blocks": lambda m: table.diag(m["S"], 2),
    "diag_product": lambda m: table.diag_product(m["S"], m["X"].T @ m["Y"], 2),
    "Diag blocks": lambda m: table.Diag(m["Y"], 3) @ m["S"] + (m["S"].T @ table.Diag(m["X"], 3).T).T,
    "one_hot": lambda m: table.one_hot(table.step(m["y"]), 3) @ m["X"],
    "one_hot transposed": lambda m: table.one_hot(table.step(m["y"]), 3).T @ m["X"],
    "one_hot fixed": lambda m: m["X"] @ SELECTION.T @ SELECTION,
    # -- operators
    "X + Y": lambda m: m["X"] + m["Y"],
    "X @ S": lambda m: m["X"] @ m["S"],
    "X.T @ Y": lambda m: m["X"].T @ m["Y"],
    "2.5 * X": lambda m: 2.5 * m["X"],
    "eta * X": lambda m: m["eta"] * m["X"],
    "X * Y": lambda m: m["X"] * m["Y"],
    "X - eta": lambda m: m["X"] - m["eta"],
    "eta + X": lambda m: m["eta"] + m["X"],
    "X / eta": lambda m: m["X"] / m["eta"],
    "2 / P": lambda m: 2 / m["P"],
    "P ** -0.5": lambda m: m["P"] ** -0.5,
    "P ** eta": lambda m: m["P"] ** m["eta"],
    "1 - X": lambda m: 1 - m["X"],
    "X + 1": lambda m: m["X"] + 1,
    "1 - eta * eta": lambda m: 1 - m["eta"] * m["eta"],
    "(Xᵀ)ᵀ": lambda m: m["X"].T.T,
    "np.float32 * X": lambda m: np.float32(0.5) * m["X"],
}


def test_every_operation_of_the_table_is_there():
    assert set(table.__all__) <= set(EXPRESSIONS)


def numbers() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    matrices = {name: np.array(rng.normal(size=shape)) for name, shape in SHAPES.items()}
    return matrices | {"P": 0.1 + rng.random((3, 4)), "eta": np.array(0.7)}


@pytest.mark.parametrize(("backend_name", "dtype"), [("numpy", "float64"), ("torch", "float32")])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_recorded_operation_is_the_operation(name: str, dtype: str, backend_name: str):
    f = EXPRESSIONS[name]
    given = {key: A.astype(dtype) for key, A in numbers().items()}
    framework = get_backend(backend_name)
    expected = np.asarray(framework.to_numpy(f({key: framework.from_numpy(A) for key, A in given.items()})))
    program = record(lambda _, m: {"Z": f(m)}, {key: (A.shape, dtype) for key, A in given.items()})
    shape = program.outputs["Z"].shape
    # a program writes to the state, so the result replaces a matrix Z
    with_state = record(
        lambda _, m: {"Z": f(m)}, {key: (A.shape, dtype) for key, A in given.items()} | {"Z": (shape, dtype)}
    )

    assert tuple(shape) == expected.shape
    assert program.outputs["Z"].dtype == dtype
    tolerance = {"float32": 3e-6, "float64": 1e-13}[dtype]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        outputs(program, given)["Z"].astype(dtype), expected, rtol=tolerance, atol=tolerance * scale, err_msg=name
    )
    actual = executed(optimized(with_state), {"Z": np.zeros(shape, dtype)}, given, backend=backend_name)["Z"]
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=name)


# -- what is refused ---------------------------------------------------------------------------

NEED_NUMBERS = {
    "bool": bool,
    "float": float,
    "list": list,
    "index": lambda X: X[0],
    "==": lambda X: X == X,
    "<": lambda X: X < 0,
    "range": range,
    "math": lambda X: math.sin(X),
    "asarray": np.asarray,
    "to_numpy": lambda X: get_backend("numpy") and table.backend_of(X).to_numpy(X),
    "from_numpy": lambda X: table.backend_of(X).from_numpy(np.ones((1, 1))),
}
DO_NOT_FIT = {
    "a row added to a matrix": lambda m: m["X"] + m["x"],
    "division by a matrix": lambda m: m["X"] / m["Y"],
    "a matrix as exponent": lambda m: m["P"] ** m["Y"],
    "a truth value": lambda m: m["X"] + True,
    "nothing": lambda m: m["X"] + None,
    "NumPy's matrices": lambda m: m["X"] + np.ones((3, 4)),
    "a product with NumPy's": lambda m: m["X"] @ np.ones((4, 4)),
    "inner sizes": lambda m: m["X"] @ m["Y"],
    "another dtype": lambda m: hadamard(m["X"], m["F"]),
    "another dtype, scalar": lambda m: m["count"] * m["X"],
    "a count, divided": lambda m: m["count"] / 2,
    "one through a count": lambda m: 1 / m["count"],
}
SIGNATURES = {name: (shape, "float64") for name, shape in SHAPES.items()} | {
    "F": ((3, 4), "float32"),
    "count": ((), "int32"),
}


@pytest.mark.parametrize("name", NEED_NUMBERS)
def test_what_needs_numbers_is_refused(name: str):
    with pytest.raises(RecordingError, match=r"recorded"):
        record(lambda _, m: {"y": NEED_NUMBERS[name](m["X"])}, SIGNATURES)


@pytest.mark.parametrize("name", DO_NOT_FIT)
def test_what_does_not_fit_is_refused(name: str):
    with pytest.raises((TypeError, ValueError)):
        record(lambda _, m: {"y": DO_NOT_FIT[name](m)}, SIGNATURES)


@pytest.mark.parametrize("f", [lambda n: n + 1, lambda n: 2 * n - 1, lambda n: -n, lambda n: n * n])
def test_counts_stay_whole_numbers(f):
    program = record(lambda _, m: {"n": f(m["n"])}, {"n": ((), "int32")})
    assert {value.dtype for value in program.values} == {"int32"}
    assert {value.operation for value in program.instructions} <= {
        name for name, row in OPERATIONS.items() if row.dtypes == "any"
    }
    for backend in ("numpy", "torch"):
        actual = executed(optimized(program), {"n": np.array(2**30, np.int32)}, {}, backend=backend)["n"]
        assert actual.dtype == np.int32
        assert actual == np.array(f(np.array(2**30)), dtype=np.int64).astype(np.int32)


def test_matrices_of_two_recordings_do_not_mix():
    kept = []
    record(lambda _, m: {"y": kept.append(m["X"]) or m["X"]}, SIGNATURES)
    with pytest.raises(RecordingError, match="a matrix from an earlier step is used, but it is not part of the state"):
        record(lambda _, m: {"y": m["X"] + kept[0]}, SIGNATURES)


# -- steps -------------------------------------------------------------------------------------


def model() -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    layers = [mg.ActivationDropoutLayer(3, 4, "ReLU", dropout=0.2), mg.BatchNormalizationLayer(4), mg.LinearLayer(4, 2)]
    return mg.MultilayerPerceptron(layers).to(dtype="float64")


def recorded_step(M: mg.MultilayerPerceptron, N: int = 5):
    return record_computation(
        make_step(M, mg.SoftmaxCrossEntropyLoss(), clip_norm=1.0), M.state(), np.zeros((N, 3)), np.zeros((N, 2))
    )


def test_recording_leaves_the_model_as_it_is():
    M = model()
    M.feedforward(np.ones((2, 3)))
    before = {id(layer): dict(vars(layer)) for layer in M.layers}
    methods = {type(layer): (type(layer).feedforward, type(layer).backpropagate) for layer in M.layers}
    recorded_step(M)
    for layer in M.layers:
        assert vars(layer).keys() == before[id(layer)].keys()
        assert all(value is before[id(layer)][key] for key, value in vars(layer).items())
        assert (type(layer).feedforward, type(layer).backpropagate) == methods[type(layer)]


def test_values_say_which_equation_they_belong_to():
    program = recorded_step(model())
    labels = {value.equation for value in program.instructions}
    assert "" not in labels
    assert {
        "layer 1 ActivationDropoutLayer.Z",
        "layer 2 BatchNormalizationLayer.DX",
        "layer 3 LinearLayer.DW",
        "SoftmaxCrossEntropyLoss.gradient",
        "clip_gradients",
        "layer 1 GradientDescentOptimizer.W",
    } <= labels


def test_the_state_the_batch_and_the_rate_are_the_inputs():
    M = model()
    program = recorded_step(M)
    assert set(program.inputs) == {*M.state(), "X", "T", "eta"}
    assert set(program.outputs) == set(M.state())
    assert [str(n) for n in program.inputs["X"].shape] == ["5", "3"]
    assert program.inputs["X"].shape[0].name == "N"


def test_a_recorded_step_is_the_step():
    M = model()
    rng = np.random.default_rng(2)
    X, T, eta = rng.normal(size=(5, 3)), mg.one_hot(rng.integers(0, 2, 5), 2), np.array(0.1)
    expected = make_step(M, mg.SoftmaxCrossEntropyLoss(), clip_norm=1.0)(M.state(), X, T, eta)
    program = recorded_step(M)
    for form in (program, optimized(program)):
        actual = outputs(form, {**M.state(), "X": X, "T": T, "eta": eta})
        for name, A in expected.items():
            np.testing.assert_allclose(actual[name], A, rtol=1e-12, atol=1e-15, err_msg=name)


@pytest.mark.parametrize(
    ("X", "T", "error", "message"),
    [
        ((5, 4), (5, 2), ValueError, "expected a batch X of size N × 3, found 5 × 4"),
        ((5, 3), (1, 2), ValueError, "the output is 5 × 2 and the targets are 1 × 2"),
        ((5, 3), (5,), ValueError, "the output is 5 × 2 and the targets are 5: expected"),
    ],
)
def test_batches_that_do_not_fit_get_the_error_of_the_step(X, T, error: type[Exception], message: str):
    M = model()
    step = make_step(M, mg.SoftmaxCrossEntropyLoss())
    for attempt in (
        lambda: record_computation(step, M.state(), np.zeros(X), np.zeros(T)),
        lambda: step(M.state(), np.zeros(X), np.zeros(T), 0.1),
    ):
        with pytest.raises(error, match=message):
            attempt()


def test_a_batch_of_another_backend_is_refused():
    torch = get_backend("torch")
    M = model()
    batch = np.zeros((5, 3)), np.zeros((5, 2))
    for X, T in ((torch.from_numpy(batch[0]), batch[1]), (batch[0], torch.from_numpy(batch[1]))):
        with pytest.raises(TypeError, match="mixed backends: numpy and torch"):
            record_computation(make_step(M, mg.SoftmaxCrossEntropyLoss()), M.state(), X, T)


def test_a_method_that_was_replaced_in_one_layer_is_recorded():
    M = model()
    layer = M.layers[2]
    layer.feedforward = MethodType(lambda self, X: 2 * type(self).feedforward(self, X), layer)
    assert "2·Y3" in str(recorded_step(M))


def test_a_layer_written_in_an_interactive_session_is_recorded():
    """It has no source: a value that it keeps in no variable belongs to the method as a whole."""
    space = {"mg": mg, "hadamard": hadamard, "columns_sum": columns_sum, "row_repeat": row_repeat}
    exec(
        "class DoubleLayer(mg.Layer):\n"
        "    keeps_size = True\n"
        "    def feedforward(self, X):\n"
        "        self.X = X\n"
        "        return 2 * X\n"
        "    def backpropagate(self, Y, DY):\n"
        "        self.DX = 2 * DY\n",
        space,
    )
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2), space["DoubleLayer"](2, 2)]).to(dtype="float64")
    program = recorded_step(M)
    assert "layer 2 DoubleLayer.feedforward" in {value.equation for value in program.instructions}
