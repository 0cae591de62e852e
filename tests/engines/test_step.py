"""The pure training step: compiled by the frameworks it gives what the eager equations give."""

from __future__ import annotations

import numpy as np

import matgrad as mg
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

N, SIZES = 6, (5, 8, 7, 3)


def model(framework: Framework) -> mg.MultilayerPerceptron:
    """Batch normalization, dropout renewed every step, and Momentum, in one network."""
    D, H, L, K = SIZES
    mg.manual_seed(3)
    M = mg.MultilayerPerceptron(
        [
            mg.ActivationDropoutLayer(D, H, mg.ReLUActivation(), dropout=0.3),
            mg.BatchNormalizationLayer(H),
            mg.SReLUDropoutLayer(H, L, dropout=0.2),
            mg.LinearLayer(L, K),
        ]
    )
    M.set_optimizer("Momentum(0.9)")
    return M.to(framework.name, dtype="float64")


def batches(framework: Framework) -> list:
    """Batches of N examples and a smaller last one."""
    rng = np.random.default_rng(4)
    X, t = rng.normal(size=(4 * N + 2, SIZES[0])), rng.integers(0, SIZES[-1], 4 * N + 2)
    return list(mg.DataLoader(X, t, batch_size=N).to(framework.name))


def compiled(framework: Framework, step):
    """The step under the framework's own compiler, where it has one."""
    if framework.name == "tensorflow":
        import tensorflow as tf

        return tf.function(step, autograph=False)
    return framework.compiled(step)


def test_compiled_steps_with_a_schedule_per_step_equal_eager_training(backend: Framework):
    schedule, loss, data = mg.StepBasedScheduler(0.1, 0.5, 3), mg.SoftmaxCrossEntropyLoss(), batches(backend)
    eager = model(backend)
    mg.stochastic_gradient_descent(eager, 2, loss, schedule, data, per_step=True)

    M = model(backend)
    step, state = compiled(backend, mg.make_step(M, loss)), M.state()
    for i, (X, T) in enumerate(data * 2):
        state = step(state, X, T, backend.matrix(schedule(i)))

    expected = eager.state()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(state[name], to_numpy(value), tolerance=1e-12, context=f"{backend}, {name}")


def test_a_step_is_pure(backend: Framework):
    """It changes neither the state it is given nor the model it was made from, and can be repeated."""
    M, (X, T) = model(backend), batches(backend)[0]
    step = backend.compiled(mg.make_step(M, mg.SoftmaxCrossEntropyLoss()))
    state = M.state()
    before = {name: to_numpy(value).copy() for name, value in state.items()}

    first, second = (step(state, X, T, backend.matrix(0.1)) for _ in range(2))

    for name, value in before.items():
        assert_close(state[name], value, tolerance=0.0, context=f"given state, {name}")
        assert_close(M.state()[name], value, tolerance=0.0, context=f"model, {name}")
        assert_close(first[name], to_numpy(second[name]), tolerance=0.0, context=f"repeated, {name}")
    assert not np.array_equal(to_numpy(first["4.W"]), before["4.W"])
    assert all(layer.X is None for layer in M.layers)


def test_a_step_keeps_nothing_of_what_it_was_given():
    """Not even in the model it closes over: a traced value that stays behind would be a leak."""
    M, (X, T) = model(Framework("numpy")), batches(Framework("numpy"))[0]
    step = mg.make_step(M, mg.SoftmaxCrossEntropyLoss())
    step({name: value.copy() for name, value in M.state().items()}, X, T, 0.1)
    assert all(value is M.state()[name] for name, value in step.template.state().items())
    assert all(layer.X is None for layer in step.template.layers)


def test_dropout_of_epochs_is_renewed_between_them(backend: Framework):
    """As `make_step` says: load the state, end the epoch, and go on."""
    data = batches(backend)[:2]

    def make() -> mg.MultilayerPerceptron:
        mg.manual_seed(5)
        layers = [mg.LinearDropoutLayer(SIZES[0], 4, dropout=0.5, renew="epoch"), mg.LinearLayer(4, SIZES[-1])]
        return mg.MultilayerPerceptron(layers).to(backend.name, dtype="float64")

    loss, eager, M = mg.SoftmaxCrossEntropyLoss(), make(), make()
    mg.stochastic_gradient_descent(eager, 2, loss, mg.ConstantScheduler(0.1), data)
    step = backend.compiled(mg.make_step(M, loss))
    for _ in range(2):
        state = M.state()
        for X, T in data:
            state = step(state, X, T, backend.matrix(0.1))
        M.load_state(state)
        M.end_epoch()

    for name, value in eager.state().items():
        assert_close(M.state()[name], to_numpy(value), tolerance=1e-12, context=f"{backend}, {name}")
