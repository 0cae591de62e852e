"""Files are written completely or not at all, where a symbolic link points, and what killed writes leave is removed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from matgrad.foundation.files import as_json
from matgrad.foundation.writing import atomic_write, replaceable, write_json, write_or_rescue
from support import PATIENCE, open_folder, unprivileged

WRITER = """
import sys, time
from matgrad.foundation.writing import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(1000)
"""


def write(path: Path | str, content: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(content)


def writer(path: Path) -> subprocess.Popen:
    """A process that is in the middle of writing a file."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=PATIENCE)
    process.stdout.close()


# -- modes and links ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o777])
def test_a_replaced_file_keeps_its_mode(tmp_path, mode):
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(mode)
    write(file)
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_while_it_is_written_a_secret_file_is_secret(tmp_path):
    file = tmp_path / "file"
    file.touch(mode=0o600)
    with atomic_write(file):
        (temporary,) = set(tmp_path.iterdir()) - {file}
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path):
    file = tmp_path / "file"
    file.touch()
    os.chown(file, 65534, 65534)
    write(file)
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays(tmp_path, exists):
    """Also one to a file that does not exist yet."""
    (tmp_path / "there").mkdir()
    file, link, first = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "first"
    if exists:
        file.write_bytes(b"old")
    link.symlink_to(Path("there") / "file")
    first.symlink_to(link)
    write(first)
    assert link.is_symlink()
    assert first.is_symlink()
    assert file.read_bytes() == b"new"
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "there", file, link, first])


@pytest.mark.parametrize("length", [1, 245, 246, 251, 255])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path, length):
    write(tmp_path / ("x" * length))
    write(tmp_path / ("x" * length), b"newer")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"newer"]


@pytest.mark.parametrize("name", [b"a\xffb", "Größe · 模型".encode(), b" ", b"-", b"new\nline"])
def test_any_name_will_do(tmp_path, name):
    write(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))))
    assert os.listdir(os.fsencode(tmp_path)) == [name]


# -- what is not replaced ----------------------------------------------------------------------


def make_socket(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


SPECIAL = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": make_socket,
    "link to a device": lambda path: path.symlink_to("/dev/null"),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_only_files_are_replaced(tmp_path, kind):
    SPECIAL[kind](tmp_path / "x")
    before = (tmp_path / "x").lstat()
    with pytest.raises(OSError):  # noqa: PT011
        write(tmp_path / "x")
    after = (tmp_path / "x").lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert len(list(tmp_path.iterdir())) == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_missing_folder_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/absent/x'"):
        write(tmp_path / "absent" / "x")


def test_a_write_protected_file_is_not_replaced():
    with open_folder() as folder, unprivileged():
        file = folder / "x"
        file.touch()
        assert replaceable(file) == file
        file.chmod(0o444)
        with pytest.raises(PermissionError):
            write(file)
        assert os.listdir(folder) == ["x"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
def test_the_file_of_another_user_in_a_sticky_folder_is_not_replaced():
    with open_folder() as folder:
        (folder / "x").touch()
        (folder / "x").chmod(0o666)
        with unprivileged():
            assert replaceable(folder / "x") == folder / "x"
        folder.chmod(0o1777)
        with unprivileged(), pytest.raises(PermissionError, match="sticky"):
            write(folder / "x")


# -- leftovers ---------------------------------------------------------------------------------


def test_leftovers_of_killed_writes_are_removed_by_the_next(tmp_path):
    file = tmp_path / "file"
    for _ in range(2):
        kill(writer(file))
    assert len(list(tmp_path.iterdir())) == 1, "the second has removed what the first left"
    assert not file.exists()
    write(tmp_path / "other")
    assert len(list(tmp_path.iterdir())) == 2, "which is no business of other files"
    write(file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


def test_a_write_that_goes_on_is_left_alone(tmp_path):
    file = tmp_path / "file"
    process = writer(file)
    try:
        write(file)
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        kill(process)
    write(file)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        write(tmp_path / "file", "no bytes")
    assert not list(tmp_path.iterdir())


# -- what cannot be written is rescued ---------------------------------------------------------


def test_what_can_be_written_is(tmp_path):
    assert write_or_rescue(tmp_path / "x.npz", write) is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_first_in_the_same_folder(tmp_path):
    (tmp_path / "x.npz").mkdir()
    message = write_or_rescue(tmp_path / "x.npz", write)
    (rescued,) = set(tmp_path.iterdir()) - {tmp_path / "x.npz"}
    assert message.startswith(f"{tmp_path / 'x.npz'}: cannot be written (expected a file, found a folder); it is in ")
    assert message.endswith(str(rescued))
    assert rescued.suffix == ".npz"
    assert rescued.read_bytes() == b"new"


def test_then_in_the_working_directory_then_where_temporary_files_are(tmp_path, monkeypatch):
    places = [tmp_path / "gone", tmp_path / "here", tmp_path / "temporary"]
    for place in places[1:]:
        place.mkdir()
    monkeypatch.chdir(places[1])
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(places[2]))
    full: list[Path] = []

    def write_unless_full(path: Path) -> None:
        if path.parent in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path)

    assert f"(No such file or directory); it is in {places[1]}" in write_or_rescue(places[0] / "x", write_unless_full)
    full.append(places[1])
    assert f"it is in {places[2]}" in write_or_rescue(places[0] / "x", write_unless_full)
    full.append(places[2])
    message = write_or_rescue(places[0] / "x", write_unless_full)
    assert message.startswith(f"{places[0] / 'x'}: cannot be written (No such file or directory), nor in the folder, ")
    assert [len(list(place.iterdir())) for place in places[1:]] == [1, 1]


def test_a_working_directory_that_is_gone_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert f"it is in {tmp_path / 'x-rescued-'}" in write_or_rescue(Path("x"), write)


def test_a_long_name_is_rescued_under_a_short_one(tmp_path):
    path = tmp_path / ("ä" * 300 + ".npz")
    assert "it is in" in write_or_rescue(path, write)


# -- JSON --------------------------------------------------------------------------------------


def test_names_that_are_not_unicode_come_back_from_json(tmp_path):
    import json

    value = {"file": os.fsdecode(b"a\xff.npz"), "ö": "∂"}
    write_json(tmp_path / "x.json", value)
    assert json.loads((tmp_path / "x.json").read_text()) == value
    assert as_json("∂") == '"\\u2202"', "as every terminal can show it"
