"""Compiled training: on every backend it gives what the equations give one by one, and it changes nothing else."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from architectures import Architecture, random_architecture
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, ones, row_repeat, zeros
from support import AfterEpoch, Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "native", "jax", "tensorflow")
DATA = (16, 5)  # examples and batch size: three batches of 5 and one of 1
LOSS = mg.SoftmaxCrossEntropyLoss()

_specification = importlib.util.spec_from_file_location("custom", Path(__file__).parents[2] / "docs" / "custom.py")
custom = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(custom)


def examples(a: Architecture, N: int) -> tuple[np.ndarray, np.ndarray]:
    """N examples like those of the architecture."""
    rng = np.random.default_rng(a.seed)
    rows = rng.integers(0, len(a.X), N)
    return a.X[rows] + 0.3 * rng.normal(size=(N, a.X.shape[1])), a.T[rows]


def copies(state: dict) -> dict[str, np.ndarray]:
    return {name: np.array(to_numpy(X)) for name, X in state.items()}


def assert_equal_states(actual: dict, expected: dict, context: str, tolerance: float = 1e-9) -> None:
    """Up to rounding, relative to each matrix and, for what should be 0, to the largest of all."""
    assert actual.keys() == expected.keys()
    noise = 1e-12 * max(np.abs(to_numpy(X)).max() for X in expected.values() if to_numpy(X).dtype.kind == "f")
    for name, X in expected.items():
        assert_close(actual[name], to_numpy(X), tolerance=tolerance, noise=noise, context=f"{context}, {name}")


def train(
    M: mg.MultilayerPerceptron, compiled: bool, loss=LOSS, epochs: int = 3, data=None, rate: float = 0.05, **options
) -> None:
    mg.stochastic_gradient_descent(
        M, epochs, loss, mg.ExponentialScheduler(rate, 0.1), data, per_step=True, compiled=compiled, **options
    )


# -- the 30 architectures ----------------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(30))
def test_compiled_training_equals_the_equations(backend: Framework, seed: int):
    """Three epochs of batches of 5 and a last one of 1 example; a warning, that is a fallback, would be an error."""
    states = []
    for framework, compiled in backend.ways():
        a = random_architecture(seed)
        for k, layer in enumerate(a.M.layers):
            if hasattr(layer, "renew") and k % 2:
                layer.renew = "epoch"
        a.M.to(framework.name)
        data = mg.DataLoader(*examples(a, DATA[0]), batch_size=DATA[1], shuffle=True, seed=seed).to(framework.name)
        clip_norm, rate = (None, 0.005) if seed % 2 else (1.0, 0.05)
        train(a.M, compiled, a.loss, data=data, rate=rate, clip_norm=clip_norm)
        states.append(a.M.state())

    assert_equal_states(states[1], states[0], f"{backend}, seed {seed}")


def test_float32(backend: Framework):
    states = []
    for framework, compiled in backend.ways():
        M = model(framework, dtype="float32")
        train(M, compiled, data=batches(framework, dtype="float32"))
        assert M.dtype == "float32"
        states.append(M.state())
    assert_equal_states(states[1], states[0], str(backend), tolerance=1e-4)


def test_fit(backend: Framework):
    rng = np.random.default_rng(3)
    X, t = rng.normal(size=(22, 4)), rng.integers(0, 3, 22)
    models, histories = [], []
    for framework, compiled in backend.ways():
        models.append(model(framework))
        options = {"epochs": 3, "batch_size": 5, "seed": 1, "learning_rate": "StepBased(0.1; 0.5; 2)", "clip_norm": 0.5}
        histories.append(models[-1].fit(X, t, compiled=compiled, validation=(X[:5], t[:5]), **options))

    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        assert name == "seconds" or histories[1][name] == pytest.approx(values, rel=1e-8), name
    assert_equal_states(models[1].state(), models[0].state(), str(backend))
    np.testing.assert_allclose(models[1].predict(X), models[0].predict(X), rtol=1e-8)


# -- what compiled training leaves alone -------------------------------------------------------


def model(framework: Framework, dtype: str = "float64", optimizer: str = "Momentum(0.9)") -> mg.MultilayerPerceptron:
    mg.manual_seed(4)
    layers = [
        mg.ActivationDropoutLayer(4, 6, "ReLU", dropout=0.2),
        mg.BatchNormalizationLayer(6),
        mg.ActivationDropoutLayer(6, 5, "Sigmoid", dropout=0.1, renew="epoch"),
        mg.LinearLayer(5, 3),
    ]
    M = mg.MultilayerPerceptron(layers)
    M.set_optimizer(optimizer)
    return M.to(framework.name, dtype=dtype)


def batches(framework: Framework, count: int = 3, N: int = 5, dtype: str = "float64") -> list:
    rng = np.random.default_rng(5)
    X, T = rng.normal(size=(count, N, 4)), np.eye(3)[rng.integers(0, 3, (count, N))]
    return [(framework.matrix(X[k], dtype), framework.matrix(T[k], dtype)) for k in range(count)]


def test_the_state_of_a_step_is_a_copy(backend: Framework):
    M, ((X, T), *_) = model(backend), batches(backend)
    step = mg.compile_step(M, LOSS)
    start = M.state()
    before = copies(start)
    step.load(start)
    step.prepare(X, T)
    assert_equal_states(step.state(), before, f"{backend}, prepared", tolerance=0.0)
    step(X, T, backend.matrix(0.1))
    first = step.state()
    values = copies(first)
    step(X, T, backend.matrix(0.1))

    assert_equal_states(start, before, f"{backend}, what was loaded", tolerance=0.0)
    assert_equal_states(M.state(), before, f"{backend}, the model", tolerance=0.0)
    assert_equal_states(first, values, f"{backend}, what was handed out", tolerance=0.0)
    assert not np.array_equal(to_numpy(step.state()["4.W"]), values["4.W"])
    step.load(first)
    assert_equal_states(step.state(), values, f"{backend}, what was loaded again", tolerance=0.0)


def test_an_exception_in_the_loader_leaves_the_steps_done_so_far(backend: Framework):
    def interrupted(framework: Framework):
        yield from batches(framework)[:2]
        raise KeyboardInterrupt("enough")

    states = []
    for framework, compiled in backend.ways():
        M = model(framework)
        with pytest.raises(KeyboardInterrupt, match="enough"):
            train(M, compiled, data=interrupted(framework))
        states.append(M.state())
    untouched = copies(model(backend).state())

    assert_equal_states(states[1], states[0], str(backend))
    assert not np.array_equal(to_numpy(states[1]["4.W"]), untouched["4.W"])


CHANGES = {
    "weights": lambda M: M.load_state(M.state() | {"4.W": 0.5 * M.state()["4.W"]}),
    "dropout rate": lambda M: setattr(M.layers[0], "dropout", 0.6),
    "another optimizer": lambda M: M.set_optimizer("Adam"),
    "another slope": lambda M: setattr(M.layers[0].act, "alpha", 0.5),
    "evaluation mode": lambda M: M.eval(),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("change", CHANGES)
def test_settings_that_are_changed_between_epochs_count(backend: Framework, change: str):
    states = []
    for framework, compiled in backend.ways():
        M = model(framework)
        M.layers[0].act = mg.LeakyReLUActivation(0.1)
        changes = [AfterEpoch(lambda run: CHANGES[change](run.M))]
        train(M, compiled, data=batches(framework), epochs=2, callbacks=changes)
        states.append(M.state())
    assert_equal_states(states[1], states[0], f"{backend}, {change}")


def test_layers_keep_nothing_of_a_batch_and_say_what_to_do(backend: Framework):
    M = model(backend)
    (X, T), *_ = data = batches(backend)
    Y = M.feedforward(X)
    M.backpropagate(Y, LOSS.mean_gradient(Y, T))
    train(M, True, epochs=1, data=data)

    for layer in M.layers:
        for name in ("X", "DX", *layer.intermediates, *(f"D{name}" for name in layer.parameters)):
            assert getattr(layer, name) is None, f"{layer}, {name}"
    with pytest.raises(RuntimeError, match="DW is not computed yet; run feedforward and backpropagate first"):
        M.optimize(0.1)
    train(M, False, epochs=1, data=data)
    assert M.layers[0].DW is not None


@pytest.mark.backends("numpy", "torch", "native")  # elsewhere a number of Python is another trace
@pytest.mark.parametrize("rate", [0.1, np.float32(0.1)])
def test_a_rate_may_be_any_number(backend: Framework, rate: float):
    M, ((X, T), *_) = model(backend, optimizer="AdamW"), batches(backend)
    step = mg.compile_step(M, LOSS)
    step.load(M.state())
    step(X, T, rate)
    expected = mg.make_step(M, LOSS)(M.state(), X, T, backend.matrix(rate))
    assert_equal_states(step.state(), expected, str(backend))


# -- what users write --------------------------------------------------------------------------


class CentredLayer(mg.Layer):
    """Y = X - 1_N m, with m the mean of this batch and the last one"""

    keeps_size = True
    buffers = ("mean", "last")

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.mean = np.zeros((1, input_size), dtype=np.float32)
        self.last = np.zeros((1, input_size), dtype=np.float32)

    def feedforward(self, X):
        N, _ = X.shape
        mu = columns_sum(X) / N
        Y = X - row_repeat((mu + self.last) / 2, N)
        self.X, self.mean, self.last = X, self.last, mu
        return Y

    def backpropagate(self, Y, DY):
        N, _ = DY.shape
        DX = DY - row_repeat(columns_sum(DY), N) / (2 * N)
        self.DX = DX


class InPlaceOptimizer(mg.Optimizer):
    """Momentum with operators that NumPy and torch apply in place"""

    state_names = ("delta",)

    def __init__(self, x, Dx) -> None:
        super().__init__(x, Dx)
        self.delta = zeros(*x.shape, like=x)

    def update(self, eta) -> None:
        self.delta *= 0.9
        self.delta -= eta * self.Dx
        self.x += self.delta


class RootOptimizer(mg.Optimizer):
    """x' = x - η·Dx ⊙ 1/√(s + 1), with s the sum of all squares so far"""

    state_names = ("s",)

    def __init__(self, x, Dx) -> None:
        super().__init__(x, Dx)
        self.s = zeros(*x.shape, like=x)

    def update(self, eta) -> None:
        K, D = self.x.shape
        self.s = self.s + hadamard(self.Dx, self.Dx)
        self.x = self.x - eta * hadamard(self.Dx, (self.s + ones(K, D, like=self.x)) ** -0.5)


