"""Starting points of sparse training on the command line: powers, supports from files, and pruned weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from cli_support import arrays, run, save_blobs, succeed

DATA = ("--load-dataset", "data.npz", "--batch-size", 10, "--eager")
MODEL = ("--layers", "ReLU;ReLU;Linear", "--layer-sizes", "4;20;10;3")
SHAPES = {"W1": (20, 4), "W2": (10, 20), "W3": (3, 10)}
TOTAL = 80 + 200 + 30


@pytest.fixture(autouse=True)
def files(folder) -> None:
    """Tiny data in data.npz, a dense model in dense.npz, masks in masks.npz."""
    save_blobs(folder / "data.npz")
    succeed("train", *DATA, *MODEL, "--epochs", 2, "--save-weights", "dense.npz")
    rng = np.random.default_rng(0)
    masks = {name: rng.random(shape) < 0.3 for name, shape in SHAPES.items()}
    np.savez(folder / "masks.npz", **masks | {"W3": np.ones((3, 10), dtype=bool)})


def dense_weights(file: str) -> list[np.ndarray]:
    """The weights of the linear layers in a file, by SciPy."""
    content, found = arrays(file), []
    for name, shape in SHAPES.items():
        W = content[name]
        if f"{name}.starts" in content:
            index = content[f"{name}.columns"], content[f"{name}.starts"]
            W = scipy.sparse.csr_array((W[0], *index), shape=shape).toarray()
        found.append(W)
    return found


def stored(file: str) -> list[int]:
    return [int(np.size(arrays(file)[name])) for name in SHAPES]


def refused(*arguments: object) -> str:
    """The last line of standard error of a command that is refused, without a traceback."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr.splitlines()[-1]


# -- Erdős–Rényi densities -----------------------------------------------------------------------


@pytest.mark.parametrize(("power", "expected"), [(0, [16, 40, 6]), (1, [22, 28, 12]), (2, [26, 16, 20])])
def test_the_power_of_an_overall_density(power, expected):
    """Shares n·((D+K)/(D·K))^power of 62 weights, computed by hand."""
    options = ("--densities", f"ER(0.2, power={power})", "--epochs", 0, "--save-weights", "m.npz")
    succeed("train", *DATA, *MODEL, *options)
    assert stored("m.npz") == expected


# -- supports from files -------------------------------------------------------------------------


def test_masks_in_a_file(folder):
    succeed("train", *DATA, *MODEL, "--supports", "masks.npz", "--epochs", 2, "--output", "out")
    masks = arrays("masks.npz")
    for W, mask in zip(dense_weights("out/model.npz"), masks.values(), strict=True):
        np.testing.assert_array_equal(W != 0, mask)
    assert "W3.starts" not in arrays("out/model.npz")
    again = ("train", "--config", "out/run.json", *DATA, "--output", "again")
    assert "had --supports 'masks.npz'; name it again" in run(*again).stderr
    succeed(*again, "--supports", "masks.npz")
    np.testing.assert_array_equal(dense_weights("again/model.npz")[0], dense_weights("out/model.npz")[0])


def test_matrices_in_a_file_and_those_of_a_model(folder):
    """Numbers count where they are not 0; biases are ignored; a model file, sparse or not, is such a file too."""
    matrices = {name: A * np.float32(2) for name, A in arrays("masks.npz").items()}
    np.savez(folder / "matrices.npz", **matrices, b1=np.zeros((1, 20)))
    expected = [int(np.count_nonzero(A)) for A in matrices.values()]
    for k, source in enumerate(("matrices.npz", "m0.npz", "m1.npz")):
        succeed("train", *DATA, *MODEL, "--supports", source, "--epochs", 0, "--save-weights", f"m{k}.npz")
        assert stored(f"m{k}.npz") == expected
    content = arrays("dense.npz")
    np.savez(folder / "zeros.npz", **content | {name: content[name] * (matrices[name] != 0) for name in SHAPES})
    succeed("train", *DATA, *MODEL, "--supports", "zeros.npz", "--epochs", 0, "--save-weights", "m.npz")
    assert stored("m.npz") == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"mask1": np.ones((20, 4))}, ("expected a model, or finite matrices W1, W2, …", "found mask1")),
        ({"W1": np.eye(20, 4), "W2": np.eye(10, 20)}, ("expected 3 supports for 3 linear layers, found 2",)),
        ({f"W{k}": np.eye(3) for k in (1, 2, 3)}, ("layer 1: support: expected size 20 × 4", "Support(3 × 3")),
        ({"W1": np.zeros((20, 4))}, ("layer 1: support: expected size 20 × 4 with elements",)),
        ({"W1": np.full((20, 4), np.nan)}, ("expected a model, or finite matrices W1, W2, …",)),
        ({"W1": np.array([[None]], dtype=object)}, ("W1", "not an array of numbers")),
    ],
)
def test_bad_files_of_supports_are_refused(folder, content, words):
    np.savez(folder / "bad.npz", **content)
    message = refused("train", *DATA, *MODEL, "--supports", "bad.npz")
    assert all(word in message for word in words), message


# -- weights from files --------------------------------------------------------------------------


def largest(W: np.ndarray, count: int) -> np.ndarray:
    threshold = np.sort(np.abs(W), axis=None)[-count]
    return np.where(np.abs(W) >= threshold, W, 0)


