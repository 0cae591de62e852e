"""Sparse networks against masked dense ones in torch autograd, for every kind of layer, optimizer and backend."""

from __future__ import annotations

import numpy as np
import pytest
from test_sparse_layers import OPTIMIZERS, TorchTwin

import matgrad as mg
from matgrad import optimizers
from matgrad.activation_functions import ACTIVATIONS
from matgrad.program.computations import train_batch
from matgrad.sparse.matrix import values_of
from matgrad.specifications.models import LAYERS
from support import assert_close, spread, to_numpy

BACKENDS = ("numpy", "torch", "native")
SIZES = "7;9;8;4"
LAST = {"Softmax": "CrossEntropy", "LogSoftmax": "LogProbability"}  # layers that come last, and their losses
ADDED = {"batch normalization": "Sigmoid;BatchNormalization", "neurons": "Sigmoid;Dropout(0.3)"}
KINDS = [*ACTIVATIONS, *(name for name in LAYERS if not LAYERS[name].keeps_size), *ADDED, "dropout"]


def network(kind: str, optimizer: str) -> tuple[mg.MultilayerPerceptron, mg.LossFunction]:
    """Three sparse layers, two or one of the kind, in float64, with the loss that fits."""
    hidden = (ADDED | {"dropout": "HyperbolicTangent"}).get(kind, kind)
    layers = f"Sigmoid;HyperbolicTangent;{kind}" if kind in LAST else f"{hidden};{hidden};Linear"
    mg.manual_seed(5)
    M = mg.create_model(layers, SIZES, dropouts="0.3" if kind == "dropout" else "0", densities="0.3;0.5;0.7")
    rng = np.random.default_rng(6)
    M.set_weights("Normal(0, 0.8)", rng)
    for layer in M.layers:
        if isinstance(layer, mg.LinearLayer):
            layer.b = rng.normal(size=layer.b.shape).astype(np.float32)  # torch's relu'(0) is not the paper's
    M.set_optimizer(optimizer)
    return M.to("numpy", dtype="float64"), mg.loss_functions.create_loss(LAST.get(kind, "SoftmaxCrossEntropy"))


def batch(i: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(i)
    return rng.normal(size=(6, 7)), np.eye(4)[rng.integers(0, 4, 6)]


class Masked(TorchTwin):
    """The masked dense network, and its gradients."""

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradients of the last step, by the names of the parameters; of a sparse W on its support."""
        found = {}
        for i, (mask, theta) in enumerate(zip(self.masks, self.theta, strict=True), start=1):
            for name, p in theta.items():
                D = p.grad.numpy()
                found[f"{i}.{name}"] = D[mask][None] if name == "W" and mask is not None else D
        return found


def test_all_optimizers_are_there():
    assert {name.partition("(")[0] for name in OPTIMIZERS} == set(optimizers.OPTIMIZERS)


@pytest.mark.parametrize(("kind", "optimizer"), spread(KINDS, list(OPTIMIZERS), each=3))
def test_gradients_and_steps_are_those_of_the_masked_dense_network(kind: str, optimizer: str):
    """The equations on NumPy and PyTorch, and the compiled steps of all backends, over two batches."""
    reference, loss = network(kind, optimizer)
    twin = Masked(reference, OPTIMIZERS[optimizer], loss)
    eager = {name: network(kind, optimizer)[0].to(name) for name in ("numpy", "torch")}
    compiled = {name: mg.compile_step(network(kind, optimizer)[0].to(name), loss) for name in BACKENDS}
    for name, step in compiled.items():
        step.load(network(kind, optimizer)[0].to(name).state())
    for i in range(2):
        X, T = batch(i)
        train_batch(reference, loss, X, T, reference.scalar(0.1))  # whose dropout the twin takes
        twin.step(X, T)
        for name, M in eager.items():
            A, B = (M.backend.from_numpy(C) for C in (X, T))
            train_batch(M, loss, A, B, M.scalar(0.1))
            compiled[name](A, B, 0.1)
            for key, expected in twin.gradients().items():
                layer, parameter = M.layers[int(key[0]) - 1], key[2:]
                found = getattr(layer, f"D{parameter}")
                found = to_numpy(values_of(found))
                assert_close(found, expected, tolerance=1e-9, noise=1e-12, context=f"D{key} on {name}, batch {i}")
        compiled["native"](X, T, 0.1)
        states = {name: M.state() for name, M in eager.items()}
        states |= {f"compiled {name}": step.state() for name, step in compiled.items()}
        for name, state in states.items():
            for key, expected in twin.parameters().items():
                assert_close(state[key], expected, tolerance=1e-9, noise=1e-11, context=f"{key} on {name}, batch {i}")
