"""Densities: the Erdős–Rényi rule, texts, random supports, and models that are made and saved with them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import matgrad as mg
from matgrad.sparse.densities import erdos_renyi_densities, format_density, parse_densities, random_support
from matgrad.specifications.models import create_model
from matgrad.storage.models import load, load_weights, save_model
from sparse_support import BACKENDS, some_support
from support import to_numpy

LAYERS, SIZES = "ReLU;BatchNormalization;SReLU;Linear", "5;7;6;3"

# -- densities ---------------------------------------------------------------------------------


def test_the_rule_of_set_and_rigl():
    """The values of the original code for the CIFAR-10 model at 5 %."""
    found = erdos_renyi_densities([3072, 1024, 1024, 10], 0.05)
    np.testing.assert_allclose(found, [0.0424, 0.0636, 1.0], atol=5e-5)


def bisected(sizes: tuple[int, ...], overall: float, power: float) -> np.ndarray:
    """min(1, ε·r^power), with ε found by bisection; ratios are divided by the largest, so that no power underflows."""
    D, K = np.array(sizes[:-1], dtype=float), np.array(sizes[1:], dtype=float)
    logarithms = power * np.log((D + K) / (D * K))

    def densities(log_epsilon: float) -> np.ndarray:
        return np.exp(np.minimum(0, log_epsilon + logarithms))

    low, high = -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        if np.sum(densities(middle) * D * K) < overall * np.sum(D * K):
            low = middle
        else:
            high = middle
    return densities(high)


@pytest.mark.parametrize("power", [0, 0.5, 1, 3.5])
@pytest.mark.parametrize("overall", [0.001, 0.3, 0.99])
@pytest.mark.parametrize(
    "sizes", [(784, 1024, 512, 10), (5, 3), (100, 2, 100, 2), (3072, 1024, 1024, 10), (7, 7, 7), (1, 1, 9)], ids=str
)
def test_the_rule_with_a_power(sizes, overall: float, power: float):
    found = np.array(erdos_renyi_densities(sizes, overall, power))
    np.testing.assert_allclose(found, bisected(sizes, overall, power), rtol=1e-9)
    D, K = np.array(sizes[:-1]), np.array(sizes[1:])
    np.testing.assert_allclose(np.sum(found * D * K), overall * np.sum(D * K), rtol=1e-12)
    if power == 0:
        np.testing.assert_allclose(found, overall, rtol=1e-12)


def test_a_large_power_fills_the_smallest_layers_first():
    """Also where powers of the ratios are smaller than any number."""
    sizes, weights = (100, 50, 20, 10), np.array([5000, 1000, 200])
    found = np.array(erdos_renyi_densities(sizes, 0.1, 1000))
    np.testing.assert_allclose(found * weights, [0, 420, 200], atol=1e-9)


def created(densities: str) -> mg.MultilayerPerceptron:
    return create_model(LAYERS, SIZES, densities=densities)


@pytest.mark.parametrize(
    ("use", "argument", "message"),
    [
        (erdos_renyi_densities, ([4, 0, 3], 0.5), "layer size 2.*must be a positive integer"),
        (erdos_renyi_densities, ([4, 10**400, 3], 0.5), "layer size 2.*expected at most 21474"),
        (erdos_renyi_densities, ([4, 3], 0.5, float("nan")), "power: expected a finite number of 0 or more, found"),
        (erdos_renyi_densities, ([4, 3], 1.5), r"overall density: expected a number in \(0, 1\], found"),
        (parse_densities, ("0.1;0",), r"density 2: expected a number in \(0, 1\], found 0.0"),
        (parse_densities, ("0.5;nan",), r"density 2: expected a number in \(0, 1\], found nan"),
        (parse_densities, ("0.5;x",), "density 2: expected a number, found 'x'"),
        (parse_densities, ("0.5;;1",), "density 2 of '0.5;;1' is empty"),
        (created, ("0.5;0.5",), "expected 1 or 3 densities for 3 linear layers, found 2"),
        (created, ("0.5;1;1.01",), r"density 3: expected a number in \(0, 1\], found 1.01"),
        (created, ("0.001;1;1",), "layer 1: density: 0.001 of the 7 × 5 weights is less than one weight"),
    ],
)
def test_bad_densities_are_refused(use, argument: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        use(*argument)


def test_random_supports_of_a_density():
    rng = np.random.default_rng(0)
    S = random_support(30, 40, 0.05, rng)
    assert S is not None
    assert (S.shape, S.nnz) == ((30, 40), 60)
    assert random_support(30, 40, 1.0, rng) is None
    assert random_support(2, 2, 0.99, rng) is None, "which rounds to all of the weights"
    with pytest.raises(ValueError, match=r"density: 0\.1 of the 2 × 2 weights is less than one weight"):
        random_support(2, 2, 0.1, rng)
    mg.manual_seed(3)
    a = random_support(30, 40, 0.05)
    mg.manual_seed(3)
    b = random_support(30, 40, 0.05)
    assert a is not None
    assert b is not None
    assert a.is_same(b)


@pytest.mark.parametrize("density", [0.05, 0.001, 0.3333, 1 / 3, 0.123456])
def test_a_density_is_written_as_short_as_it_can_be(density: float):
    S = random_support(500, 300, density, np.random.default_rng(0))
    assert S is not None
    text = format_density(S)
    assert len(text) <= len(str(density))
    assert round(float(text) * 500 * 300) == S.nnz


# -- models from text --------------------------------------------------------------------------


def sparse_model(optimizers: str = "Adam") -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    return create_model(LAYERS, SIZES, dropouts="0.3;0;0", optimizers=optimizers, densities="0.4;1;0.5")


def test_a_model_with_densities():
    assert parse_densities("0.01;0.05;1") == [0.01, 0.05, 1.0]
    M = sparse_model()
    assert [layer.is_sparse for layer in M.layers] == [True, False, False, True]
    assert [M.layers[i].W.support.nnz for i in (0, 3)] == [14, 9]
    assert M.layers[0].dropout == 0.3
    again = sparse_model()
    assert again.layers[0].W.support.is_same(M.layers[0].W.support)
    np.testing.assert_array_equal(again.layers[0].W.values, M.layers[0].W.values)
    assert create_model(LAYERS, SIZES, densities="0.5", weights="Zero").layers[2].W.support.nnz == 21


def test_the_density_of_a_whole_model_is_divided_by_all_that_take_densities():
    expected = [layer.nnz for layer in create_model("ReLU;Linear", [30, 20, 5], densities="ER(0.3)").linear_layers()]
    for change in (mg.MultilayerPerceptron.set_densities, mg.MultilayerPerceptron.prune):
        change(M := create_model("ReLU;Linear", [30, 20, 5]), "ER(0.3)")
        assert [layer.nnz for layer in M.linear_layers()] == expected


# -- saved models ------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.npz"


def trained(backend: str = "numpy") -> mg.MultilayerPerceptron:
    rng = np.random.default_rng(2)
    M = sparse_model().to(backend)
    M.fit(rng.normal(size=(30, 5)), rng.integers(0, 3, 30), epochs=2, batch_size=10, seed=0, compiled=False)
    return M


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_a_sparse_model_comes_back_whole(file, backend_name: str):
    M = trained(backend_name)
    save_model(M, file)
    N = load(file)

    for a, b in zip(M.layers, N.layers, strict=True):
        assert a.is_sparse == b.is_sparse
        if a.is_sparse:
            assert a.W.support.is_same(b.W.support)
    for name, X in N.state().items():
        if name.count(".") == 1:
            np.testing.assert_array_equal(to_numpy(X), to_numpy(M.state()[name]), err_msg=name)
    X = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
    np.testing.assert_allclose(N.predict(X), M.predict(X), rtol=1e-4, atol=1e-6)


def test_the_file_has_index_and_values_but_no_dense_matrix(file):
    M = trained()
    save_model(M, file)
    with np.load(file, allow_pickle=False) as content:
        W, S = M.layers[3].W, M.layers[3].W.support
        np.testing.assert_array_equal(content["W3"], W.values)
        np.testing.assert_array_equal(content["W3.starts"], S.starts)
        np.testing.assert_array_equal(content["W3.columns"], S.columns)
        assert content["W2"].shape == (6, 7)
        assert "W2.starts" not in content
        assert content["W1"].shape == (1, 14)
        assert json.loads(str(content["matgrad"]))["model"]["densities"].startswith("0.4;1;")


def test_a_full_support_comes_back_as_such(file):
    """Its density is 1, as that of a dense layer."""
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)])
    M.layers[0].set_support(some_support(2, 3, 2.0))
    save_model(M, file)
    assert load(file).layers[0].W.support.nnz == 6


@pytest.mark.parametrize("densities", ["1", "0.9;0.2;0.3"])
def test_weights_bring_their_support(file, densities: str):
    """To a dense model, and to one with other supports; optimizers can go on."""
    M = trained()
    M.layers[2].set_support(some_support(6, 7, 0.6))
    save_model(M, file)
    N = create_model(LAYERS, SIZES, dropouts="0.3;0;0", optimizers="Adam", densities=densities).to(dtype="float64")
    load_weights(N, file)
    for i in (0, 2, 3):
        assert N.layers[i].W.support.is_same(M.layers[i].W.support)
        np.testing.assert_array_equal(N.layers[i].W.values, M.layers[i].W.values)
        assert N.layers[i].W.values.dtype == np.float64
    N.fit(np.ones((4, 5)), np.arange(4) % 3, epochs=1, compiled=False)


def test_dense_weights_do_not_fit_a_sparse_layer(file):
    save_model(create_model("Linear", "5;3"), file)
    with pytest.raises(ValueError, match="W1 is a dense matrix, but the layer is sparse"):
        load_weights(create_model("Linear", "5;3", densities="0.4"), file)


def change(content: dict[str, np.ndarray], name: str, k: int, value: int) -> None:
    content[name] = content[name].copy()
    content[name][k] = value


DAMAGES = {
    "starts missing": (lambda c: c.pop("W1.starts"), "there is no 'W1.starts'"),
    "both missing": (lambda c: (c.pop("W1.starts"), c.pop("W1.columns")), "W1 is a dense matrix, but the layer is"),
    "values dense": (lambda c: c.update(W1=np.zeros((7, 5))), r"1.W is \(7, 5\), expected \(1, 14\)"),
    "values nan": (lambda c: c.update(W1=np.full((1, 14), np.nan)), "1.W has elements that are not finite"),
    "starts decrease": (lambda c: change(c, "W1.starts", 2, 14), "W1: starts: row . ends before it begins"),
    "starts end": (
        lambda c: change(c, "W1.starts", -1, 2**40),
        "W1: starts: expected the first to be 0 and the last 14",
    ),
    "columns large": (lambda c: change(c, "W1.columns", -1, 5), "W1: columns: expected numbers from 0 to 4, found 5"),
    "columns twice": (lambda c: c.update({"W1.columns": c["W1.columns"] * 0}), "W1: columns: row . has column 0 twice"),
    "nothing left": (
        lambda c: c.update({"W1.starts": np.zeros(8, np.int64), "W1.columns": np.zeros(0, np.int32)}),
        "1.W.support: expected a support with at least one element",
    ),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_supports_are_refused_and_change_nothing(file, how: str):
    save_model(trained(), file)
    with np.load(file, allow_pickle=False) as saved:
        content = dict(saved)
    damage, message = DAMAGES[how]
    damage(content)
    np.savez(file, **content)

    with pytest.raises(ValueError, match=message):
        load(file)
    M = sparse_model()
    before = {name: np.array(to_numpy(X)) for name, X in M.state().items()}
    supports = [x.W for x in M.layers if x.is_sparse]
    with pytest.raises(ValueError, match=message):
        load_weights(M, file)
    assert [x.W for x in M.layers if x.is_sparse] == supports
    for name, X in M.state().items():
        np.testing.assert_array_equal(to_numpy(X), before[name], err_msg=name)
