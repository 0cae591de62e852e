"""Training: the loop, schedules, clipping, losses that fit the last layer, and measures over a loader."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import matgrad as mg
from matgrad.evaluation.measures import predicted_classes
from support import AfterEpoch, Framework, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")


def linear_model(D: int = 3, K: int = 2, layer=mg.LinearLayer) -> mg.MultilayerPerceptron:
    mg.manual_seed(6)
    return mg.MultilayerPerceptron([layer(D, K)]).to(dtype="float64")


def data(N: int = 10, D: int = 3, K: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


@pytest.mark.parametrize("per_step", [False, True])
def test_the_learning_rate_is_that_of_the_epoch_or_the_step(per_step: bool):
    asked, epochs = [], []

    def schedule(i: int) -> float:
        asked.append(i)
        return 0.1 / (1 + i)

    mg.stochastic_gradient_descent(
        linear_model(),
        2,
        mg.SoftmaxCrossEntropyLoss(),
        schedule,
        mg.DataLoader(*data(), batch_size=4),
        per_step=per_step,
        callbacks=[AfterEpoch(lambda run: epochs.append((run.epoch, run.row["learning_rate"])))],
    )

    if per_step:
        assert set(asked) == set(range(6))
        assert asked == sorted(asked)  # also when an epoch begins
        assert epochs == [(1, 0.1 / 3), (2, 0.1 / 6)]
    else:
        assert asked == [0, 1]
        assert epochs == [(1, 0.1), (2, 0.05)]


@pytest.mark.parametrize(("loss", "oracle"), [("SquaredError", "sum"), ("MeanSquaredError", "mean")])
def test_sums_and_means_are_divided_by_N_exactly_once(loss: str, oracle: str):
    """Also in the last, smaller batch."""
    X, _ = data()
    T = np.random.default_rng(8).normal(size=(10, 2))
    M = linear_model()
    W, b = (torch.tensor(A, requires_grad=True) for A in (M.layers[0].W, M.layers[0].b))
    M.fit(X, T, loss=loss, learning_rate=0.1, epochs=1, batch_size=4, shuffle=False)

    for i in range(0, 10, 4):
        Y, target = torch.tensor(X[i : i + 4]) @ W.T + b, torch.tensor(T[i : i + 4])
        value = torch.nn.functional.mse_loss(Y, target, reduction=oracle)
        DW, Db = torch.autograd.grad(value / (len(Y) if oracle == "sum" else 1), (W, b))
        W, b = ((x - 0.1 * D).detach().requires_grad_() for x, D in ((W, DW), (b, Db)))

    np.testing.assert_allclose(M.layers[0].W, W.detach(), rtol=1e-12)
    np.testing.assert_allclose(M.layers[0].b, b.detach(), rtol=1e-12)


@pytest.mark.parametrize("max_norm", [1e-3, 0.1, 1e6])
def test_clipping_equals_torch(backend: Framework, max_norm: float):
    X, t = data()
    M = mg.MultilayerPerceptron([mg.ActivationLayer(3, 4, mg.SigmoidActivation()), mg.LinearLayer(4, 2)])
    M.to(backend.name, dtype="float64")
    Y = M.feedforward(backend.matrix(X))
    M.backpropagate(Y, mg.SoftmaxCrossEntropyLoss().gradient(Y, backend.matrix(mg.one_hot(t, 2))))
    names = [(layer, f"D{name}") for layer in M.layers for name in layer.parameters]
    leaves = [torch.zeros(*getattr(*name).shape, requires_grad=True, dtype=torch.float64) for name in names]
    for leaf, name in zip(leaves, names, strict=True):
        leaf.grad = torch.tensor(to_numpy(getattr(*name)))

    mg.clip_gradients(M, max_norm)
    torch.nn.utils.clip_grad_norm_(leaves, max_norm)

    for leaf, name in zip(leaves, names, strict=True):
        np.testing.assert_allclose(to_numpy(getattr(*name)), leaf.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("layer", "loss", "advice"),
    [
        (mg.LogSoftmaxLayer, mg.CrossEntropyLoss(), "after a SoftmaxLayer, or use .*LogProbabilityLoss"),
        (
            mg.LogSoftmaxLayer,
            mg.NegativeLogLikelihoodLoss(),
            "after a SoftmaxLayer, or use .*LogProbabilityLoss",
        ),
        (mg.LinearLayer, mg.CrossEntropyLoss(), "put it after a SoftmaxLayer, or use .*SoftmaxCrossEntropyLoss"),
        (mg.LinearLayer, mg.LogProbabilityLoss(), "put it after a LogSoftmaxLayer, or use .*SoftmaxCrossEntropyLoss"),
        (
            mg.SoftmaxLayer,
            mg.SoftmaxCrossEntropyLoss(),
            "after a LogSoftmaxLayer or LinearLayer, or use .*",
        ),
        (mg.SoftmaxLayer, mg.BinaryCrossEntropyLoss(), "put it after a LinearLayer, or use .*CrossEntropyLoss"),
        (mg.SoftmaxLayer, mg.LogProbabilityLoss(), "put it after a LogSoftmaxLayer, or use .*CrossEntropyLoss"),
    ],
)
def test_a_loss_that_cannot_follow_the_last_layer_is_refused(layer, loss: mg.LossFunction, advice: str):
    M = linear_model(layer=layer)
    with pytest.raises(ValueError, match=f"{type(loss).__name__} cannot follow {layer.__name__}.*{advice}"):
        mg.stochastic_gradient_descent(M, 1, loss, mg.ConstantScheduler(0.1), [])


def test_a_sigmoid_gives_probabilities():
    M = mg.MultilayerPerceptron([mg.ActivationLayer(3, 2, mg.SigmoidActivation())])
    mg.make_step(M, mg.CrossEntropyLoss())


def test_targets_of_another_size_are_refused():
    X, _ = data()
    with pytest.raises(ValueError, match="the output is 10 × 2 and the targets are 10 × 5: expected equal sizes"):
        linear_model().fit(X, np.zeros((10, 5)), epochs=1)


@pytest.mark.few(2)
@pytest.mark.parametrize("loss", [mg.SoftmaxCrossEntropyLoss(), mg.MeanSquaredErrorLoss()])
@pytest.mark.parametrize("batch_size", [1, 3, 10, 64])
def test_measures_count_the_last_partial_batch(backend: Framework, loss: mg.LossFunction, batch_size: int):
    X, t = data()
    M = linear_model()
    Y = X @ M.layers[0].W.T + M.layers[0].b
    T = np.eye(2)[t]
    F = torch.nn.functional
    oracle = F.mse_loss if loss.is_mean else F.cross_entropy
    loader = mg.DataLoader(X, t, batch_size).to(backend.name)
    M.to(backend.name)

    assert mg.compute_loss(M, loader, loss) == pytest.approx(oracle(torch.tensor(Y), torch.tensor(T)).item())
    assert mg.compute_accuracy(M, loader) == np.mean(Y.argmax(axis=1) == t)


def test_measuring_uses_evaluation_mode_and_restores_the_mode_before():
    M = mg.MultilayerPerceptron([mg.LinearDropoutLayer(3, 2, dropout=0.5), mg.BatchNormalizationLayer(2)])
    M.layers[1].training = False
    before = {name: value.copy() for name, value in M.state().items()}
    X, t = data()

    values = {mg.compute_accuracy(M, mg.DataLoader(X.astype("float32"), t, size)) for size in (1, 4, 10)}

    assert len(values) == 1
    assert [layer.training for layer in M.layers] == [True, False]
    for name, value in M.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_accuracy_accepts_class_indices_and_two_classes_in_one_column():
    X, t = data()
    M = linear_model()
    assert mg.compute_accuracy(M, [(X, t)]) == mg.compute_accuracy(M, mg.DataLoader(X, t))
    single = linear_model(K=1)
    logits = X @ single.layers[0].W.T + single.layers[0].b
    assert mg.compute_accuracy(single, [(X, t)]) == np.mean((logits[:, 0] >= 0) == t)
    sigmoid = mg.MultilayerPerceptron([mg.ActivationLayer(3, 1, mg.SigmoidActivation())])
    assert predicted_classes(sigmoid, np.array([[0.4], [0.5]])).tolist() == [0, 1]


def test_dropout_is_renewed_every_epoch_where_asked():
    M = mg.MultilayerPerceptron([mg.LinearDropoutLayer(3, 2, dropout=0.5, renew="epoch")]).to(dtype="float64")
    seen = []
    layer = M.layers[0]
    original = layer.dropout_matrix
    layer.dropout_matrix = lambda A: seen.append(original(A)) or seen[-1]
    mg.stochastic_gradient_descent(
        M,
        3,
        mg.SoftmaxCrossEntropyLoss(),
        mg.ConstantScheduler(0.1),
        mg.DataLoader(*data(), batch_size=5),
        compiled=False,  # so that the matrices can be seen
    )

    first, second = ([R.tobytes() for R in seen[i::2]] for i in (0, 1))
    assert first == second
    assert len(set(first)) == 3


@pytest.mark.parametrize("norm", [1e9, 1e30])
def test_a_large_clip_norm_leaves_float32_gradients_as_they_are(norm: float):
    X, t = data()
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)])
    Y = M.feedforward(X.astype(np.float32))
    M.backpropagate(Y, mg.SoftmaxCrossEntropyLoss().gradient(Y, mg.one_hot(t, 2, like=Y)))
    before = M.layers[0].DW
    mg.clip_gradients(M, norm)
    np.testing.assert_array_equal(M.layers[0].DW, before)


@pytest.mark.parametrize("norm", [0, -1.0, float("nan")])
def test_a_bad_clip_norm_is_refused(norm: float):
    with pytest.raises(ValueError, match="clip_norm: expected a number above 0, found"):
        linear_model().fit(*data(), epochs=1, clip_norm=norm)


@pytest.mark.parametrize(("layer", "loss"), [(mg.SoftmaxLayer, "CrossEntropy"), (mg.LogSoftmaxLayer, "LogProbability")])
def test_the_default_loss_fits_the_last_layer(layer, loss: str):
    X, t = data()
    a, b = (linear_model(layer=layer) for _ in range(2))
    assert a.fit(X, t, epochs=2, seed=0)["loss"] == b.fit(X, t, epochs=2, seed=0, loss=loss)["loss"]


def test_numbers_are_learned_with_the_mean_squared_error():
    """Vectors, columns and matrices of floats, and matrices of integers that are no one-hot rows."""
    X, _ = data()
    whole = np.rint(3 * X[:, :2]).astype(int)
    for T, K in ((X[:, 0] - 2 * X[:, 1], 1), (X[:, :1] + 1, 1), (X[:, :2] + 1, 2), (whole, 2)):
        M = linear_model(K=K)
        history = M.fit(X, T, epochs=30, seed=0, batch_size=5)
        error = X @ M.layers[0].W.T + M.layers[0].b - T.reshape(10, K)
        assert history["loss"][-1] < 0.5 * history["loss"][0]
        assert history["loss"][-1] == pytest.approx(np.mean(error**2))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_one_output_learns_the_classes_0_and_1_with_the_binary_cross_entropy(dtype):
    X, _ = data()
    t = (X[:, 0] > 0).astype(dtype)
    for T in (t, t.reshape(-1, 1)):
        M = linear_model(K=1)
        history = M.fit(X, T, epochs=30, seed=0, learning_rate=0.5)
        Z = X @ M.layers[0].W.T + M.layers[0].b
        expected = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.tensor(Z), torch.tensor(t.reshape(-1, 1).astype(float))
        )
        assert history["loss"][-1] < 0.5 * history["loss"][0]
        assert history["loss"][-1] == pytest.approx(expected.item())
        assert M.score(X, T) == np.mean((Z[:, 0] >= 0) == t) > 0.8


def test_a_single_probability_learns_both_classes():
    """Cross-entropy would ignore the examples of class 0."""
    X, _ = data()
    t = (X[:, 0] > 0).astype(int)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(3, 1, "Sigmoid")])
    M.fit(X, t, epochs=100, seed=0, learning_rate=2.0)
    assert M.score(X, t) == M.score(X, t.astype(float)) == 1


def test_the_loss_in_the_information_is_the_default():
    X, t = data()
    a, b = (linear_model() for _ in range(2))
    a.information = {"loss": "MeanSquaredError"}
    assert a.fit(X, t, epochs=2, seed=0)["loss"] == b.fit(X, t, epochs=2, seed=0, loss="MeanSquaredError")["loss"]


def test_the_score_of_a_classifier_is_its_accuracy():
    X, t = data()
    M = linear_model()
    expected = np.mean((X @ M.layers[0].W.T + M.layers[0].b).argmax(axis=1) == t)
    for T in (t, t.astype(np.uint8), t.astype(bool), t.reshape(-1, 1), np.eye(2)[t], t.tolist()):
        assert M.score(X, T) == expected
    M.information = {"loss": "SquaredError", "classes": 2}
    assert M.score(X, t) == M.score(X, t.astype(float)) == expected


def test_the_score_of_a_regression_is_r2():
    X, t = data()
    M = linear_model(K=1)
    Y = (X @ M.layers[0].W.T + M.layers[0].b)[:, 0]

    def r2(T: np.ndarray) -> float:
        return 1 - np.sum((Y - T) ** 2) / np.sum((T - T.mean()) ** 2)

    for T in (X[:, 0], 3 * t, t.astype(float)):
        assert M.score(X, T) == M.score(X, T.reshape(-1, 1)) == pytest.approx(r2(T))
    assert M.score(X, t) == np.mean((Y >= 0) == t), "unless its file says what it is"
    for information in ({"loss": "MeanSquaredError"}, {"loss": "MeanSquaredError", "classes": None}):
        M.information = information
        assert M.score(X, t) == pytest.approx(r2(t))
    M.information = {"loss": "BinaryCrossEntropy"}
    assert M.score(X, t.astype(float)) == np.mean((Y >= 0) == t)


def test_targets_of_integers_and_of_truth_values_are_numbers_too():
    """A matrix of integers or truth values is a matrix of targets, and a model stays float32."""
    X, t = data()
    histories = []
    for dtype in (np.float32, np.int64, np.bool_):
        M = linear_model().to(dtype="float32")
        histories.append(M.fit(X, np.eye(2, dtype=dtype)[t], epochs=2, seed=0)["loss"])
        assert M.dtype == "float32"
    assert histories[0] == histories[1] == histories[2]


def test_manual_seed_makes_fit_reproducible():
    X, t = data()
    runs = []
    for _ in range(2):
        mg.manual_seed(4)
        M = mg.MultilayerPerceptron([mg.ActivationDropoutLayer(3, 4, "ReLU", dropout=0.2), mg.LinearLayer(4, 2)])
        runs.append(M.fit(X, t, epochs=2, batch_size=3)["loss"])
    assert runs[0] == runs[1]


def test_numpy_learning_rates_keep_float32():
    X, t = data()
    M = linear_model().to(dtype="float32")
    Y = M.feedforward(X.astype(np.float32))
    M.backpropagate(Y, mg.SoftmaxCrossEntropyLoss().gradient(Y, mg.one_hot(t, 2, like=Y)))
    M.optimize(np.float64(0.1))
    assert M.dtype == "float32"


def test_a_fraction_may_be_a_numpy_number():
    X, t = data()
    a, b = (linear_model().fit(X, t, epochs=1, seed=0, validation=x) for x in (0.25, np.float32(0.25)))
    assert a["validation_loss"] == b["validation_loss"]
    assert linear_model().fit(X, t, epochs=0) == {}


X32, LABELS = data()[0].astype(np.float32), data()[1]
SE, MSE = mg.SquaredErrorLoss, mg.MeanSquaredErrorLoss()
MISFIT = mg.MultilayerPerceptron([mg.LinearLayer(3, 8), mg.LinearLayer(7, 2)])


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (
            lambda M: M.fit(X32, LABELS, validation=X32),
            ValueError,
            r"validation: expected a pair \(X, T\), a fraction or None, found",
        ),
        (lambda M: M.fit(X32, LABELS, validation=1.2), ValueError, "expected a number between 0 and 1, found 1.2"),
        (lambda M: M.fit(X32, LABELS, early_stopping=2), ValueError, "early_stopping needs validation data"),
        (lambda M: M.fit(X32, LABELS, loss=SE), TypeError, "expected a LossFunction or its name, found <class"),
        (lambda M: mg.MultilayerPerceptron().fit(X32, LABELS), ValueError, "the model has no layers"),
        (
            lambda M: linear_model(K=1).fit(X32, LABELS + 1),
            ValueError,
            "label 2 in row .: expected a class from 0 to 1, as the model has one output; for numbers, use loss=",
        ),
        (
            lambda M: M.fit(X32, LABELS, metric="f1"),
            ValueError,
            "metric: expected one of accuracy, rmse, mae, r2",
        ),
        (lambda M: M.fit(X32, LABELS, epochs=1.5), ValueError, "epochs must be an integer of 0 or more, found 1.5"),
        (
            lambda M: M.fit(X32, LABELS, validation=0.5, early_stopping=0),
            ValueError,
            "early_stopping must be a positive integer, found 0",
        ),
        (
            lambda M: M.fit(X32, LABELS, callbacks=[mg.EarlyStopping(1), mg.Callback]),
            TypeError,
            "callbacks: expected a list of Callback objects, found .*<class .*Callback'>",
        ),
        (lambda M: M.fit(X32, LABELS, callbacks=len), TypeError, "callbacks: expected a list of Callback objects"),
        (
            lambda M: M.fit(X32, LABELS.astype(np.float32)),
            ValueError,
            "T: found one column of float32, expected 2; class indices must be integers",
        ),
        (lambda M: M.fit(X32, LABELS > 0), ValueError, "found one column of bool, expected 2; class indices must be"),
        (lambda M: M.score(X32, X32[:, 0]), ValueError, "the output is 10 × 2 and the targets are 10 × 1: expected"),
        (lambda M: M.set_optimizer(mg.AdamOptimizer), TypeError, "expected a string such as 'Name"),
        (lambda M: M.set_optimizer("Adam(beta2=1)"), ValueError, r"beta2: expected a number in \[0, 1\), found 1"),
        (lambda M: mg.compute_loss(M, [(X32, X32[:, :1])], MSE), ValueError, "expected equal sizes"),
        (lambda M: mg.compute_loss(M, [(X32, np.zeros((10, 2)))], MSE), TypeError, "targets are float64 but the model"),
        (lambda M: mg.compute_loss(M, [], MSE), ValueError, "the data has no batches"),
        (lambda M: mg.ActivationLayer(3, 2, "RELU"), ValueError, "unknown activation function 'RELU'; did you mean"),
        (lambda M: mg.ActivationLayer(3, 2, mg.ReLUActivation), TypeError, "or its name, found <class"),
        (lambda M: M.load_state(M.state() | {"1.W": X32}), ValueError, r"1.W is \(10, 3\), expected \(2, 3\)"),
        (lambda M: MISFIT.feedforward(X32), ValueError, "layer 1 has 8 outputs, but layer 2 has 7 inputs"),
    ],
)
def test_plausible_mistakes_get_a_clear_error(mistake, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        mistake(linear_model().to(dtype="float32"))


# -- fit: parts, metrics and data by epoch -----------------------------------------------------------


@pytest.mark.parametrize("metric", ["r2", "mae", "rmse"])
def test_fit_measures_validation_and_test_data_as_scikit_learn_does(metric: str):
    metrics = pytest.importorskip("sklearn.metrics")
    known = {"r2": "r2_score", "mae": "mean_absolute_error", "rmse": "root_mean_squared_error"}
    X, _ = data(30)
    T, M = X @ [[1.0], [2.0], [3.0]], linear_model(K=1)
    parts = {"validation_": (X[10:20], T[10:20]), "test_": (X[20:], T[20:])}
    history = M.fit(X[:10], T[:10], epochs=2, validation=parts["validation_"], test=parts["test_"], metric=metric)
    for prefix, (A, B) in parts.items():
        expected = getattr(metrics, known[metric])(B, M.predict(A))
        assert history[f"{prefix}{metric}"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("shuffle", [False, True])
def test_data_may_be_a_function_of_the_epoch(shuffle: bool):
    """The epochs of one call are those of one call per epoch."""
    parts, asked = [data(12), tuple(A[::-1] for A in data(12))], []

    def examples(epoch: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(epoch)
        return parts[epoch]

    M, N = linear_model(), linear_model()
    options = {"learning_rate": 0.1, "batch_size": 5, "shuffle": shuffle}
    M.fit(examples, epochs=2, seed=0, **options)
    for epoch, part in enumerate(parts):
        N.fit(*part, epochs=1, seed=(0, 1) if epoch else 0, **options)
    assert {*asked} == {0, 1}
    np.testing.assert_allclose(to_numpy(M.layers[0].W), to_numpy(N.layers[0].W), rtol=1e-12)
    with pytest.raises(ValueError, match="expected no T"):
        M.fit(examples, parts[0][1])
    with pytest.raises(ValueError, match="validation: no fraction of data that differs by epoch"):
        M.fit(examples, validation=0.5)
