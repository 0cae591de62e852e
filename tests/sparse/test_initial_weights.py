"""Initial weights of sparse layers: they count the connections that exist, or by name all of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.stats

import matgrad as mg
from matgrad.sparse import support as supports
from matgrad.weight_initializers import DENSE, initial_weights, sparse_weights
from sparse_support import mask_of, some_support

K, D = 60, 90

# the distribution of an element with D inputs and K outputs, from the papers, and its scale
BOUNDS = {
    "Xavier": lambda K, D: 1 / np.sqrt(D),
    "XavierNormalized": lambda K, D: np.sqrt(6 / (K + D)),
    "XavierUniform": lambda K, D: np.sqrt(6 / (K + D)),
    "HeUniform": lambda K, D: np.sqrt(6 / D),
}
DEVIATIONS = {
    "XavierNormal": lambda K, D: np.sqrt(2 / (K + D)),
    "He": lambda K, D: np.sqrt(2 / D),
    "HeNormal": lambda K, D: np.sqrt(2 / D),
}
SCALES = BOUNDS | DEVIATIONS


def uneven_support(seed: int = 0) -> mg.Support:
    """One full row, one full column, an empty row, an empty column, and densities from 0 to 1 in the others."""
    rng = np.random.default_rng(seed)
    mask = rng.random((K, D)) < np.linspace(0, 1, K)[:, None] * np.linspace(0.1, 1, D)
    mask[7], mask[:, 5], mask[11], mask[:, 13] = True, True, False, False
    return mg.Support.from_mask(mask)


def counts(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per stored element, in row order, the outputs of its column and the inputs of its row."""
    rows, columns = np.nonzero(mask)
    return np.array([mask[:, j].sum() for j in columns]), np.array([mask[i].sum() for i in rows])


def standardized(specification: str, values: np.ndarray, K, D) -> float:
    """The p-value of the values, divided by their scales, being uniform on (-1, 1) or standard normal."""
    name = specification.removeprefix("Dense")
    cdf = scipy.stats.uniform(-1, 2).cdf if name in BOUNDS else scipy.stats.norm.cdf
    return scipy.stats.kstest(values / SCALES[name](K, D), cdf).pvalue


@pytest.mark.parametrize("specification", SCALES)
def test_distribution_by_the_connections_of_rows_and_columns(specification):
    layer = mg.LinearLayer(D, K, support=uneven_support())
    layer.set_weights(specification, np.random.default_rng(1))
    W = layer.W.to_dense()
    assert np.array_equal(W != 0, mask_of(layer.W.support))
    values, (outputs, inputs) = W[W != 0], counts(W != 0)
    if specification in BOUNDS:
        largest = np.abs(values) / BOUNDS[specification](outputs, inputs)
        assert 0.999 < largest.max() <= 1 + 1e-6
    assert standardized(specification, values, outputs, inputs) > 0.01
    assert standardized(specification, values, K, D) < 1e-6  # as if W were dense
    assert not layer.b.any()


@pytest.mark.parametrize("specification", DENSE)
def test_the_way_of_the_original_by_name(specification):
    S = uneven_support()
    values = sparse_weights(specification, S, np.random.default_rng(1))
    assert standardized(specification, values, K, D) > 0.01
    assert standardized(specification, values, *counts(mask_of(S))) < 1e-6
    assert len(np.unique(values)) == S.nnz


@pytest.mark.parametrize("specification", [*SCALES, *DENSE, "Uniform(-2, 1)", "Normal(1, 2)", "Zero"])
def test_a_full_support_has_the_weights_of_a_dense_matrix(specification):
    S = mg.Support.from_mask(np.ones((K, D), dtype=bool))
    expected = initial_weights(specification, K, D, np.random.default_rng(2))
    np.testing.assert_array_equal(sparse_weights(specification, S, np.random.default_rng(2)), expected.ravel())


