"""A folder with one npz file an epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError, mini, preprocessed, save_npz


def write(folder: Path, *numbers: int) -> Path:
    for i in numbers:
        save_npz(mini(seed=i), folder / f"epoch{i}.npz")
    return folder


def test_every_epoch_has_its_file_and_they_are_repeated(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    data = preprocessed(str(write(tmp_path, *range(11))))

    assert len(data) == len(list(data)) == 11
    for i in (0, 1, 10, 11, 12, 25):
        assert data[i].sha256() == mini(seed=i % 11).sha256(), i
        assert data[i].name == f"epoch{i % 11}"


def test_fewer_classes_in_a_later_epoch_are_as_many_as_in_the_first(tmp_path: Path):
    write(tmp_path, 0, 1)
    second = mini(seed=1)
    np.savez(tmp_path / "epoch1.npz", Xtrain=second.Xtrain, Ttrain=0 * second.Ttrain, Xtest=second.Xtest,
             Ttest=0 * second.Ttest)  # fmt: skip
    assert preprocessed(tmp_path)[1].classes == 3


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((), "found no file epoch0.npz, expected epoch0.npz, epoch1.npz …"),
        ((1, 2), "found epoch2.npz, expected epoch0.npz"),
        ((0, 1, 3, 5), "found epoch5.npz, expected epoch2.npz"),
    ],
)
def test_gaps_are_refused(tmp_path: Path, numbers: tuple[int, ...], message: str):
    with pytest.raises(DataError, match=message):
        preprocessed(write(tmp_path, *numbers))


def test_other_spellings_are_refused(tmp_path: Path):
    write(tmp_path, 0)
    (tmp_path / "epoch01.npz").touch()
    with pytest.raises(DataError, match=r"found epoch01.npz, expected epoch1.npz"):
        preprocessed(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Xtrain": np.zeros((20, 5)), "Xtest": np.zeros((4, 5))}, "found 5 inputs and 3 classes, expected 8 inputs"),
        ({"Ttrain": np.full(20, 3)}, "found 8 inputs and 4 classes, expected 8 inputs and 3 classes as in epoch0.npz"),
        ({"Ttrain": np.zeros((20, 3)), "Ttest": np.zeros((4, 3))}, "found 8 inputs and 3 columns of numbers, expected"),
        ({"Xtrain": np.full((20, 8), np.nan)}, "epoch1.npz: Xtrain, row 0, column 0: found nan"),
    ],
)
def test_epochs_that_do_not_fit_are_refused(tmp_path: Path, change: dict, message: str):
    write(tmp_path, 0)
    other = mini(seed=1)
    arrays = {key: getattr(other, key) for key in ("Xtrain", "Ttrain", "Xtest", "Ttest")}
    np.savez(tmp_path / "epoch1.npz", **arrays | change)
    data = preprocessed(tmp_path)
    with pytest.raises(DataError, match=message):
        data[1]


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="nowhere: no such folder"):
        preprocessed(tmp_path / "nowhere")