def custom_model(framework: Framework, layer: mg.Layer | None = None, optimizer=None) -> mg.MultilayerPerceptron:
    mg.manual_seed(6)
    layers = [mg.ActivationLayer(4, 5, custom.SquaredReLUActivation()), mg.LinearLayer(5, 3)]
    M = mg.MultilayerPerceptron(layers if layer is None else [layers[0], layer, layers[1]])
    M.to(framework.name, dtype="float64")
    for part in M.layers if optimizer else ():
        if part.parameters:
            parts = (optimizer(getattr(part, name), getattr(part, f"D{name}")) for name in part.parameters)
            part.optimizer = mg.CompositeOptimizer(*parts)
    return M


@pytest.mark.parametrize("optimizer", [None, RootOptimizer, InPlaceOptimizer])
@pytest.mark.parametrize("layer", [custom.ScaleLayer, CentredLayer])
def test_what_users_write_compiles(backend: Framework, layer: type[mg.Layer], optimizer):
    """A warning would be an error."""
    states = []
    for framework, compiled in backend.ways():
        M = custom_model(framework, layer(5, 5), optimizer)
        train(M, compiled, custom.PseudoHuberLoss(), data=batches(framework))
        states.append(M.state())
    assert_equal_states(states[1], states[0], f"{backend}, {layer.__name__}, {optimizer}")


