"""The layer that drops neurons: R is that of the whole batch, new in every step, on every backend and engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import matgrad as mg
from composites import ShortcutLayer
from matgrad.inspection.gradient_check import check_gradients
from matgrad.specifications.models import create_model, model_specification
from support import assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

DTYPES = ("float32", "float64")
P = 0.3


def layer_of(D: int = 6, p: float = P, seed: int = 4) -> mg.DropoutLayer:
    mg.manual_seed(seed)
    return mg.DropoutLayer(D, D, p)


def drawn(layer: mg.DropoutLayer, N: int) -> np.ndarray:
    """R of the next batch of N examples, from the definition: a hash of the position i·D + j in the batch."""

    def mix(x: int) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    key, D = mix(mix(int(layer.renewals)) ^ int(layer.seed)), layer.input_size
    U = np.array([[(mix(mix(i * D + j) ^ key) >> 8) / 2**24 for j in range(D)] for i in range(N)])
    return np.where(layer.dropout <= U, 1 / (1 - layer.dropout), 0.0)


# -- one layer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("training", [True, False])
def test_output_and_gradient(backend, training, dtype):
    """Y = X ⊙ R and DX = DY ⊙ R, by torch's autograd; in evaluation mode R = 1."""
    layer, rng = layer_of(), np.random.default_rng(5)
    layer.training = training
    X, G = rng.normal(size=(2, 7, 6)).astype(dtype)
    R = drawn(layer, 7) if training else np.ones((7, 6))
    layer.to(backend.backend, dtype)

    def f(state, X, G):
        twin = layer.clone()
        twin.load_state(state)
        Y = twin.feedforward(X)
        twin.backpropagate(Y, G)
        return Y, twin.DX

    Y, DX = backend.compiled(f)(layer.state(), backend.matrix(X, dtype), backend.matrix(G, dtype))
    A = torch.tensor(X.astype("float64"), requires_grad=True)
    (A * torch.tensor(R)).backward(torch.tensor(G.astype("float64")))
    assert_close(Y, X * R, dtype=dtype, context=f"Y on {backend}, {dtype}")
    assert_close(DX, A.grad.numpy(), dtype=dtype, context=f"DX on {backend}, {dtype}")


def test_every_step_has_its_own_r_and_two_layers_differ():
    first, second = layer_of(50), mg.DropoutLayer(50)
    X = np.ones((8, 50), np.float32)
    seen = []
    for _ in range(3):
        seen.append(first.feedforward(X))
        np.testing.assert_array_equal(first.feedforward(X), seen[-1])  # only a step renews it
        first.optimize(0.1)
    seen.append(second.feedforward(X))
    assert all(not np.array_equal(A, B) for i, A in enumerate(seen) for B in seen[:i])


def test_evaluation_draws_nothing():
    layer = layer_of()
    layer.training, before = False, {name: np.copy(x) for name, x in layer.state().items()}
    X = np.ones((3, 6), np.float32)
    assert layer.feedforward(X) is X
    assert layer.R is None
    assert layer.state() == before


@pytest.mark.parametrize("layers", ["ReLU;SReLU;LogSoftmax", "Sigmoid;Softmax"])
def test_initial_weights_are_the_same_with_and_without_dropout_of_weights(layers):
    models = []
    for rate in ("0", "0.3"):
        mg.manual_seed(4)
        models.append(create_model(layers, [6, 5, 4, 3][: layers.count(";") + 2], dropouts=rate))
    for with_dropout, without in zip(*(M.layers for M in models), strict=True):
        np.testing.assert_array_equal(with_dropout.W, without.W)


@pytest.mark.parametrize("p", [1, -0.1, float("nan")])
def test_bad_rates_are_refused(p):
    with pytest.raises(ValueError, match=rf"dropout: expected a number in \[0, 1\), found {p}"):
        mg.DropoutLayer(3, dropout=p)


# -- training ----------------------------------------------------------------------------------

# dropout of the input, of neurons before and after sparse and dense weights, and beside dropout of weights
LAYERS, SIZES = "Dropout(0.2);HyperbolicTangent;Dropout(0.5);Sigmoid;BatchNormalization;Dropout;Linear", [8, 8, 9, 3]


def model(densities: str = "1", dtype: str = "float64") -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = create_model(LAYERS, SIZES, densities=densities, dropouts="0;0.2;0", optimizers="Momentum(0.9)")
    return M.to("numpy", dtype=dtype)


def data(backend: str, batch_size: int = 8, dtype: str = "float64") -> mg.DataLoader:
    """Five batches of 8 and one of 5 examples."""
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(45, 8)).astype(dtype), mg.one_hot(rng.integers(0, 3, 45), 3).astype(dtype)
    return mg.DataLoader(X, T, batch_size=batch_size, seed=3).to(backend)


def trained(M: mg.MultilayerPerceptron, compiled: bool, epochs: int = 2, batch_size: int = 8) -> dict[str, np.ndarray]:
    """The state after training on batches of 8 examples, as many as the first layer has neurons, and one of 5."""
    loader = data("numpy" if M.engine == "native" else M.engine, batch_size)
    loss, schedule = mg.SoftmaxCrossEntropyLoss(), mg.ConstantScheduler(0.1)
    mg.stochastic_gradient_descent(M, epochs, loss, schedule, loader, compiled=compiled)
    return {name: to_numpy(x) for name, x in M.state().items()}


def assert_equal_states(found: dict, expected: dict, context: str) -> None:
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert_close(found[name], x, tolerance=1e-9, noise=1e-14, context=f"{name}, {context}")


