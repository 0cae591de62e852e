"""Sparse layers against torch autograd of masked dense ones: gradients, training, state, moving and checks.

The oracle multiplies a dense W by the mask of the support and computes in float64.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import matgrad as mg
from architectures import torch_layer, torch_loss
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.program.computations import train_batch
from matgrad.sparse.densities import format_density
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from sparse_support import BACKENDS, mask_of, some_support
from support import Framework, assert_close, to_numpy

N, D, K = 5, 7, 6


@pytest.fixture(params=BACKENDS)
def framework(request) -> Framework:
    return Framework(request.param)


# -- one layer ---------------------------------------------------------------------------------


def test_no_dense_matrix_is_made():
    """A layer whose dense W would have 64 GiB."""
    n = 2**17
    layer = mg.LinearDropoutLayer(n, n, dropout=0.5, support=Support.random(n, n, 1000, np.random.default_rng(0)))
    layer.set_optimizer("Adam")
    layer.backpropagate(layer.feedforward(np.ones((2, n), np.float32)), np.ones((2, n), np.float32))
    layer.optimize(0.1)
    layer.clone().to(Framework("torch").backend, "float64")
    assert np.isfinite(layer.W.values).all()


# -- training ----------------------------------------------------------------------------------

OPTIMIZERS = {
    "GradientDescent": lambda p: torch.optim.SGD(p, lr=0.1),
    "GradientDescent(weight_decay=0.1)": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "Momentum(0.9)": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Momentum(0.9, weight_decay=0.1)": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Nesterov(0.8)": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True),
    "Adagrad(1e-3)": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-3),
    "RMSProp(0.9, 1e-3)": lambda p: torch.optim.RMSprop(p, lr=0.1, alpha=0.9, eps=1e-3),
    # the ε keeps down the rounding of gradients that are 0, such as that of b before batch normalization
    "Adam(epsilon=1e-3)": lambda p: torch.optim.Adam(p, lr=0.1, eps=1e-3),
    "AdamW(epsilon=1e-3, weight_decay=0.1)": lambda p: torch.optim.AdamW(p, lr=0.1, eps=1e-3, weight_decay=0.1),
}


def mixed_model(dropout: float = 0.0) -> mg.MultilayerPerceptron:
    """Sparse and dense layers of all kinds, in float64."""
    mg.manual_seed(4)
    layers: list[mg.Layer] = [
        mg.ActivationDropoutLayer(
            D, 9, mg.HyperbolicTangentActivation(), support=some_support(9, D, 0.3), dropout=dropout
        ),
        mg.BatchNormalizationLayer(9),
        mg.SReLUDropoutLayer(9, 8, 0.2, -0.5, 0.3, 0.5, support=some_support(8, 9, 0.5), dropout=dropout),
        mg.ActivationDropoutLayer(8, 6, mg.SigmoidActivation(), dropout=dropout),
        mg.LinearLayer(6, 4, support=some_support(4, 6, 0.7)),
    ]
    M = mg.MultilayerPerceptron(layers).to(dtype="float64")
    M.set_weights("Normal(0, 0.8)", np.random.default_rng(5))
    return M


def batch(i: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(100 + i)
    return rng.normal(size=(N, D)), mg.one_hot(rng.integers(0, 4, N), 4)


class TorchTwin:
    """The same model in torch: dense weights times masks, trained by autograd and torch.optim."""

    def __init__(self, M: mg.MultilayerPerceptron, make_optimizer, loss: mg.LossFunction | None = None) -> None:
        self.layers, self.loss = M.layers, loss or mg.SoftmaxCrossEntropyLoss()
        self.masks = [mask_of(x.W.support) if x.is_sparse else None for x in M.layers]
        self.theta = [{name: self.leaf(getattr(x, name)) for name in x.parameters} for x in M.layers]
        self.optimizer = make_optimizer([p for theta in self.theta for p in theta.values()])

    @staticmethod
    def leaf(A) -> torch.Tensor:
        return torch.tensor(np.array(to_numpy(A)), requires_grad=True)  # the dense array of a sparse matrix

    def step(self, X: np.ndarray, T: np.ndarray, clip_norm: float | None = None) -> None:
        """One step, with the dropout matrices that the layers of M have used last."""
        Y = torch.tensor(X)
        for layer, mask, theta in zip(self.layers, self.masks, self.theta, strict=True):
            twin = copy.copy(layer)
            if getattr(layer, "R", None) is not None:
                twin.R = to_numpy(layer.R)
            masked = theta if mask is None else theta | {"W": theta["W"] * torch.tensor(mask)}
            Y = torch_layer(twin, masked, Y)
        self.optimizer.zero_grad()
        torch_loss(self.loss, Y, torch.tensor(T)).backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([p for theta in self.theta for p in theta.values()], clip_norm)
        self.optimizer.step()

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters, by their names in the state of M; of a sparse W its values."""
        found = {}
        for i, (mask, theta) in enumerate(zip(self.masks, self.theta, strict=True), start=1):
            for name, p in theta.items():
                A = p.detach().numpy()
                found[f"{i}.{name}"] = A[mask][None] if name == "W" and mask is not None else A
        return found


