"""Layers with parts: all that is done to a layer is done to its parts, with the residual layer of docs/custom.py."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import matgrad as mg
from composites import LOSS, D, H, K, Keeper, N, ShortcutLayer, batch, copies, model
from matgrad.inspection.gradient_check import check_gradients
from matgrad.judges.sympy_judge import check_layer
from matgrad.sparse.matrix import SparseMatrix
from matgrad.specifications.models import LAYERS, create_model, model_specification
from matgrad.storage.models import load, load_weights, save_model
from support import Framework, assert_close

BACKENDS = ("numpy", "torch", "native")

# -- names and the walk ------------------------------------------------------------------------


def test_the_walk_names_parts_after_their_layer():
    M = model()
    kinds = [(name, type(layer).__name__.removesuffix("Layer")) for name, layer in M.walk()]
    assert kinds == [
        ("1", "Activation"),
        ("2", "Shortcut"),
        ("2.1", "ActivationDropout"),
        ("2.2", "Shortcut"),
        ("2.2.1", "BatchNormalization"),
        ("2.2.2", "SReLU"),
        ("2.3", "LinearDropout"),
        ("3", "Linear"),
    ]
    assert [name for name, _ in M.layers[1].walk()] == ["", "1", "2", "2.1", "2.2", "3"]


# -- gradients against torch -------------------------------------------------------------------


def torch_residual(layer: mg.Layer, X: torch.Tensor, theta: dict[str, torch.Tensor]) -> torch.Tensor:
    """X + relu(X W1ᵀ + b1) W2ᵀ + b2, with autograd."""
    Z = torch.relu(X @ theta["1.W"].T + theta["1.b"])
    return X + Z @ theta["2.W"].T + theta["2.b"]


def test_gradients_are_those_of_autograd(backend: Framework):
    mg.manual_seed(1)
    layer = ShortcutLayer(H, H)
    layer.to(backend.backend, "float64")
    rng = np.random.default_rng(1)
    X, G = rng.normal(size=(N, H)), rng.normal(size=(N, H))
    theta = {name: torch.tensor(A, requires_grad=True) for name, A in copies(layer.state()).items()}
    leaf = torch.tensor(X, requires_grad=True)
    expected = torch_residual(layer, leaf, theta)
    expected.backward(torch.tensor(G))

    def run(X, G):
        layer.forget()
        Y = layer.feedforward(X)
        layer.backpropagate(Y, G)
        found = {"Y": Y, "X": layer.DX}
        return found | {f"{i}.{p}": getattr(part, f"D{p}") for i, part in enumerate(layer.parts(), 1) for p in "Wb"}

    found = backend.compiled(run)(backend.matrix(X), backend.matrix(G))
    assert_close(found.pop("Y"), expected.detach().numpy(), context=f"{backend} Y")
    for name, value in found.items():
        leafs = {"X": leaf, **theta}
        assert_close(value, leafs[name].grad.numpy(), context=f"{backend} D{name}")


# -- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_compiled_training_equals_the_equations(backend: Framework, clip_norm: float | None):
    """With dropout, buffers and a composite inside; a warning, that is a fallback, would be an error."""
    states = []
    for framework, compiled in backend.ways():
        M = model("Adam").to(framework.name)
        data = mg.DataLoader(*batch(2, 16), batch_size=5).to(framework.name)
        before = copies(M.state())
        mg.stochastic_gradient_descent(
            M, 2, LOSS, mg.ConstantScheduler(0.05), data, compiled=compiled, clip_norm=clip_norm
        )
        states.append(copies(M.state()))
        assert int(states[-1]["2.1.renewals"]) == 8, "once a step"
        assert int(states[-1]["2.3.renewals"]) == 2, "once an epoch"
    for name, A in states[0].items():
        context = f"{backend} clip_norm={clip_norm} {name}"
        assert_close(states[1][name], A, tolerance=1e-9, noise=1e-11, context=context)
        if not name.endswith("seed"):
            assert not np.array_equal(A, before[name]), f"{context} did not change"


def test_a_part_without_its_gradient_is_an_error():
    M = model()
    with pytest.raises(RuntimeError, match=r"ActivationDropoutLayer\.optimize: DW is not computed yet"):
        M.layers[1].optimize(0.1)


def test_clipping_counts_the_gradients_of_parts():
    M, (X, T) = model(), batch()
    Y = M.feedforward(X)
    M.backpropagate(Y, LOSS.mean_gradient(Y, T))
    gradients = [(layer, f"D{name}") for _, layer in M.walk() for name in layer.parameters]
    assert len(gradients) == 16
    before = [getattr(*g) for g in gradients]
    norm = np.sqrt(sum((A**2).sum() for A in before))
    mg.clip_gradients(M, norm / 3)
    for A, g in zip(before, gradients, strict=True):
        np.testing.assert_allclose(getattr(*g), A / 3, rtol=1e-4, err_msg=g[1])


def test_modes_reach_parts():
    M = model()
    modes = {name: name != "2.2.1" for name, _ in M.walk()}
    M.layers[1].layers[1].layers[0].training = False
    X, _ = batch()
    M.predict(X)
    assert {name: layer.training for name, layer in M.walk()} == modes, "prediction restores the modes"
    M.eval()
    assert not any(layer.training for _, layer in M.walk())
    assert not M.training
    np.testing.assert_array_equal(M.feedforward(X), M.feedforward(X))
    assert M.layers[1].layers[0].R is None


# -- set-up ------------------------------------------------------------------------------------


def test_densities_count_linear_layers_in_parts():
    M = model(dtype="float32")
    with pytest.raises(ValueError, match="expected 1 or 5 densities for 5 linear layers, found 3"):
        M.set_densities("0.5;0.5;1")
    M.set_densities("1;0.5;1;0.25;1")
    assert [name for name, x in M.walk() if isinstance(getattr(x, "W", None), SparseMatrix)] == ["2.1", "2.3"]
    assert M.layers[1].is_sparse
    assert not M.layers[0].is_sparse
    assert M.state()["2.3.W"].shape == (1, 7)
    with pytest.raises(TypeError, match="the backend sympy has no sparse matrices"):
        M.to("sympy")


def test_sparse_parts_train_in_the_core():
    states = []
    for compiled in (False, True):
        M = model().to("native")
        M.set_densities("0.5", np.random.default_rng(0))
        data = mg.DataLoader(*batch(2, 16), batch_size=5).to("native")
        mg.stochastic_gradient_descent(M, 2, LOSS, mg.ConstantScheduler(0.05), data, compiled=compiled)
        states.append(copies(M.state()))
    assert M.layers[1].layers[0].W.support.nnz == 14
    for name, A in states[0].items():
        assert_close(states[1][name], A, tolerance=1e-9, noise=1e-11, context=name)


def test_the_summary_shows_parts_under_their_layer():
    M = model()
    lines = str(M).splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == [name for name, _ in M.walk()]
    column = lines[2].index("ActivationLayer")
    for (name, layer), line in zip(M.walk(), lines[2:-1], strict=True):
        assert line[column:].startswith("  " * name.count(".") + repr(layer))
    counts = [int(line.split()[-1]) for line in lines[2:]]
    trained = [X.size for name, X in M.state().items() if re.search(r"\.(W|b|gamma|beta|al|tl|ar|tr)$", name)]
    assert counts[-1] == sum(counts[:-1]) == sum(trained)
    assert counts[1] == 0


# -- clones, moving, saving --------------------------------------------------------------------


@pytest.mark.parametrize("keep", [lambda x: x, lambda x: [x], lambda x: {"f": x}])
def test_training_a_clone_leaves_the_parts_of_the_original(keep):
    M = mg.MultilayerPerceptron([Keeper(keep(mg.LinearLayer(H, H))), mg.LinearLayer(H, K)]).to(dtype="float64")
    X, T = np.random.default_rng(0).normal(size=(N, H)), batch()[1]
    before, twin = copies(M.state()), M.clone()
    (part,), (other,) = M.layers[0].parts(), twin.layers[0].parts()
    assert part is not other
    assert part.W is other.W, "the matrices are shared"
    Y = twin.feedforward(X)
    twin.backpropagate(Y, LOSS.mean_gradient(Y, T))
    twin.optimize(0.1)
    for name, A in before.items():
        np.testing.assert_array_equal(M.state()[name], A)
    assert part.DW is None
    assert not np.array_equal(other.W, part.W)


def test_forgetting_reaches_parts():
    M, (X, T) = model(), batch()
    Y = M.feedforward(X)
    M.backpropagate(Y, LOSS.mean_gradient(Y, T))
    assert M.layers[1].layers[0].DW is not None
    M.forget()
    assert all(getattr(x, name) is None for _, x in M.walk() for name in ("X", "DX", *x.intermediates))


def test_moving_there_and_back():
    M = model()
    before = copies(M.state())
    M.to("torch", dtype="float32")
    assert all(isinstance(X, torch.Tensor) for X in M.state().values())
    assert M.state()["2.2.1.gamma"].dtype == torch.float32
    M.to("numpy", dtype="float64")
    for name, A in before.items():
        assert_close(M.state()[name], A, tolerance=1e-6, context=name)


class OddLayer(mg.LinearLayer):
    """A user's kind of linear layer"""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(LAYERS, "Shortcut", ShortcutLayer)
    monkeypatch.setitem(LAYERS, "Odd", OddLayer)


