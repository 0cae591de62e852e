"""Convolution, pooling, embedding, attention and layers of layers: random networks against torch's autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import matgrad as mg
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import create_loss
from matgrad.program.computations import make_step
from matgrad.sparse.matrix import values_of
from support import Framework
from torch_networks import Reference, examples_of, is_trained, random_network

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
SEEDS = range(60)


def network(seed: int, dtype: str = "float64") -> mg.MultilayerPerceptron:
    """A random network, whose biases are not 0."""
    layers, sizes = random_network(seed)
    mg.manual_seed(seed)
    M = mg.create_model(layers, sizes).to("numpy", dtype=dtype)
    rng = np.random.default_rng(seed)
    state = {
        x: rng.normal(size=A.shape, scale=0.5).astype(dtype)
        for x, A in matrices_of(M.state()).items()
        if is_trained(M, x)
    }
    M.load_state(M.state() | state)
    return M


@pytest.mark.few(15)
@pytest.mark.parametrize("seed", SEEDS)
def test_outputs_and_gradients_are_those_of_torch(backend: Framework, seed: int):
    M = network(seed)
    if any(layer.is_sparse for layer in M.layers) and not backend.backend.has_sparse:
        pytest.skip(f"{backend} has no sparse weights, and so no groups")
    rng = np.random.default_rng(seed)
    A = examples_of(M, 4, rng)
    DA = rng.normal(size=(4, M.layers[-1].output_size))
    parameters = {x: torch.tensor(A, requires_grad=True) for x, A in matrices_of(M.state()).items() if is_trained(M, x)}
    x = torch.tensor(A, requires_grad=True)
    expected = Reference(M, parameters)(x)
    expected.backward(torch.tensor(DA))

    M.to(backend.name)
    Y = M.feedforward(backend.matrix(A))
    M.backpropagate(Y, backend.matrix(DA))

    def compare(found, wanted: torch.Tensor | None, what: str) -> None:
        wanted = torch.zeros(tuple(found.shape)) if wanted is None else wanted
        error = np.abs(backend.backend.to_numpy(found) - wanted.detach().numpy()).max()
        assert error < 1e-9, f"{what} of {random_network(seed)} on {backend}: {error}"

    compare(Y, expected, "Y")
    compare(M.layers[0].DX, x.grad, "DX")
    for path, layer in M.walk():
        for name in layer.parameters:
            compare(values_of(getattr(layer, f"D{name}")), parameters[f"{path}.{name}"].grad, f"{path}.D{name}")


def trained(M: mg.MultilayerPerceptron, engine: str, steps: int = 3) -> dict[str, np.ndarray]:
    """The state after some steps, by the equations or by an engine."""
    from matgrad.engines.engine import get_engine

    loss, rng = create_loss("SquaredError"), np.random.default_rng(7)
    M.set_optimizer("Momentum(0.9)")
    M.to("torch" if engine == "torch" else "numpy")
    backend = M.backend
    step, state = make_step(M, loss), M.state()
    compiled = None if engine == "eager" else get_engine(engine).step(step)
    if compiled is not None:
        compiled.load(state)
    for _ in range(steps):
        X, T = (backend.from_numpy(A) for A in (examples_of(M, 5, rng), rng.normal(size=(5, M.layers[-1].output_size))))
        if compiled is None:
            state = step(state, X, T, M.scalar(1e-3))
        else:
            compiled(X, T, M.scalar(1e-3))
    found = state if compiled is None else compiled.state()
    return {name: backend.to_numpy(A) for name, A in matrices_of(found).items()}


@pytest.mark.parametrize("engine", ["numpy", "torch", "native"])
@pytest.mark.parametrize("seed", range(0, 24))
def test_recorded_steps_are_the_equations(seed: int, engine: str):
    expected = trained(network(seed), "eager")
    found = trained(network(seed), engine)
    assert found.keys() == expected.keys()
    for name, A in expected.items():
        np.testing.assert_allclose(found[name], A, rtol=1e-12, atol=1e-12, err_msg=f"{name} of {random_network(seed)}")