def test_clipping_counts_the_stored_elements(framework: Framework):
    M = mixed_model()
    M.to(framework.name)
    twin = TorchTwin(M, OPTIMIZERS["GradientDescent"])
    for i in range(3):
        X, T = batch(i)
        loss = mg.SoftmaxCrossEntropyLoss()
        train_batch(M, loss, framework.matrix(X), framework.matrix(T), M.scalar(0.1), clip_norm=0.1)
        twin.step(X, T, clip_norm=0.1)
    state = M.state()
    for name, expected in twin.parameters().items():
        assert_close(state[name], expected, tolerance=1e-9, context=f"{name} on {framework}")


# -- optimizers and state ----------------------------------------------------------------------


@pytest.mark.parametrize("of", [lambda W: W, lambda W: W.values], ids=["W", "values"])
@pytest.mark.parametrize("make", [mg.MomentumOptimizer, mg.AdamOptimizer])
def test_the_listing_of_the_paper_binds_sparse_weights(framework: Framework, make, of):
    """Optimizers made with W or with its values do the same as those made by name."""
    layers = [mg.LinearLayer(D, K, support=some_support(K, D, 0.4)) for _ in range(2)]
    layers[1].load_state(layers[0].state())
    for layer in layers:
        layer.to(framework.backend, "float64")
    by_hand, by_name = layers
    by_hand.optimizer = mg.CompositeOptimizer(
        make(of(by_hand.W), by_hand.DW), mg.GradientDescentOptimizer(by_hand.b, by_hand.Db)
    )
    by_name.set_optimizer(make.__name__.removesuffix("Optimizer"))
    X, G = (framework.matrix(A) for A in np.random.default_rng(0).normal(size=(2, N, 9)))
    for layer in layers:
        for _ in range(3):
            layer.backpropagate(layer.feedforward(X[:, :D]), G[:, :K])
            layer.optimize(0.1)
    a, b = by_hand.state(), by_name.state()
    for name, value in a.items():
        if not name.startswith("b"):
            assert_close(value, to_numpy(b[name]), tolerance=0.0, context=f"{name} on {framework}")
            assert name == "W.support" or tuple(value.shape) in ((1, by_hand.W.support.nnz), ())


def test_an_optimizer_of_another_sparse_matrix_is_refused():
    layer = mg.LinearLayer(D, K, support=some_support(K, D, 0.4))
    with pytest.raises(ValueError, match="not made with a parameter"):
        layer.optimizer = mg.MomentumOptimizer(layer.W.with_values(1 * layer.W.values), None)


def test_the_state_has_the_values_and_keeps_the_support(framework: Framework):
    S = some_support(K, D, 0.4)
    layer = mg.ActivationLayer(D, K, "ReLU", support=S)
    layer.set_optimizer("Adam")
    layer.to(framework.backend, "float64")
    shapes = {name: tuple(X.shape) for name, X in layer.state().items()}
    assert [shapes[name] for name in ("W", "b", "W.m", "W.v", "W.c1")] == [
        (1, S.nnz),
        (1, K),
        (1, S.nnz),
        (1, S.nnz),
        (),
    ]
    assert layer.state()["W"] is layer.W.values
    values = framework.matrix(np.arange(float(S.nnz))[None])
    layer.load_state({"W": values, "W.support": S})
    assert layer.W.support is S
    assert layer.W.values is values
    with pytest.raises(ValueError, match=f"values: expected size 1 × {S.nnz}"):
        layer.load_state({"W": framework.matrix(np.zeros((K, D))), "W.support": S})
    with pytest.raises(ValueError, match=r"W is sparse; expected W\.support as well"):
        layer.load_state({"W": values})


def test_moving_and_cloning_keep_the_support(framework: Framework):
    M = mixed_model(0.3)
    M.set_optimizer("Adam")
    before = {name: np.array(to_numpy(X)) for name, X in M.state().items()}
    supports = [x.W.support for x in M.layers if x.is_sparse]
    M.to(framework.name, dtype="float32")
    assert (M.backend.name, M.dtype) == (framework.name, "float32")
    M.to("numpy", dtype="float64")
    for name, X in M.state().items():
        assert_close(X, before[name].astype(to_numpy(X).dtype), tolerance=1e-7, context=f"{name} on {framework}")
    twin = M.clone()
    X, T = batch(0)
    train_batch(twin, mg.SoftmaxCrossEntropyLoss(), X, T, 0.1)
    assert [x.W.support for x in twin.layers if x.is_sparse] == supports
    for name, value in M.state().items():
        expected = before[name].astype(to_numpy(value).dtype)
        assert_close(value, expected, tolerance=1e-7, context=f"{name}, after training a clone")
    assert M.layers[0].DW is None