class IdentityLayer(mg.Layer):
    keeps_size = True

    def feedforward(self, X):
        Y = self.f(X)
        self.X = X
        return Y

    def backpropagate(self, Y, DY):
        self.DX = DY

    def f(self, X):
        raise NotImplementedError


class LateLayer(IdentityLayer):
    """Hidden state that is used after some steps only"""

    count = 0

    def f(self, X):
        self.count += 1
        return X if self.count < 6 else 2 * X


class RandomLayer(IdentityLayer):
    """A generator, which compiling must not draw from"""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.rng = np.random.default_rng(1)

    def f(self, X):
        return float(self.rng.normal()) * X


class BranchingLayer(IdentityLayer):
    def f(self, X):
        return 2 * X if float(elements_sum(X)) > 0.5 else X


class AnnealedLayer(IdentityLayer):
    """A number that changes between epochs: no hidden state in a step"""

    alpha = 1.0

    def f(self, X):
        return self.alpha * X

    def end_epoch(self):
        self.alpha *= 0.5


class CountOptimizer(mg.Optimizer):
    """A count of the steps, which is a whole number, in the rate"""

    state_names = ("t",)

    def __init__(self, x, Dx) -> None:
        super().__init__(x, Dx)
        self.t = np.array(0, dtype=np.int32)

    def update(self, eta) -> None:
        self.t = self.t + 1
        self.x = self.x - eta * (1 / self.t) * self.Dx