@pytest.mark.usefixtures("registered")
def test_a_model_of_a_specification_is_saved_and_loaded(tmp_path):
    M = create_model(
        "ReLU;Shortcut;Linear", f"{D};{H};{K}", dropouts="0;0.5;0.1;0", densities="1;0.5;1;1", renew="epoch"
    )
    assert [getattr(x, "dropout", 0) for _, x in M.walk() if isinstance(x, mg.LinearLayer)] == [0, 0.5, 0.1, 0]
    assert M.layers[1].layers[0].W.support.nnz == 8
    M.layers[1].layers[1].b += 1
    save_model(M, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as content:
        assert {"W1", "b1", "W2", "W2.columns", "W3", "W4", "b4", "2.1.seed"} <= set(content)
        np.testing.assert_array_equal(content["b3"], M.layers[1].layers[1].b)
    again = load(tmp_path / "m.npz")
    assert model_specification(again) == model_specification(M)
    for name, A in copies(again.state()).items():
        np.testing.assert_array_equal(A, copies(M.state())[name], err_msg=name)
    X = batch()[0].astype("float32")
    np.testing.assert_array_equal(again.predict(X), M.predict(X))


@pytest.mark.usefixtures("registered")
def test_lists_of_a_specification_count_linear_parts():
    with pytest.raises(ValueError, match="expected 1 or 4 dropouts for 4 linear layers, found 2"):
        create_model("ReLU;Shortcut;Linear", f"{D};{H};{K}", dropouts="0;0")
    with pytest.raises(ValueError, match=r"layer 1: OddLayer\(.*\) drops no weights"):
        create_model("Odd;Linear", f"{D};{H};{K}", dropouts=0.1)
    M = create_model("ReLU;Shortcut;Linear", f"{D};{H};{K}", weights="Zero", optimizers="Nesterov")
    assert not M.layers[1].layers[1].W.any()
    assert "2.2.W.delta" in M.state()


OTHERS = {
    "other activation": lambda: ShortcutLayer(H, H, mg.ActivationLayer(H, H, "Sigmoid"), mg.LinearLayer(H, H)),
    "no constructor like it": lambda: Keeper(mg.LinearLayer(H, H)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_a_model_that_no_specification_makes_keeps_its_weights(tmp_path, make):
    def made() -> mg.MultilayerPerceptron:
        return mg.MultilayerPerceptron([make(), mg.LinearLayer(H, K)])

    M, other, file = made(), made(), tmp_path / "m.npz"
    with pytest.raises(ValueError, match=r"layer 1, .*specification"):
        model_specification(M)
    save_model(M, file)
    with pytest.raises(ValueError, match=r"m\.npz: layer 1, .*specification.*; make the model and use mg.load_weights"):
        load(file)
    load_weights(other, file)
    for name, A in copies(M.state()).items():
        np.testing.assert_array_equal(other.state()[name], A, err_msg=name)


# -- what is refused ---------------------------------------------------------------------------


def test_a_layer_that_occurs_twice_is_refused():
    shared = mg.LinearLayer(H, H)
    with pytest.raises(ValueError, match=r"layers 1 and 3 are the same LinearLayer\(4, 4\)"):
        mg.MultilayerPerceptron([shared, mg.LinearLayer(H, H), shared])
    with pytest.raises(ValueError, match=r"layers 1 and 2\.2\.1 are the same LinearLayer\(4, 4\)"):
        mg.MultilayerPerceptron([shared, ShortcutLayer(H, H, mg.LinearLayer(H, H), ShortcutLayer(H, H, shared))])
    loop = ShortcutLayer(H, H)
    loop.layers = (loop,)
    with pytest.raises(ValueError, match=r"layers 1 and 1\.1 are the same ShortcutLayer"):
        mg.MultilayerPerceptron([loop])


USES = {
    "feedforward": lambda M, X, T: M.feedforward(X),
    "clone": lambda M, X, T: M.clone(),
    "train": lambda M, X, T: M.train(),
    "fit": lambda M, X, T: M.fit(X, T),
    "predict": lambda M, X, T: M.predict(X),
    "str": lambda M, X, T: str(M),
    "check": lambda M, X, T: check_gradients(M, LOSS, X, T),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_layers_that_are_added_later_are_checked_at_their_first_use(use):
    M, X, T = mg.MultilayerPerceptron([mg.LinearLayer(H, H)]).to(dtype="float64"), np.ones((N, H)), np.ones((N, H))
    M.feedforward(X)
    M.layers.append(M.layers[0])
    with pytest.raises(ValueError, match="layers 1 and 2 are the same"):
        use(M, X, T)


class HidingLayer(mg.Layer):
    """A layer that has no parts but an inner layer"""

    def __init__(self, hidden) -> None:
        super().__init__(H, H)
        self.hidden = hidden


HIDDEN = [lambda x: x, lambda x: [x], lambda x: (1, x), lambda x: {"f": x}, lambda x: [[x]]]


@pytest.mark.parametrize("keep", HIDDEN)
def test_inner_layers_that_are_no_parts_are_refused(keep):
    message = r"layer 1, HidingLayer\(4, 4\): hidden has LinearLayer\(2, 2\), which is not in parts\(\)"
    with pytest.raises(ValueError, match=message):
        mg.MultilayerPerceptron([HidingLayer(keep(mg.LinearLayer(2, 2)))])
    layer = ShortcutLayer(H, H, HidingLayer(keep(mg.LinearLayer(2, 2))))
    with pytest.raises(ValueError, match=message.replace("layer 1", r"layer 1\.1")):
        mg.MultilayerPerceptron([layer])
    with pytest.raises(ValueError, match=r"HidingLayer.*hidden"):
        check_layer(layer)


def test_parts_that_are_made_anew_are_refused():
    class Fresh(mg.Layer):
        def parts(self):
            return [mg.LinearLayer(2, 2)]

    with pytest.raises(
        ValueError, match=r"layer 1, Fresh\(4, 4\): the part LinearLayer\(2, 2\) is in none of its attr"
    ):
        mg.MultilayerPerceptron([Fresh(H, H)])