@pytest.mark.parametrize("specification", ["He", "XavierNormalized", "DenseHe"])
def test_weights_of_chosen_elements_have_their_distributions(specification):
    """Few elements, such as newly grown ones, have the scales of the whole support."""
    S = uneven_support()
    chosen = np.array([0, 7, 3, S.nnz - 1, *range(500, 900)])
    scales = np.abs(sparse_weights(specification, S, _Ones()))
    np.testing.assert_array_equal(np.abs(sparse_weights(specification, S, _Ones(), chosen)), scales[chosen])
    assert sparse_weights(specification, S, elements=np.array([], dtype=int)).shape == (0,)


class _Ones(np.random.Generator):
    """A generator whose standard numbers are all 1, so that the scales are drawn."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, *arguments):
        return np.ones(*arguments)

    standard_normal = random


def test_numbers_do_not_depend_on_the_pieces_in_which_they_are_drawn(monkeypatch):
    S = uneven_support()
    whole = sparse_weights("He", S, np.random.default_rng(3))
    monkeypatch.setattr("matgrad.weight_initializers.CHUNK", 100)
    np.testing.assert_array_equal(sparse_weights("He", S, np.random.default_rng(3)), whole)


@pytest.mark.parametrize("density", [0.02, 0.1, 1.0])
@pytest.mark.parametrize(("layers", "weights"), [("Linear", "XavierNormal"), ("ReLU", "He"), ("ReLU", "HeUniform")])
def test_signals_keep_their_size_through_ten_sparse_layers(layers, weights, density):
    """Mean squares stay near 1; as if W were dense they shrink by the density in every layer."""
    n = 1000
    mg.manual_seed(4)
    X = np.random.default_rng(4).normal(size=(200, n)).astype(np.float32)

    def mean_square(weights):
        M = mg.create_model(";".join([layers] * 10), [n] * 11, weights=weights, densities=density)
        M.feedforward(X)
        Z = [layer.Z if layers == "ReLU" else layer.Y for layer in M.layers]
        return np.mean(Z[-1] ** 2) / np.mean(Z[0] ** 2)

    assert 0.5 < mean_square(weights) < 2
    assert mean_square(f"Dense{weights}") == pytest.approx(density**9, rel=0.8)


@pytest.mark.parametrize(
    ("specification", "make"),
    [
        ("XavierNormalized", lambda S: mg.LinearLayer(D, K, support=S)),
        ("XavierNormalized", lambda S: mg.SReLULayer(D, K, support=S)),
        ("XavierNormalized", lambda S: mg.create_model("ReLU", [D, K], densities=0.05).layers[0]),
        ("HeUniform", lambda S: mg.create_model("ReLU", [D, K], densities=0.05, weights="HeUniform").layers[0]),
    ],
)
def test_new_sparse_layers_have_weights_for_their_support(specification, make):
    mg.manual_seed(5)
    layer = make(some_support(K, D, 0.05))
    values, (outputs, inputs) = layer.W.values[0], counts(mask_of(layer.W.support))
    assert standardized(specification, values, outputs, inputs) > 0.01
    assert np.abs(values).max() > 2 * BOUNDS[specification](K, D)


def test_a_new_support_keeps_the_weights():
    mg.manual_seed(6)
    M = mg.create_model("ReLU;Linear", [D, K, 10])
    before = [layer.W.copy() for layer in M.layers]
    M.set_densities(0.1)
    for layer, W in zip(M.layers, before, strict=True):
        np.testing.assert_array_equal(layer.W.to_dense(), W * mask_of(layer.W.support))


def test_memory_is_that_of_the_elements():
    """16 bytes per element, and pieces, where a dense W would have 8 TB."""
    n, nnz = 2**20, 2**22
    S = mg.Support.random(n, n, nnz, np.random.default_rng(0))
    assert len(S.column_starts) == n + 1  # the index by columns is made when it is first needed
    tracemalloc.start()
    values = sparse_weights("XavierNormalized", S, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.shape == (nnz,)
    assert peak < 16 * nnz + 16 * n + 64 * supports.CHUNK