def test_dense_weights_are_pruned_to_densities(folder):
    go_on = ("train", *DATA, "--load-weights", "dense.npz", "--densities", "0.25;0.1;1")
    output = succeed(*go_on, "--epochs", 0, "--save-weights", "m.npz")
    assert "\npruned by magnitude: 70 of 310 weights stay\n" in output
    before = dense_weights("dense.npz")
    for W, A, count in zip(dense_weights("m.npz"), before, (20, 20, 30), strict=True):
        np.testing.assert_array_equal(W, largest(A, count))
    succeed(*go_on, "--epochs", 1, "--output", "out")
    repeat = ("train", "--config", "out/run.json", *DATA, "--load-weights", "dense.npz")
    succeed(*repeat, "--output", "again")
    assert stored("again/model.npz") == [20, 20, 30]
    np.testing.assert_array_equal(dense_weights("again/model.npz")[0], dense_weights("out/model.npz")[0])


def test_dense_weights_are_pruned_by_one_threshold():
    options = ("--load-weights", "dense.npz", "--densities", "ER(0.3)", "--epochs", 0, "--save-weights", "m.npz")
    assert "pruned by magnitude: 93 of 310 weights stay" in succeed("train", *DATA, *options)
    before = dense_weights("dense.npz")
    threshold = np.sort(np.concatenate([np.abs(W).ravel() for W in before]))[-93]
    for W, A in zip(dense_weights("m.npz"), before, strict=True):
        np.testing.assert_array_equal(W, np.where(np.abs(A) >= threshold, A, 0))


@pytest.mark.parametrize("densities", ["ER(0.3)", "0.25;0.1;1"])
@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_pruned_model_is_trained_further_as_it_is(densities, is_repeated):
    options = ("--densities", densities)
    succeed("train", *DATA, "--load-weights", "dense.npz", *options, "--epochs", 1, "--save-weights", "m.npz")
    again = ("--load-weights", "m.npz", *(options if is_repeated else ()), "--epochs", 1, "--save-weights", "n.npz")
    assert "pruned" not in succeed("train", *DATA, *again)
    for W, A in zip(dense_weights("n.npz"), dense_weights("m.npz"), strict=True):
        np.testing.assert_array_equal(W != 0, A != 0)


def test_a_model_with_erdos_renyi_densities_is_trained_further_as_it_is():
    options = ("--densities", "ER(0.13, power=0.5)", "--save-weights")
    succeed("train", *DATA, *MODEL, "--epochs", 1, *options, "m.npz")
    assert "pruned" not in succeed("train", *DATA, "--load-weights", "m.npz", "--epochs", 1, *options, "n.npz")
    assert stored("m.npz") == stored("n.npz")


@pytest.mark.parametrize("has_description", [True, False])
def test_zeros_of_a_file_become_absent(folder, has_description):
    """With its own supports: of a model, and of a file of the original library, which has only weights."""
    content, masks = arrays("dense.npz"), arrays("masks.npz")
    content |= {name: content[name] * masks[name] for name in SHAPES}
    content = content if has_description else {name: A for name, A in content.items() if name[0] in "Wb"}
    np.savez(folder / "zeros.npz", **content)
    options = ("--load-weights", "zeros.npz", "--supports", "zeros.npz", "--epochs", 0, "--save-weights", "m.npz")
    kept = sum(int(mask.sum()) for mask in masks.values())
    output = succeed("train", *DATA, *(() if has_description else MODEL), *options)
    assert f"pruned to the supports in zeros.npz: {kept} of 310 weights stay" in output
    assert stored("m.npz") == [int(mask.sum()) for mask in masks.values()]
    for W, name in zip(dense_weights("m.npz"), SHAPES, strict=True):
        np.testing.assert_array_equal(W, content[name])


@pytest.mark.parametrize("method", ["GMP(until=0.5)", "SNIP"])
def test_methods_that_start_dense_take_dense_weights(method):
    options = ("--load-weights", "dense.npz", "--sparse-training", method, "--densities", 0.1, "--epochs", 4)
    output = succeed("train", *DATA, *options, "--save-weights", "m.npz")
    assert "pruned by magnitude" not in output
    assert stored("m.npz") == [8, 20, 3]


@pytest.mark.parametrize("start", [MODEL, ("--load-weights", "dense.npz")], ids=["new", "loaded"])
def test_supports_contradict_densities_and_methods_that_start_dense(start):
    supports = ("train", *DATA, *start, "--supports", "masks.npz")
    assert "--densities and --supports: expected one of them" in refused(*supports, "--densities", 0.1)
    assert "--supports and --sparse-training GMP: it starts" in refused(*supports, "--sparse-training", "GMP")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--densities", "0.1;0.1"), ("--densities", "expected 1 or 3 densities for 3 linear layers, found 2")),
        (("--densities", "ER(0.001)"), ("--densities ER(0.001)", "0.001 of the 310 weights are 0", "one per layer")),
        (("--densities", "ER(0.1, power=2)"), ("ER(0.1, power=2) and --load-weights", "one threshold")),
        (("--supports", "data.npz"), ("data.npz", "found Xtrain")),
    ],
)
def test_pruning_that_cannot_be_is_refused(options, words):
    message = refused("train", *DATA, "--load-weights", "dense.npz", *options)
    assert all(word in message for word in words), message
