"""Starting points: the largest scores and weights, against sorting by plain Python; supports and pruned models."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import matgrad as mg
from matgrad.sparse.rules import largest, largest_weights
from sparse_support import BACKENDS, mask_of, some_support
from support import Framework, to_numpy

SHAPES = [(1, 1), (1, 9), (9, 1), (3, 4), (5, 7)]


def chosen(scores: list[np.ndarray], count: int) -> list[set[tuple[int, int]]]:
    """The positions of the largest scores: the best of each matrix, then those of the rest; the last of equal ones."""
    ranked = sorted(((A[i, j], m, i, j) for m, A in enumerate(scores) for i, j in np.ndindex(*A.shape)), reverse=True)
    first = [next(x for x in ranked if x[1] == m) for m in range(len(scores))]
    rest = [x for x in ranked if x not in first][: count - len(first)]
    return [{(i, j) for _, n, i, j in first + rest if n == m} for m in range(len(scores))]


def positions(S: mg.Support) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in zip(S.row_indices(), S.columns, strict=True)}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_largest_scores_are_those_of_sorting(data):
    shapes = data.draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    levels, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    scores = [rng.integers(0, levels, shape) * (rng.random() < 0.8) / 2.0 for shape in shapes]  # with many ties
    count = data.draw(st.integers(len(scores), sum(A.size for A in scores)))
    supports = largest(scores, count)
    assert [positions(S) for S in supports] == chosen(scores, count)
    assert sum(S.nnz for S in supports) == count
    assert [S.shape for S in supports] == shapes


@pytest.mark.parametrize("name", BACKENDS)
def test_the_largest_weights_of_dense_and_sparse_matrices(name):
    rng = np.random.default_rng(0)
    S = some_support(6, 8, 0.4)
    A, B = rng.normal(size=(5, 6)), rng.normal(size=(1, S.nnz))
    convert = Framework(name).backend.from_numpy
    supports = largest_weights([convert(A, None), mg.SparseMatrix(S, convert(B, None))], 20)
    dense = mg.SparseMatrix(S, B).to_dense()
    assert [positions(S) for S in supports] == chosen([np.abs(A), np.where(mask_of(S), np.abs(dense), -1)], 20)


def test_infinite_scores_and_empty_looking_layers():
    scores = [np.array([[np.inf, np.inf, np.inf]]), np.zeros((2, 2))]
    assert [positions(S) for S in largest(scores, 2)] == [{(0, 2)}, {(1, 1)}]


@pytest.mark.parametrize("count", [1, 14])
def test_impossible_counts_and_scores_are_refused(count):
    with pytest.raises(ValueError, match=f"expected a number from 2, one per matrix, to 13, found {count}"):
        largest([np.ones((3, 3)), np.ones((1, 4))], count)
    with pytest.raises(ValueError, match="scores: found nan"):
        largest([np.array([[1.0, np.nan]])], 1)


# -- models ------------------------------------------------------------------------------------

SIZES = (5, 8, 6, 3)
SHAPES_OF_LAYERS = [(8, 5), (6, 8), (3, 6)]
ENGINES = (*BACKENDS, "native")


def trained(engine: str = "numpy", optimizer: str = "Adam", densities: object = 1) -> mg.MultilayerPerceptron:
    """A model whose optimizer has a state."""
    mg.manual_seed(1)
    M = mg.create_model("ReLU;SReLU;Linear", SIZES, optimizers=optimizer, densities=densities).to(engine)
    rng = np.random.default_rng(1)
    M.fit(rng.normal(size=(20, 5)).astype(np.float32), np.arange(20) % 3, epochs=2, batch_size=5, compiled=False)
    return M


def dense_state(M: mg.MultilayerPerceptron) -> list[dict[str, np.ndarray]]:
    """The weights of every layer, and what its optimizer keeps for each of them, as dense matrices."""
    found = []
    for k, layer in enumerate(M.layers, start=1):
        state, shape = M.state(), (layer.output_size, layer.input_size)
        keys = [key for key in state if key.startswith(f"{k}.W") and not key.endswith("support")]
        arrays = {key: to_numpy(state[key]) for key in keys if state[key].shape}
        if layer.is_sparse:
            arrays = {key: to_numpy(mg.SparseMatrix(layer.W.support, A).to_dense()) for key, A in arrays.items()}
        assert all(A.shape == shape for A in arrays.values())
        found.append(arrays)
    return found


def assert_restricted(M, before, masks) -> None:
    """The stored positions are those of the masks, and weights and optimizers there are what they were."""
    for layer, after, old, mask in zip(M.layers, dense_state(M), before, masks, strict=True):
        assert layer.nnz == mask.sum()
        assert layer.is_sparse == (mask.sum() < mask.size)
        assert after.keys() == old.keys()
        for key in after:
            np.testing.assert_array_equal(after[key], np.where(mask, old[key], 0), err_msg=key)


def largest_mask(A: np.ndarray, count: int) -> np.ndarray:
    """The count elements of A with the largest magnitudes."""
    mask = np.zeros(A.size, dtype=bool)
    mask[np.argsort(np.abs(A), axis=None, kind="stable")[A.size - count :]] = True
    return mask.reshape(A.shape)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", ["GradientDescent", "Momentum(0.9)", "Adam"])
def test_pruning_layers_to_densities(engine, optimizer):
    M = trained(engine, optimizer)
    before = dense_state(M)
    M.prune([0.25, 0.1, 1])
    masks = [largest_mask(old[f"{k}.W"], n) for k, (old, n) in enumerate(zip(before, (10, 5, 18), strict=True), 1)]
    assert_restricted(M, before, masks)
    M.fit(np.ones((4, 5), np.float32), [0, 1, 2, 0], epochs=1, compiled=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_pruning_by_one_threshold(engine):
    M = trained(engine)
    before = dense_state(M)
    M.prune(overall=0.2)
    everything = np.concatenate([np.abs(old[f"{k}.W"]).ravel() for k, old in enumerate(before, start=1)])
    threshold = np.sort(everything)[-round(0.2 * everything.size)]
    assert_restricted(M, before, [np.abs(old[f"{k}.W"]) >= threshold for k, old in enumerate(before, start=1)])
    assert sum(layer.nnz for layer in M.layers) == round(0.2 * 106)


def test_pruning_a_sparse_model_further():
    M = trained(densities="0.5;0.5;1")
    before, stored = dense_state(M), [mask_of(layer.W.support) for layer in M.layers[:2]]
    M.prune("0.25;0.5;0.5")
    masks = [largest_mask(np.where(stored[0], before[0]["1.W"], 0), 10), stored[1], largest_mask(before[2]["3.W"], 9)]
    assert_restricted(M, before, masks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "prune: expected either densities or an overall density"),
        ({"densities": 0.1, "overall": 0.1}, "prune: expected either densities or an overall density"),
        ({"densities": "0.1;0.1"}, "expected 1 or 3 densities for 3 linear layers, found 2"),
        (
            {"densities": "0.4;0.5;1"},
            "linear layer 2: density: 0.5 of the 48 weights are 24; .* at most the 19",
        ),
        ({"densities": "0.4;0.4;0.01"}, "linear layer 3: density: 0.01 of the 18 weights are 0; expected at least one"),
        ({"overall": 0.9}, "overall density: 0.9 of the 106 weights are 95; .* at most the 53 that are stored"),
        ({"overall": 0.02}, "overall density: 0.02 of the 106 weights are 2; expected at least one per layer"),
        ({"overall": 0}, r"overall density: expected a number in \(0, 1\], found 0"),
    ],
)
def test_pruning_that_cannot_be_is_refused_and_changes_nothing(arguments, message):
    M = trained(densities="0.4;0.4;1")
    before = dense_state(M)
    with pytest.raises(ValueError, match=message):
        M.prune(**arguments)
    for old, new in zip(before, dense_state(M), strict=True):
        np.testing.assert_array_equal(list(old.values()), list(new.values()))


MASKS = [np.random.default_rng(2).random(shape) < 0.4 for shape in SHAPES_OF_LAYERS]
KINDS = {
    "mask": lambda mask: mask,
    "Support": mg.Support.from_mask,
    "csr": scipy.sparse.csr_array,
    "coo": lambda mask: scipy.sparse.coo_matrix(mask.astype(float)),
    "torch": lambda mask: Framework("torch").backend.from_numpy(mask, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_supports_of_every_kind(kind):
    first, _, last = (KINDS[kind](mask) for mask in MASKS)
    M = trained()
    before = dense_state(M)
    M.set_supports([first, None, last])
    assert_restricted(M, before, [MASKS[0], np.ones((6, 8), dtype=bool), MASKS[2]])

    M = mg.create_model("ReLU;SReLU;Linear", SIZES, supports=[first, None, last])
    assert [layer.is_sparse for layer in M.layers] == [True, False, True]
    np.testing.assert_array_equal(mask_of(M.layers[0].W.support), MASKS[0])
    np.testing.assert_array_equal(mask_of(M.layers[2].W.support), MASKS[2])
    np.testing.assert_array_equal(mask_of(mg.LinearLayer(6, 3, support=last).W.support), MASKS[2])


def test_only_the_positions_of_a_scipy_matrix_count_also_of_stored_zeros():
    A = scipy.sparse.csr_array(([0.0, 7.0], [1, 2], [0, 1, 2, 2]), shape=(3, 6))
    M = mg.create_model("Linear", [6, 3], supports=[A], weights="Uniform(1, 2)")
    assert positions(M.layers[0].W.support) == {(0, 1), (1, 2)}
    assert (M.layers[0].W.values <= 2).all()


@pytest.mark.parametrize(
    ("supports", "message"),
    [
        (MASKS[:2], "expected 3 supports for 3 linear layers, found 2"),
        ([*MASKS, None], "expected 3 supports for 3 linear layers, found 4"),
        ([MASKS[0], MASKS[1].T, None], "layer 2: support: expected size 6 × 8 with elements, found Support"),
        ([None, None, np.zeros((3, 6), bool)], "expected .* element"),
        ([None, None, np.ones((3, 6))], "mask: expected a matrix of booleans, found float64"),
    ],
)
def test_bad_supports_are_refused_and_change_nothing(supports, message):
    M = trained()
    with pytest.raises(ValueError, match=message):
        M.set_supports(supports)
    assert not any(layer.is_sparse for layer in M.layers)
    with pytest.raises(ValueError, match=message):
        mg.create_model("ReLU;SReLU;Linear", SIZES, supports=supports)


def test_densities_and_supports_contradict_each_other():
    with pytest.raises(ValueError, match="densities and supports: expected one of them"):
        mg.create_model("Linear", [6, 3], supports=[MASKS[2]], densities=0.5)


def test_large_supports_need_no_dense_matrix():
    """Two layers whose dense weights would have 128 GiB."""
    n = 2**17
    supports = [mg.Support.random(n, n, 1000, np.random.default_rng(k)) for k in range(2)]
    M = mg.create_model("ReLU;Linear", [n, n, n], supports=supports)
    M.prune(overall=500 / (2 * n**2))
    assert sum(layer.nnz for layer in M.layers) == 500