@pytest.mark.parametrize("batch_size", [8, 40])
@pytest.mark.parametrize("densities", ["1", "0.5;0.4;1"])
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_of_the_core_share_one_r(threads: int, densities: str, batch_size: int, monkeypatch):
    """However the threads share the examples of a batch, and also where K = N."""
    monkeypatch.setattr("matgrad.engines.native.threads", lambda: threads)
    expected = trained(model(densities), compiled=False, batch_size=batch_size)
    found = trained(model(densities).to("native"), compiled=True, batch_size=batch_size)
    assert_equal_states(found, expected, f"{threads} threads, densities {densities}, batches of {batch_size}")
    assert expected["1.renewals"] == 2 * -(-45 // batch_size)


@pytest.mark.few(1)
@pytest.mark.parametrize("compiled", [False, True])
def test_every_backend_trains_alike(backend, compiled):
    expected, found = trained(model(), compiled=False), trained(model().to(backend.name), compiled)
    assert_equal_states(found, expected, f"{backend}, compiled {compiled}")


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_training_goes_on_where_it_was(engine, tmp_path):
    """The state has all that R depends on: another model, with other seeds, goes on with it."""
    whole = trained(model().to(engine), compiled=True, epochs=1)
    twice = trained_in_halves(engine, tmp_path / "half.npz")
    assert_equal_states(twice, whole, engine)


def trained_in_halves(engine: str, file) -> dict[str, np.ndarray]:
    """The state after the same epoch, with the model saved and loaded after the third batch."""
    M, batches = model().to(engine), list(data("numpy"))
    loss, schedule = mg.SoftmaxCrossEntropyLoss(), mg.ConstantScheduler(0.1)
    mg.stochastic_gradient_descent(M, 1, loss, schedule, batches[:3])
    M.save(file)
    state = M.state()
    mg.manual_seed(99)
    other = create_model(LAYERS, SIZES, dropouts="0;0.2;0", optimizers="Momentum(0.9)").to(engine, dtype="float64")
    other.load_state(state)
    loaded = mg.load(file)
    for name in ("1.seed", "1.renewals", "3.seed", "6.renewals"):
        np.testing.assert_array_equal(loaded.state()[name], state[name], err_msg=name)
    mg.stochastic_gradient_descent(other, 1, loss, schedule, batches[3:])
    return {name: to_numpy(x) for name, x in other.state().items()}


def test_a_trained_model_predicts_without_dropout():
    M = model(dtype="float32").to("native")
    trained_state = trained(M.to(dtype="float64"), compiled=True)
    X = np.random.default_rng(6).normal(size=(4, 8))
    np.testing.assert_array_equal(M.predict(X), M.predict(X))
    kept = create_model("HyperbolicTangent;Sigmoid;BatchNormalization;Linear", SIZES).to("numpy", dtype="float64")
    names = {"2": "1", "4": "2", "5": "3", "7": "4"}
    state = {f"{names[k[0]]}{k[1:]}": x for k, x in trained_state.items() if k[0] in names}
    kept.load_state({name: state[name] for name in kept.state()})
    assert_close(M.eval().feedforward(X), kept.eval().feedforward(X), context="the same layers without dropout")


# -- everything around it ----------------------------------------------------------------------


def test_specification_and_file(tmp_path):
    M = create_model("ReLU;Dropout(0.25);Dropout;Linear", [5, 4, 2])
    assert model_specification(M)["layers"] == "ReLU;Dropout(0.25);Dropout(0.5);Linear"
    M.save(tmp_path / "m.npz")
    loaded = mg.load(tmp_path / "m.npz")
    assert [repr(x) for x in loaded.layers[1:3]] == ["DropoutLayer(4, 4, 0.25)", "DropoutLayer(4, 4, 0.5)"]


def test_a_program_shows_its_equations():
    lines = [line.split() for line in str(create_model("ReLU;Dropout(0.5);Linear", [5, 4, 2]).program()).splitlines()]
    assert ["R2", "=", "[uniform(seed2,", "renewals2)", "-", "0.5", "≥", "0]", "/", "0.5"] in lines
    assert ["Y2", "=", "Y1", "⊙", "R2"] in lines
    assert ["DX2", "=", "DX3", "⊙", "R2"] in lines
    assert ["renewals2'", "=", "renewals2", "+", "1"] in lines


def test_gradients_are_right_with_and_without_dropout():
    M, rng = model(), np.random.default_rng(7)
    X, T = rng.normal(size=(5, 8)), mg.one_hot(rng.integers(0, 3, 5), 3)
    for training in (True, False):
        results = check_gradients(M.train(training), "SoftmaxCrossEntropy", X, T)
        assert all(result.ok for result in results), [str(r) for r in results if not r.ok]
        assert "layer 3 DropoutLayer.DX" in [result.name for result in results]


def test_it_can_be_a_part_of_a_layer():
    mg.manual_seed(2)
    inner = ShortcutLayer(4, 4, mg.DropoutLayer(4, 4, 0.5), mg.LinearLayer(4, 4))
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 4), inner]).to(dtype="float64")
    X, T = np.ones((6, 3)), np.ones((6, 4))
    states = []
    for compiled in (False, True):
        clone = M.clone()
        schedule = mg.ConstantScheduler(0.1)
        mg.stochastic_gradient_descent(clone, 3, mg.SquaredErrorLoss(), schedule, [(X, T)], compiled=compiled)
        states.append(clone.state())
    assert states[0]["2.1.renewals"] == states[1]["2.1.renewals"] == 3
    assert_close(states[1]["2.2.W"], states[0]["2.2.W"], tolerance=1e-9, context="a part, compiled")
