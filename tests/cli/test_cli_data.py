"""`matgrad data get`, from a server on loopback."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
import struct
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from cli_support import run, succeed
from matgrad.datasets import download
from matgrad.datasets.download import SOURCES, Source

PARTS = {"train": 40, "t10k": 20}


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments) -> None:
        pass


def idx(A: np.ndarray) -> bytes:
    """A as an IDX file of bytes, gzipped."""
    header = struct.pack(f">{1 + A.ndim}I", 0x800 + A.ndim, *A.shape)
    return gzip.compress(header + A.astype(np.uint8).tobytes())


@pytest.fixture
def mirror(tmp_path_factory, monkeypatch):
    """(address, folder) of a server that has MNIST files of 6×6 pixels, whose checksums are expected."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    for part, N in PARTS.items():
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(rng.integers(256, size=(N, 6, 6))))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(N) % 10))
    files = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name in ("mnist", "fashion-mnist"):
        monkeypatch.setitem(SOURCES, name, Source(("http://127.0.0.1:9/",), files))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", folder
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_what_is_fetched_can_be_trained_on_as_printed(folder, mirror, name):
    address, served = mirror
    result = run("data", "get", name, "--mirror", address)

    assert result.exit_code == 0, result.output
    assert {p.name: p.read_bytes() for p in (folder / name).iterdir()} == {
        p.name: p.read_bytes() for p in served.iterdir()
    }
    assert "100 %" in result.stderr
    command = re.search(r"matgrad (train .*)$", result.stdout.strip())[1].split()
    assert "40 training and 20 test examples, 36 features, 10 classes" in succeed(*command, "--epochs", 1)


def test_a_folder_can_be_chosen_and_quiet_shows_no_progress(folder, mirror):
    result = run("data", "get", "mnist", "deep/folder", "--mirror", mirror[0], "--quiet")

    assert result.exit_code == 0
    assert result.stderr == ""
    assert "deep/folder" in result.stdout
    assert len(list((folder / "deep" / "folder").iterdir())) == 4


def refused(*arguments: object, words: tuple[str, ...]) -> None:
    """The command ends with one line that has the words, exit status 2, and no folder."""
    result = run("data", "get", *arguments)
    assert result.exit_code == 2, repr(result.exception)
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert sum(line.startswith("Error: ") for line in result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr
    assert "is in" not in result.stdout


def test_a_wrong_checksum_is_refused(folder, mirror):
    (mirror[1] / "t10k-images-idx3-ubyte.gz").write_bytes(b"something else")
    refused("mnist", "--mirror", mirror[0], words=("t10k-images-idx3-ubyte.gz", "checksum"))
    assert not list(folder.rglob("t10k-images*")), "wrong files are deleted"


def test_a_failed_download_leaves_no_empty_folder(folder, mirror):
    refused("mnist", "--mirror", mirror[0] + "nothing/", words=("404",))
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("minst",), ("minst", "mnist")),
        (("mnist", "file", "--mirror", "http://127.0.0.1:9/"), ("file: found a file",)),
    ],
)
def test_bad_arguments_are_refused(folder, mirror, arguments, words):
    Path("file").touch()
    refused(*arguments, words=words)
    assert [path.name for path in folder.iterdir()] == ["file"]
