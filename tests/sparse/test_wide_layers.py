"""Very wide sparse layers: the memory that is asked for, batches for evaluation, and supports from numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import matgrad as mg
from matgrad.callbacks import Statistics
from matgrad.datasets import DataLoader
from matgrad.distributed.group import Alone
from matgrad.evaluation import measures
from matgrad.evaluation.measures import evaluation_batch
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model, model_bytes


def test_each_layer_asks_for_memory_by_its_own_density(monkeypatch):
    """A dense output layer does not make the others dense, which would be 800 MB."""
    monkeypatch.setenv("MATGRAD_MEMORY_LIMIT", "50M")
    sizes, densities = [784, 10_000, 10_000, 10], [0.01, 0.001, 1]
    M = create_model("ReLU;ReLU;Linear", sizes, densities=densities)
    assert [layer.density for layer in M.layers] == pytest.approx(densities, rel=1e-3)
    with pytest.raises(ValueError, match="asks for"):
        create_model("ReLU;ReLU;Linear", sizes, densities=[0.01, 1, 1])


def test_brain_scale_fits_the_machine():
    """50 million hidden neurons with ten inputs each: 16 bytes per weight, which is 8 GB, and momentum."""
    n, L = 5_000_000, 10
    wanted = model_bytes(["ReLU"] * L + ["Linear"], [784, *[n] * L, 10], [10 / 784, *[10 / n] * (L - 1), 1])
    assert 16 * 10 * n * L < wanted < 14e9


@pytest.mark.parametrize(
    ("width", "expected"), [(10, 1000), (50_000, 1000), (1_000_000, 67), (5_000_000, 13), (10**9, 1)]
)
def test_wide_models_are_evaluated_in_smaller_batches(width: int, expected: int):
    layer = SimpleNamespace(input_size=width, output_size=width, parts=tuple)
    M: Any = SimpleNamespace(device=None, layers=[layer] * 2, walk=lambda: [("1", layer), ("2", layer)])
    assert evaluation_batch(M) == expected


def test_statistics_and_predictions_do_not_depend_on_the_size_of_these_batches(monkeypatch):
    mg.manual_seed(0)
    M = create_model("ReLU;Linear", [20, 50, 3], densities="0.2;1").to(dtype="float64")
    X, t = np.random.default_rng(0).normal(size=(40, 20)), np.arange(40) % 3
    sizes: list[int] = []

    def measured() -> tuple[np.ndarray, dict[str, float]]:
        run: Any = SimpleNamespace(M=M, loss=mg.SoftmaxCrossEntropyLoss(), compiled=True, group=Alone())
        return M.predict(X), Statistics({"": DataLoader(X, t, 8, classes=3)}).measured(run)

    (Y, values), original = measured(), DataLoader.in_order
    monkeypatch.setattr(measures, "EVALUATION_BYTES", 7 * 8 * 70)
    monkeypatch.setattr(DataLoader, "in_order", lambda self, size: (sizes.append(size), original(self, size))[1])
    Y_of_parts, values_of_parts = measured()
    assert sizes == [7]
    np.testing.assert_allclose(Y_of_parts, Y, rtol=1e-12)
    assert values_of_parts == pytest.approx(values, rel=1e-12)


# -- supports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (7, 300), (300, 7), (40, 40)], ids=str)
@pytest.mark.parametrize("density", [0.0, 0.01, 0.3, 1.0])
def test_both_indices_agree_with_scipy(shape: tuple[int, int], density: float):
    A = scipy.sparse.random_array(shape, density=density, rng=np.random.default_rng(1)).tocsr()
    A.sort_indices()
    S, transposed = Support.from_scipy(A), A.T.tocsr()
    transposed.sort_indices()
    expected = {
        "starts": A.indptr,
        "columns": A.indices,
        "column_starts": transposed.indptr,
        "rows": transposed.indices,
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(getattr(S, name), array, err_msg=name)
    np.testing.assert_array_equal(S.columns[S.positions], np.repeat(np.arange(shape[1]), np.diff(S.column_starts)))
    np.testing.assert_array_equal(S.row_indices()[S.positions], S.rows)


@pytest.mark.parametrize("flat", [[3, 1], [1, 1], [-1, 2], [4, 12], [0, 11, 5]])
def test_numbers_that_do_not_increase_or_are_outside_are_refused(flat: list[int]):
    with pytest.raises(ValueError, match=r"(starts|columns): "):
        Support.from_flat((3, 4), np.array(flat))