def test_backends_without_sparse_matrices_refuse_the_whole_model(backend: Framework):
    """Before anything is moved."""
    M = mg.MultilayerPerceptron([mg.ActivationLayer(D, K, "ReLU"), mg.LinearLayer(K, 2)])
    M.layers[1].set_support(some_support(2, K, 0.5))
    if backend.backend.has_sparse:
        assert M.to(backend.name).backend.name == backend.name
        return
    with pytest.raises(TypeError, match=f"the backend {backend.name} has no sparse matrices; numpy, torch and native"):
        M.to(backend.name)
    assert isinstance(M.layers[0].W, np.ndarray)
    W = SparseMatrix(some_support(2, K, 0.5), backend.matrix(M.layers[1].W.values, "float32"))
    with pytest.raises(TypeError, match=f"the backend {backend.name} has no sparse matrices"):
        W @ backend.matrix(np.ones((K, 3)), "float32")


# -- changing the support ----------------------------------------------------------------------


@pytest.mark.parametrize("start", [None, 0.5])
def test_a_new_support_takes_weights_and_momentum_along(framework: Framework, start: float | None):
    old = some_support(K, D, start if start is not None else 1.0, seed=1)
    new = some_support(K, D, 0.4, seed=2)
    layer = mg.LinearLayer(D, K, support=None if start is None else old)
    layer.set_optimizer("Adam")
    layer.to(framework.backend, "float64")
    X, G = (framework.matrix(A) for A in (np.ones((2, D)), np.ones((2, K))))
    layer.backpropagate(layer.feedforward(X), G)
    layer.optimize(0.1)
    before = {key: np.array(to_numpy(A)) for key, A in layer.state().items()}
    layer.set_support(new)

    kept = mask_of(old) & mask_of(new)
    assert layer.W.support is new
    assert layer.DW is None
    for key in ("W", "W.m", "W.v"):
        A = np.zeros((K, D))
        A[mask_of(old)] = before[key].reshape(-1)
        np.testing.assert_array_equal(to_numpy(layer.state()[key]), (A * kept)[mask_of(new)][None], err_msg=key)
    assert to_numpy(layer.state()["W.c1"]) == before["W.c1"]
    layer.backpropagate(layer.feedforward(X), G)
    layer.optimize(0.1)


# -- what looks into a model -------------------------------------------------------------------


def test_the_summary_counts_stored_weights_and_shows_densities():
    M = mixed_model()
    lines = str(M).splitlines()
    nnz = [x.W.support.nnz if x.is_sparse else x.W.size for x in M.layers if isinstance(x, mg.LinearLayer)]
    assert lines[1].split() == ["layer", "sizes", "density", "parameters"]
    assert lines[2].split()[-2:] == [format_density(M.layers[0].W.support), str(nnz[0] + 9)]
    assert lines[3].split()[-2:] == ["9", "18"], "batch normalization has no density"
    assert lines[5].split()[-2:] == ["1", str(8 * 6 + 6)]
    assert lines[-1].split() == ["total", str(sum(nnz) + 9 + 18 + 5 * 8 + 6 + 4)]
    assert len({len(line) for line in lines[1:]}) == 1


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_gradient_check_takes_sparse_layers(dropout: float):
    M = mixed_model(dropout)
    X, T = batch(0)
    results = check_gradients(M, "SoftmaxCrossEntropy", X, T)
    assert first_wrong(results) is None, str(first_wrong(results))
    checked = {r.name: r.checked for r in results}
    assert checked["layer 1 ActivationDropoutLayer.DW"] == min(20, M.layers[0].W.support.nnz)
    assert np.isfinite(M.layers[0].W.values).all()


def test_the_gradient_check_names_the_wrong_element_of_a_sparse_gradient():
    class Wrong(mg.LinearLayer):
        def backpropagate(self, Y, DY):
            super().backpropagate(Y, DY)
            values = np.array(self.DW.values)
            values[0, 3] += 1.0
            self.DW = self.DW.with_values(values)

    S = some_support(4, D, 0.4)
    M = mg.MultilayerPerceptron([Wrong(D, 4, support=S)])
    wrong = first_wrong(check_gradients(M, "SoftmaxCrossEntropy", *batch(0)))
    assert (wrong.row, wrong.column) == (S.row_indices()[3], S.columns[3])
    assert "DW is wrong" in str(wrong)
