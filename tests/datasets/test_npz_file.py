"""npz files: read as NumPy writes them, written so that NumPy reads them, and refused where they are wrong."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from matgrad import datasets
from matgrad.datasets import DataError, mini, npz, preprocessed, save_npz

RNG = np.random.default_rng(0)
ARRAYS = {
    "Xtrain": RNG.normal(size=(6, 4)).astype(np.float32),
    "Ttrain": np.array([0, 1, 2, 2, 1, 0]),
    "Xtest": RNG.normal(size=(3, 4)).astype(np.float32),
    "Ttest": np.array([2, 0, 1]),
}
IDENTITY = np.eye(4)


def changed(key: str, index, value, dtype=None) -> dict:
    A = np.array(ARRAYS[key], dtype=dtype)
    A[index] = value
    return ARRAYS | {key: A}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path: Path, save):
    save(tmp_path / "some.npz", **ARRAYS)
    data = npz(str(tmp_path / "some.npz"))

    for key, A in ARRAYS.items():
        np.testing.assert_array_equal(getattr(data, key), A, err_msg=key)
    assert (data.name, data.classes) == ("some", 3)
    assert npz(tmp_path / "some.npz", classes=7).classes == 7


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_one_hot_rows_are_classes(tmp_path: Path, dtype: str):
    one_hot = {key: IDENTITY[ARRAYS[key]].astype(dtype) for key in ("Ttrain", "Ttest")}
    np.savez(tmp_path / "a.npz", **ARRAYS | one_hot)
    data = npz(tmp_path / "a.npz")
    assert (data.Ttrain.tolist(), data.Ttest.tolist()) == (ARRAYS["Ttrain"].tolist(), ARRAYS["Ttest"].tolist())
    assert data.classes == 4  # the columns, though no example has the last class


@pytest.mark.parametrize("shape", [-1, (-1, 1)])
@pytest.mark.parametrize("largest", [1, 2])
def test_integers_and_booleans_are_classes(tmp_path: Path, shape, largest: int):
    T = {key: np.minimum(ARRAYS[key], largest).reshape(shape) for key in ("Ttrain", "Ttest")}
    np.savez(tmp_path / "a.npz", **ARRAYS | {key: A.astype(bool) if largest == 1 else A for key, A in T.items()})
    data = npz(tmp_path / "a.npz")
    assert (data.classes, data.Ttrain.tolist()) == (largest + 1, T["Ttrain"].reshape(-1).tolist())
    assert data.Ttrain.dtype == np.int64


def test_what_is_saved_is_read_by_numpy_and_again_by_us(tmp_path: Path):
    data = datasets.digits().normalize("unit")
    path = tmp_path / "digits.data"
    path.write_bytes(b"older")
    save_npz(data, path)

    assert [p.name for p in tmp_path.iterdir()] == ["digits.data"]
    content = np.load(path, allow_pickle=False)
    assert sorted(content.files) == sorted(ARRAYS)
    for key in ARRAYS:
        expected = getattr(data, key)
        np.testing.assert_array_equal(content[key], expected)
        assert content[key].dtype == expected.dtype
    assert npz(path).sha256() == data.sha256()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.npz"
    path.write_bytes(b"older")

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="No space left on device"):
        save_npz(datasets.mini(), path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.npz", b"older")]
    with pytest.raises(FileNotFoundError, match=r"a\.npz"):
        save_npz(datasets.mini(), tmp_path / "nowhere" / "a.npz")


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_pickled_objects_are_refused_and_not_executed(tmp_path: Path):
    np.savez(tmp_path / "a.npz", **ARRAYS | {"Ttest": np.array([Touch(tmp_path / "trace")], dtype=object)})
    with pytest.raises(DataError, match=r"a.npz: Ttest: not an array of .*Object arrays cannot be loaded"):
        npz(tmp_path / "a.npz")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({k: v for k, v in ARRAYS.items() if k != "Ttest"}, "a.npz: no Ttest; expected Xtrain, Ttrain, Xtest, Ttest"),
        (ARRAYS | {"W1": IDENTITY}, "a.npz: unknown W1; expected Xtrain"),
        ({"W1": IDENTITY, "b1": IDENTITY}, "no Xtrain, Ttrain, Xtest, Ttest; unknown W1, b1; expected"),
        (changed("Xtrain", (2, 1), np.nan), "a.npz: Xtrain, row 2, column 1: found nan, expected a finite"),
        (ARRAYS | {"Ttrain": ARRAYS["Ttrain"][1:]}, "a.npz: Xtrain has 6 rows and .*Ttrain has 5"),
        (ARRAYS | {"Ttrain": np.array(list("abcabc"))}, "a.npz: Ttrain: found <U1, expected numbers"),
        (ARRAYS | {"Ttrain": IDENTITY[[0, 1, 2, 2, 1, 0]].astype(int) * 2}, "Ttrain: row 0 is not one-hot; expected"),
        (ARRAYS | {"Ttrain": np.zeros((0, 3), int)}, "a.npz: Ttrain: found no rows"),
        (
            ARRAYS | {"Ttrain": IDENTITY[:2, :2][[0, 1, 0, 1, 0, 1]], "Ttest": ARRAYS["Ttest"]},
            "a.npz: Ttest: label 2 in row 0: expected a class from 0 to 1",
        ),
        (
            ARRAYS | {"Ttrain": IDENTITY[:3, :3][ARRAYS["Ttrain"]], "Ttest": IDENTITY[:2, :2][[0, 1, 0]]},
            "a.npz: Ttrain has 3 one-hot columns and Ttest has 2: expected equal numbers",
        ),
    ],
)  # fmt: skip
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict, message: str):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        npz(tmp_path / "a.npz")


def saved() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **ARRAYS)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.npz: not an npz file"),
        (saved()[:-100], "a.npz: not an npz file, or a damaged one"),
        (saved()[:200] + b"\xff" * 30 + saved()[230:], "a.npz: .*or a damaged one"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        npz(tmp_path / "a.npz")


# -- one file per epoch ------------------------------------------------------------------------


def write_epochs(folder: Path, *numbers: int) -> Path:
    for i in numbers:
        save_npz(mini(seed=i), folder / f"epoch{i}.npz")
    return folder


def test_every_epoch_has_its_file_and_they_are_repeated(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    data = preprocessed(str(write_epochs(tmp_path, *range(11))))

    assert len(data) == len(list(data)) == 11
    for i in (0, 1, 10, 11, 12, 25):
        assert data[i].sha256() == mini(seed=i % 11).sha256(), i
        assert data[i].name == f"epoch{i % 11}"


def test_fewer_classes_in_a_later_epoch_are_as_many_as_in_the_first(tmp_path: Path):
    write_epochs(tmp_path, 0, 1)
    second = mini(seed=1)
    np.savez(tmp_path / "epoch1.npz", Xtrain=second.Xtrain, Ttrain=0 * second.Ttrain, Xtest=second.Xtest,
             Ttest=0 * second.Ttest)  # fmt: skip
    assert preprocessed(tmp_path)[1].classes == 3


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((), "no file epoch0.npz; expected epoch0.npz, epoch1.npz …"),
        ((1, 2), "no file epoch0.npz"),
        ((0, 1, 3, 5), "no file epoch2.npz"),
    ],
)
def test_gaps_are_refused(tmp_path: Path, numbers: tuple[int, ...], message: str):
    with pytest.raises(DataError, match=message):
        preprocessed(write_epochs(tmp_path, *numbers))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"Xtrain": np.zeros((20, 5)), "Xtest": np.zeros((4, 5))},
            "found 5 inputs, 3 outputs and 3 classes, expected 8 inputs",
        ),
        ({"Ttrain": np.full(20, 3)}, "epoch1.npz: Ttrain: label 3 in row 0: expected a class from 0 to 2"),
        ({"Ttrain": np.zeros((20, 3)), "Ttest": np.zeros((4, 3))}, "found a matrix of numbers, expected 3 classes"),
        ({"Xtrain": np.full((20, 8), np.nan)}, "epoch1.npz: Xtrain, row 0, column 0: found nan"),
    ],
)
def test_epochs_that_do_not_fit_are_refused(tmp_path: Path, change: dict, message: str):
    write_epochs(tmp_path, 0)
    other = mini(seed=1)
    arrays = {key: getattr(other, key) for key in ("Xtrain", "Ttrain", "Xtest", "Ttest")}
    np.savez(tmp_path / "epoch1.npz", **arrays | change)
    data = preprocessed(tmp_path)
    with pytest.raises(DataError, match=message):
        data[1]
