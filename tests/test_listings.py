"""The paper's listings run as printed, up to imports and `M.to(...)`, on every backend."""

from __future__ import annotations

import re
from textwrap import dedent, indent

import numpy as np
import pytest

import matgrad as mg
from matgrad.matrix_operations import Matrix
from support import DATA, Framework, assert_close, to_numpy

MULTILAYER_PERCEPTRON = """
class MultilayerPerceptron(object):
    def feedforward(self, X: Matrix) -> Matrix:
        for layer in self.layers:
            X = layer.feedforward(X)
        return X

    def backpropagate(self, Y: Matrix, DY: Matrix):
        for layer in reversed(self.layers):
            layer.backpropagate(Y, DY)
            Y, DY = layer.X, layer.DX

    def optimize(self, eta: float):
        for layer in self.layers:
            layer.optimize(eta)
"""

STOCHASTIC_GRADIENT_DESCENT = """
def stochastic_gradient_descent(
        M: MultilayerPerceptron,
        epochs: int,
        loss: LossFunction,
        learning_rate: LearningRateScheduler,
        train_loader: DataLoader):

    for epoch in range(epochs):
        lr = learning_rate(epoch)
        for (X, T) in train_loader:
            Y = M.feedforward(X)
            # take the average of the gradients
            N = X.shape[0]  # the batch size
            DY = loss.gradient(Y, T) / N
            M.backpropagate(Y, DY)
            M.optimize(lr)
"""

OPTIMIZER = """
class GradientDescentOptimizer(Optimizer):
    def __init__(self, x, Dx):
        self.x = x
        self.Dx = Dx

    def update(self, eta):
        self.x -= eta * self.Dx

optimizer_W = MomentumOptimizer(layer.W, layer.DW, 0.9)
optimizer_b = NesterovOptimizer(layer.b, layer.Db, 0.9)
L.optimizer = CompositeOptimizer(optimizer_W, optimizer_b)
"""

CONSTRUCTION = """
M = MultilayerPerceptron()
input_size = 3072
output_size = 1024
act = ReLUActivation()
layer = ActivationLayer(input_size, output_size, act)
layer.set_optimizer('Momentum(0.9)')
layer.set_weights('Xavier')
M.layers.append(layer)
...
"""

LISTINGS = (MULTILAYER_PERCEPTRON, STOCHASTIC_GRADIENT_DESCENT, OPTIMIZER, CONSTRUCTION)


def run(listing: str, names: dict) -> dict:
    """The names after a listing has run among those of matgrad."""
    scope = {name: getattr(mg, name) for name in mg.__all__} | {"Matrix": Matrix} | names
    exec(listing, scope)
    return scope


@pytest.mark.skipif(not (DATA.parent / "paper.tex").exists(), reason="the paper's text is not beside the checkout")
@pytest.mark.parametrize("listing", LISTINGS)
def test_the_listings_are_those_of_the_paper(listing: str):
    paper = re.sub(r"[ \t]+\n", "\n", (DATA.parent / "paper.tex").read_text())
    assert dedent(listing).strip() in paper or indent(listing.strip(), "    ") in paper


def test_construction_and_training_run_as_printed(backend: Framework):
    """The model of the construction listing, trained by the loop of the listing and by matgrad's own."""
    rng = np.random.default_rng(1)
    X, t = rng.random((20, 3072), dtype=np.float32), rng.integers(0, 3, 20)

    def trained(train) -> mg.MultilayerPerceptron:
        mg.manual_seed(1)
        M = run(CONSTRUCTION, {})["M"]
        M.layers.append(mg.LinearLayer(1024, 3))
        M.to(backend.name)
        loader = mg.DataLoader(X, t, batch_size=8).to(backend.name)
        train(M, 2, mg.SoftmaxCrossEntropyLoss(), mg.ConstantScheduler(0.01), loader)
        return M

    start = trained(lambda *_: None).state()
    printed = trained(run(STOCHASTIC_GRADIENT_DESCENT, {})["stochastic_gradient_descent"]).state()
    own = trained(mg.stochastic_gradient_descent).state()

    for name in own:
        assert_close(printed[name], to_numpy(own[name]), context=f"{backend}, {name}")
        assert name == "2.b" or not np.array_equal(to_numpy(start[name]), to_numpy(own[name])), name


def test_the_printed_perceptron_and_optimizers_train(backend: Framework):
    """The class of the listing drives matgrad's layers, with the optimizers of the listing."""
    rng = np.random.default_rng(2)
    X, t = rng.random((12, 5), dtype=np.float32), rng.integers(0, 3, 12)
    mg.manual_seed(2)
    layers = [mg.ActivationLayer(5, 4, mg.SigmoidActivation()), mg.LinearLayer(4, 3)]
    mg.MultilayerPerceptron(layers).to(backend.name)
    M = run(MULTILAYER_PERCEPTRON, {})["MultilayerPerceptron"]()
    M.layers = layers
    layer = layers[0]
    names = run(OPTIMIZER, {"layer": layer, "L": layer})
    last = layers[1]
    descent = names["GradientDescentOptimizer"]
    last.optimizer = mg.CompositeOptimizer(descent(last.W, last.DW), descent(last.b, last.Db))
    loss, loader = mg.SoftmaxCrossEntropyLoss(), mg.DataLoader(X, t, batch_size=4).to(backend.name)

    def mean_loss() -> float:
        return sum(float(loss(M.feedforward(X), T)) for X, T in loader) / 12

    before = mean_loss()
    run(STOCHASTIC_GRADIENT_DESCENT, {})["stochastic_gradient_descent"](M, 30, loss, mg.ConstantScheduler(0.3), loader)

    assert mean_loss() < before - 0.02
    assert set(layer.state()) == {"W", "b", "W.delta", "b.delta"}