def both_ways(ways: Iterable[tuple[Framework, bool]], **parts) -> tuple[list[dict], list[str], mg.MultilayerPerceptron]:
    """The states after training by the equations and compiled, and the warnings of the latter."""
    states = []
    for framework, compiled in ways:
        layer = parts["layer"](5, 5) if "layer" in parts else None
        M = custom_model(framework, layer, parts.get("optimizer"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(M, compiled, data=batches(framework))
        states.append(M.state())
        assert compiled or not caught
        assert {warning.filename for warning in caught} <= {__file__}, "it points to who trains"
    return states, [str(warning.message) for warning in caught], M


@pytest.mark.parametrize("layer", [LateLayer, RandomLayer, BranchingLayer])
def test_what_cannot_be_compiled_is_trained_by_the_equations(backend: Framework, layer: type[mg.Layer]):
    states, messages, _ = both_ways([(backend, False), (backend, True)], layer=layer)

    assert len(messages) == 1, messages
    assert messages[0].startswith("training continues uncompiled: ")
    assert_equal_states(states[1], states[0], f"{backend}, {layer.__name__}", tolerance=0.0)


def test_a_number_that_changes_between_epochs_needs_no_fallback(backend: Framework):
    states, messages, _ = both_ways(backend.ways(), layer=AnnealedLayer)
    assert messages == []
    assert_equal_states(states[1], states[0], str(backend))


def test_whole_numbers_in_fractions_are_not_cut_off():
    states, _, _ = both_ways(Framework("numpy").ways(), optimizer=CountOptimizer)
    assert_equal_states(states[1], states[0], "1 / t", tolerance=1e-12)


# -- mistakes ----------------------------------------------------------------------------------

MISTAKES = {
    "X too wide": lambda X, T: (np.hstack([X, X]), T),
    "T one row": lambda X, T: (X, T[:1]),
    "T of labels": lambda X, T: (X, T[:, 0]),
    "X float32": lambda X, T: (X.astype("float32"), T),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_third_batch_get_the_error_of_the_equations(backend: Framework, mistake: str):
    """And the two batches before it count."""
    errors, states = [], []
    for compiled in (False, True):
        M = model(backend)
        good = batches(backend)
        X, T = MISTAKES[mistake](*(to_numpy(A) for A in good[2]))
        wrong = backend.backend.from_numpy(X), backend.backend.from_numpy(T)
        with pytest.raises((ValueError, TypeError)) as error:  # and no warning, which would be another error
            train(M, compiled, data=[*good[:2], wrong])
        errors.append((error.type, str(error.value)))
        if compiled:
            states.append(M.state())
    reference = model(backend)
    train(reference, False, epochs=1, data=batches(backend)[:2])
    expected = copies(reference.state())

    assert errors[1] == errors[0]
    weights = {name: X for name, X in expected.items() if "renewals" not in name}
    assert_equal_states({name: states[0][name] for name in weights}, weights, f"{backend}, {mistake}")


def test_a_loss_that_cannot_follow_is_refused_before_anything_is_compiled(backend: Framework):
    with pytest.raises(ValueError, match="CrossEntropyLoss cannot follow LinearLayer"):
        mg.compile_step(model(backend), mg.CrossEntropyLoss())
