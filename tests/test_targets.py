"""What `fit` recognizes in targets, what it notes of them, and data that is refused in the same words everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import matgrad as mg

N, D = 40, 3
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
Y = X @ [1.0, -2.0, 0.5] + 3
T01 = (X[:, 0] > 0.1).astype(np.int64)


def model(K: int = 1, layer=mg.LinearLayer) -> mg.MultilayerPerceptron:
    mg.manual_seed(6)
    return mg.MultilayerPerceptron([layer(D, K)]).to(dtype="float64")


# -- regression and classes ----------------------------------------------------------------------


@pytest.mark.parametrize("T", [Y, Y[:, None], Y.astype(np.float32), np.rint(Y), Y.tolist()])
def test_numbers_with_one_output_are_a_regression(T):
    """It finds the least squares."""
    M = model()
    history = M.fit(X, T, epochs=300, learning_rate=0.1, seed=0)
    expected, *_ = np.linalg.lstsq(np.column_stack([X, np.ones(N)]), np.ravel(T), rcond=None)
    np.testing.assert_allclose(np.append(M.layers[0].W, M.layers[0].b), expected, atol=0.05)
    assert set(history) == {"epoch", "learning_rate", "seconds", "loss", "rmse"}
    assert history["rmse"][-1] == pytest.approx(np.sqrt(np.mean((M.predict(X)[:, 0] - np.ravel(T)) ** 2)))
    assert M.information == {"loss": "MeanSquaredError", "classes": None}
    residual = np.ravel(T) - M.predict(X)[:, 0]
    assert M.score(X, T) == pytest.approx(1 - np.sum(residual**2) / np.sum((np.ravel(T) - np.mean(T)) ** 2))


@pytest.mark.parametrize("T", [T01 * 3, T01 - 1, np.arange(N)], ids=["0 and 3", "-1 and 0", "counts"])
def test_integers_that_are_no_two_classes_need_a_named_loss(T):
    with pytest.raises(ValueError, match=r"label .*expected a class from 0 to 1, .*use loss='MeanSquaredError'"):
        model().fit(X, T)
    assert "rmse" in model().fit(X, T, loss="MeanSquaredError", learning_rate=1e-3, epochs=1)


@pytest.mark.parametrize("T", [T01, T01[:, None], T01.astype(bool), T01.astype(np.uint8), T01.astype(float)])
def test_two_classes_on_one_output_have_an_accuracy(T):
    M = model()
    loss = "BinaryCrossEntropy" if T.dtype == float else None
    history = M.fit(X, T, epochs=5, validation=0.2, loss=loss)
    assert {"accuracy", "validation_accuracy"} < set(history)
    assert not {"rmse", "validation_rmse"} & set(history)
    assert M.information == {"loss": "BinaryCrossEntropy", "classes": 2}
    assert M.score(X, T) == np.mean((M.predict(X)[:, 0] >= 0) == T01)


def test_numbers_in_the_validation_data_have_no_accuracy():
    history = model().fit(X, T01, epochs=1, validation=(X, np.full(N, 0.25)))
    assert "rmse" in history
    assert "accuracy" not in history


# -- what is noted -------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [mg.LinearLayer, lambda D, K: mg.ActivationLayer(D, K, "Sigmoid")])
def test_a_saved_model_knows_what_it_learned(tmp_path, layer):
    M = model(layer=layer)
    M.fit(X, T01, epochs=2)
    M.save(tmp_path / "m.npz")
    loaded = mg.load(tmp_path / "m.npz")
    assert loaded.information == M.information
    assert loaded.information["classes"] == 2
    assert loaded.score(X, T01) == M.score(X, T01) == M.score(X, T01.astype(float)) <= 1


class OwnLoss(mg.SquaredErrorLoss):
    """A loss with an array, which no string can describe."""

    def __init__(self, weights: np.ndarray | None = None) -> None:
        self.weights = weights


def test_a_loss_that_has_no_name_must_be_given_again():
    M = model()
    M.fit(X, Y, loss=OwnLoss(np.ones(3)), epochs=1, learning_rate=1e-3)
    assert M.score(X, Y) < 1
    with pytest.raises(ValueError, match=r"the model was trained with the loss 'Own.*, name one: "):
        M.fit(X, Y, epochs=1)


def test_a_fit_that_is_refused_notes_nothing():
    M = model()
    with pytest.raises(ValueError, match="expected a number from 0 to 1 for BinaryCrossEntropyLoss"):
        M.fit(X, Y, loss="BinaryCrossEntropy")
    with pytest.raises(ValueError, match="expected equal sizes"):
        M.fit(X, np.column_stack([Y, Y]))
    assert M.information == {}


# -- a softmax over one class --------------------------------------------------------------------


@pytest.mark.parametrize("layer", [mg.SoftmaxLayer, mg.LogSoftmaxLayer])
def test_a_softmax_layer_needs_two_outputs(layer):
    with pytest.raises(ValueError, match=rf"{layer.__name__}: found 1 output, expected at least 2: a softmax over one"):
        layer(D, 1)
    with pytest.raises(ValueError, match=f"layer 2: {layer.__name__}: found 1 output"):
        mg.create_model(f"ReLU;{layer.__name__.removesuffix('Layer')}", [D, 4, 1])


@pytest.mark.parametrize(
    "use",
    [
        lambda M, loss: M.fit(X, T01, loss=loss),
        lambda M, loss: mg.make_step(M, loss),
        lambda M, loss: mg.compute_loss(M, mg.DataLoader(X, T01, classes=1).to(dtype="float32"), loss),
    ],
    ids=["fit", "make_step", "compute_loss"],
)
def test_a_loss_that_compares_classes_needs_two_outputs(use):
    with pytest.raises(ValueError, match=r"SoftmaxCrossEntropyLoss cannot follow .*, which has one output"):
        use(mg.MultilayerPerceptron([mg.LinearLayer(D, 1)]), mg.SoftmaxCrossEntropyLoss())


# -- data that is refused ------------------------------------------------------------------------


def changed(A: np.ndarray, row: int, value: float) -> np.ndarray:
    A = A.astype(float)
    A[row] = value
    return A


USES = {
    "fit": lambda X, T: model().fit(X, T),
    "fit, a part held out": lambda X, T: model().fit(X, T, validation=0.5, seed=1),
    "fit, matrix": lambda X, T: model(2).fit(X, np.column_stack([T, T])),
    "score": lambda X, T: model().score(X, T),
    "loader": lambda X, T: mg.DataLoader(X, T),
    "loader of torch": lambda X, T: mg.DataLoader(torch.tensor(X), torch.tensor(T)),
}


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("use", USES)
def test_numbers_that_are_not_finite_are_refused_in_targets_as_in_examples(use: str, value: float):
    for name, arguments in (("T", (X, changed(Y, 7, value))), ("X", (changed(X, 7, value), Y))):
        with pytest.raises(ValueError, match=rf"^{name}, row 7, column 0: found {value}, expected a finite number$"):
            USES[use](*arguments)


def test_validation_data_is_checked_by_its_name():
    for name, pair in (("T", (X, changed(Y, 7, np.nan))), ("X", (changed(X, 7, np.nan), Y))):
        with pytest.raises(ValueError, match=rf"^validation {name}, row 7, column 0: found nan, expected a finite"):
            model().fit(X, Y, validation=pair)
    with pytest.raises(ValueError, match=r"^validation T, row 2, column 0: found 2.0, expected a number from 0 to 1"):
        model().fit(X, T01, validation=(X, changed(T01, 2, 2)))
    with pytest.raises(ValueError, match=r"^validation X has 40 rows and T has 39"):
        model().fit(X, Y, validation=(X, Y[1:]))


@pytest.mark.parametrize("use", ["fit", "score", "loader"])
@pytest.mark.parametrize(
    ("X", "T", "message"),
    [
        (X, Y[1:], "X has 40 rows and T has 39: expected one target per row"),
        (X[:0], Y[:0], r"X: expected a matrix with at least one row, found shape \(0, 3\)"),
        (X[:, 0], Y, r"X: expected a matrix with at least one row, found shape \(40,\)"),
        (X, np.array(1.0), "X has 40 rows and T has none: expected one target per row"),
        (X, np.array(["a", "b"] * 20), "T: found <U1, expected numbers"),
        (X.astype(object), Y, "X: found object, expected numbers"),
    ],
)
def test_arrays_that_are_no_data_are_refused(use: str, X, T, message: str):
    with pytest.raises(ValueError, match=message):
        USES[use](X, T)


def test_numbers_that_are_too_large_for_the_model_are_refused():
    for name, data in (("X", (changed(X, 3, 1e300), Y)), ("T", (X, changed(Y, 3, 1e300)))):
        with pytest.raises(ValueError, match=rf"^{name}, row 3, column 0: found 1e\+300, expected a finite float32"):
            model().to(dtype="float32").fit(*data)


def test_large_integers_keep_their_digits_in_float64():
    """2²⁴ + 1 is no float32 number."""
    A = np.full((2, D), 2**24 + 1)
    seen = []

    class Look(mg.Callback):
        wants_batches = True

        def batch(self, run):
            seen.append(np.array(run.X))

    model().fit(A, Y[:2], epochs=1, learning_rate=1e-18, statistics=False, callbacks=[Look()])
    np.testing.assert_array_equal(seen[0], A)


@pytest.mark.parametrize("T", [[0, 1, 3], [0, -1, 2]])
def test_classes_out_of_range_are_refused(T):
    for use in (model(3).fit, model(3).score):
        with pytest.raises(ValueError, match=r"label (3 in row 2|-1 in row 1): expected a class from 0 to 2"):
            use(X[:3], np.array(T))


SPARSE = {
    "csr_matrix": scipy.sparse.csr_matrix(X),
    "torch.sparse_coo": torch.tensor(X).to_sparse(),
    "SparseMatrix": mg.SparseMatrix(mg.Support.random(N, D, 5, RNG), np.ones((1, 5))),
}


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize(
    ("array", "use"),
    [
        ("X", lambda A: model().fit(A, Y)),
        ("T", lambda A: model(D).fit(X, A)),
        ("validation X", lambda A: model().fit(X, Y, validation=(A, Y))),
        ("X", lambda A: model().predict(A)),
        ("T", lambda A: mg.DataLoader(X, A)),
    ],
)
def test_sparse_matrices_are_refused_by_name(name: str, array: str, use):
    """Except SciPy's as X: `sparse/test_sparse_input.py` has those."""
    if array.endswith("X") and name == "csr_matrix":
        use(SPARSE[name])
        return
    with pytest.raises(TypeError, match=rf"^{array}: found a sparse matrix \({name}\); expected a dense one"):
        use(SPARSE[name])


def test_masked_arrays_are_refused():
    for use in (model().predict, lambda A: model().fit(A, Y), lambda A: model().score(A, Y)):
        with pytest.raises(TypeError, match=r"^X: found a MaskedArray; expected a dense one"):
            use(np.ma.masked_greater(X, 1))
