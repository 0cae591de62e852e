"""30 random architectures: gradients against torch autograd, training steps across backends."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from architectures import LAYERS, OPTIMIZERS, random_architecture, torch_gradients
from matgrad.activation_functions import ACTIVATIONS
from matgrad.loss_functions import LOSSES
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

SEEDS = range(30)


def test_the_samples_cover_everything():
    kinds = set().union(*(random_architecture(seed).kinds for seed in SEEDS))
    losses = [name for name, cls in LOSSES.items() if not cls.has_tokens]
    assert kinds == {*LAYERS, *ACTIVATIONS, *losses, *OPTIMIZERS, "dropout", "label smoothing"}


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_agree_with_torch_autograd(backend: Framework, seed: int):
    a = random_architecture(seed)
    a.M.feedforward(a.X)  # on NumPy, for the dropout matrices R that the oracle takes as given
    expected = torch_gradients(a)
    model, loss = a.M.clone().to(backend.name), a.loss

    def gradients(state, X, T):
        model.load_state(state)
        Y = model.feedforward(X)
        model.backpropagate(Y, loss.mean_gradient(Y, T))
        result = {"X": model.layers[0].DX} | {
            f"{i}.{name}": getattr(layer, f"D{name}")
            for i, layer in enumerate(model.layers, start=1)
            for name in layer.parameters
        }
        model.forget()
        return result

    actual = backend.compiled(gradients)(model.state(), backend.matrix(a.X), backend.matrix(a.T))

    assert actual.keys() == expected.keys()
    # a gradient that is 0, as that of a bias before batch normalization or behind a saturated softmax, is noise
    noise = 1e-14 * max(1, *(np.abs(D).max() for D in expected.values()))
    for name in expected:
        context = f"{backend}, seed {seed}, gradient of {name}"
        assert_close(actual[name], expected[name], tolerance=1e-9, noise=noise, context=context)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_20_training_steps_agree_across_backends(backend: Framework, seed: int):
    clip_norm, lr = (None, 0.005) if seed % 2 else (1.0, 0.02)
    schedule = mg.ExponentialScheduler(lr, 0.05)

    def train(framework: Framework) -> dict[str, np.ndarray]:
        a = random_architecture(seed)
        a.M.to(framework.name)
        X, T, state = framework.matrix(a.X), framework.matrix(a.T), a.M.state()
        step = framework.compiled(mg.make_step(a.M, a.loss, clip_norm=clip_norm))
        for i in range(20):
            state = step(state, X, T, framework.matrix(schedule(i)))
        return {name: to_numpy(value) for name, value in state.items()}

    actual, expected = train(backend), train(Framework("numpy"))

    assert actual.keys() == expected.keys()
    for name in expected:
        context = f"{backend}, seed {seed}, {name}"
        assert_close(actual[name], expected[name], tolerance=1e-8, noise=1e-15, context=context)
