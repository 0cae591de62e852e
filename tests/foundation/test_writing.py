"""Files are written completely or not at all; what cannot be written is rescued."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from matgrad.foundation.writing import as_json, atomic_write, replaceable, write_json, write_or_rescue
from support import open_folder, unprivileged


def write(path: Path | str, content: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(content)


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_replaced_file_keeps_its_mode(tmp_path, mode):
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(mode)
    with atomic_write(file) as written:
        (temporary,) = set(tmp_path.iterdir()) - {file}
        assert stat.S_IMODE(temporary.stat().st_mode) == mode, "also while it is written"
        written.write(b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays(tmp_path, exists):
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file", tmp_path / "link"
    if exists:
        file.write_bytes(b"old")
    link.symlink_to(Path("there") / "file")
    write(link)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "there", file, link])


@pytest.mark.parametrize("name", ["x" * 255, "Größe · 模型", "a b"])
def test_any_name_will_do(tmp_path, name):
    write(tmp_path / name)
    write(tmp_path / name, b"newer")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"newer"]


def test_only_writable_files_are_replaced(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="expected a file, found a folder"):
        write(tmp_path / "x")
    with pytest.raises(OSError, match="expected a file, found a device"):
        write("/dev/null")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/absent/x'"):
        write(tmp_path / "absent" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    with open_folder() as folder, unprivileged():
        (folder / "y").touch(mode=0o444)
        with pytest.raises(PermissionError):
            replaceable(folder / "y")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    write(tmp_path / "file", b"old")

    def write_half() -> None:
        with atomic_write(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_what_cannot_be_written_is_rescued(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert write_or_rescue(tmp_path / "y.npz", write) is None
    (tmp_path / "x.npz").mkdir()
    message = write_or_rescue(tmp_path / "x.npz", write)
    (rescued,) = tmp_path.glob("matgrad-*/x.npz")
    assert message == f"{tmp_path / 'x.npz'}: cannot be written (expected a file, found a folder); it is in {rescued}"
    assert rescued.read_bytes() == b"new"


def test_names_that_are_not_unicode_come_back_from_json(tmp_path):
    value = {"file": os.fsdecode(b"a\xff.npz"), "ö": "∂"}
    write_json(tmp_path / "x.json", value)
    assert json.loads((tmp_path / "x.json").read_text()) == value
    assert as_json("∂") == '"\\u2202"', "as every terminal can show it"
