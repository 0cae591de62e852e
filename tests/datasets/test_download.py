"""Downloads from a server on loopback that also fails, stalls, truncates and lies."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError, download
from matgrad.datasets.download import SOURCES, Source, get
from support import DATA, PATIENCE

CONTENT = {name: np.random.default_rng(i).bytes(200_000 + i) for i, name in enumerate(["first.gz", "second.gz"])}
FIRST, SECOND = CONTENT.values()


class Handler(BaseHTTPRequestHandler):
    """Answers with what the server's behaviour for this request says."""

    server: Server

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.requests.append((self.path, self.headers.get("Range")))
        answer = self.server.behaviours.pop(0) if self.server.behaviours else proper
        answer(self, CONTENT.get(name))

    def start(self, status: int, length: int | None, **headers: str) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *arguments) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None]] = []
        self.behaviours: list[Callable] = []
        self.end = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/"

    def handle_error(self, request, client_address) -> None:
        """The client has closed the connection."""


def proper(handler: Handler, content: bytes | None) -> None:
    """Whole files, and the end of a file where it is asked for."""
    if content is None:
        handler.send_error(404)
        return
    match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
    first = int(match[1]) if match else 0
    if match and first >= len(content):
        handler.start(416, 0, Content_Range=f"bytes */{len(content)}")
    elif match:
        span = f"bytes {first}-{len(content) - 1}/{len(content)}"
        handler.start(206, len(content) - first, Content_Range=span)
        handler.wfile.write(content[first:])
    else:
        handler.start(200, len(content))
        handler.wfile.write(content)


def without_range(handler: Handler, content: bytes) -> None:
    handler.start(200, len(content))
    handler.wfile.write(content)


def without_length(handler: Handler, content: bytes) -> None:
    handler.start(200, None)
    handler.wfile.write(content)


def lying(handler: Handler, content: bytes) -> None:
    without_range(handler, bytes(len(content)))


def truncated(handler: Handler, content: bytes) -> None:
    handler.start(200, len(content))
    handler.wfile.write(content[:70_000])


def stalling(handler: Handler, content: bytes) -> None:
    truncated(handler, content)
    handler.wfile.flush()
    handler.server.end.wait(PATIENCE)


def wrong_range(handler: Handler, content: bytes) -> None:
    handler.start(206, 100, Content_Range=f"bytes 0-99/{len(content)}")
    handler.wfile.write(content[:100])


def garbage(handler: Handler, content: bytes) -> None:
    handler.wfile.write(b"hello\r\n\r\n")


def failing(code: int) -> Callable:
    return lambda handler, content: handler.send_error(code)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    files = {name: hashlib.md5(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setitem(SOURCES, "mnist", Source((), files))
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.end.set()
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(server: Server, folder: Path, *behaviours: Callable, **options) -> list[Path]:
    server.behaviours = list(behaviours)
    timeout = 1 if stalling in behaviours else PATIENCE
    return get("mnist", folder, **{"mirrors": [server.url], "timeout": timeout, **options})


def assert_complete(folder: Path) -> None:
    """The two files are there, right, and nothing else."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT


def ranges(server: Server) -> list[str | None]:
    return [span for path, span in server.requests if path.endswith("first.gz")]


def test_files_are_fetched_and_not_again(server: Server, tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    assert fetch(server, folder) == [folder / "first.gz", folder / "second.gz"]
    assert_complete(folder)
    assert server.requests == [("/data/first.gz", None), ("/data/second.gz", None)]

    fetch(server, folder)
    assert len(server.requests) == 2
    (folder / "second.gz").write_bytes(b"damaged")
    fetch(server, folder, mirrors=[server.url.rstrip("/")])
    assert_complete(folder)
    assert len(server.requests) == 3


def test_progress_is_told(server: Server, tmp_path: Path):
    told: list[tuple[int, int | None, str]] = []
    (tmp_path / "first.gz.part").write_bytes(FIRST[:150_000])
    fetch(server, tmp_path, progress=lambda *arguments: told.append(arguments))

    for name, start in (("first.gz", 150_000), ("second.gz", 0)):
        done, totals = zip(*[(d, t) for d, t, file in told if file == name], strict=True)
        assert set(totals) == {len(CONTENT[name])}
        assert list(done) == sorted(done)
        assert start < done[0]
        assert done[-1] == len(CONTENT[name])


@pytest.mark.parametrize(
    ("behaviours", "expected"),
    [
        ([truncated], [None, "bytes=70000-"]),
        ([stalling], [None, "bytes=70000-"]),
        ([truncated, without_range], [None, "bytes=70000-"]),
        ([truncated, wrong_range], [None, "bytes=70000-", None]),
        ([failing(500), failing(502), failing(429)], [None] * 4),
        ([without_length], [None]),
        ([garbage], [None, None]),
    ],
)
def test_what_can_be_repaired_is_repaired(server: Server, tmp_path: Path, behaviours: list, expected: list):
    fetch(server, tmp_path, *behaviours)
    assert_complete(tmp_path)
    assert ranges(server) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (FIRST[:1000], ["bytes=1000-"]),  # continued
        (FIRST, ["bytes=200000-", None]),  # complete: the server answers 416
        (FIRST + b"more", ["bytes=200004-", None]),  # too long: 416, and wrong
        (b"x" * 1000, ["bytes=1000-", None]),  # wrong from the start
    ],
)
def test_a_part_is_continued(server: Server, tmp_path: Path, part: bytes, expected: list):
    (tmp_path / "first.gz.part").write_bytes(part)
    fetch(server, tmp_path)
    assert_complete(tmp_path)
    assert ranges(server) == expected


@pytest.mark.parametrize(
    ("behaviours", "message", "part"),
    [
        (
            [failing(404)],
            "first.gz could not be fetched: http://127.*/first.gz: HTTP Error 404: Not Found$",
            None,
        ),
        ([lying], "wrong checksum: found MD5 [0-9a-f]{32}, expected [0-9a-f]{32}; what was received is deleted", None),
        ([truncated] * 3, "the connection ended after 70000 of 200000 bytes", 70_000),
        ([stalling] * 3, "timed out", 70_000),
        ([garbage] * 3, "hello", None),
    ],
)
def test_what_cannot_be_repaired_is_told(server: Server, tmp_path: Path, behaviours: list, message: str, part):
    with pytest.raises(DataError, match=message):
        fetch(server, tmp_path, *behaviours, retries=2)
    assert len(server.requests) == len(behaviours)
    assert {path.name for path in tmp_path.iterdir()} == (set() if part is None else {"first.gz.part"})
    if part is not None:
        assert (tmp_path / "first.gz.part").read_bytes() == FIRST[:part]
    fetch(server, tmp_path)  # a later run succeeds
    assert_complete(tmp_path)


def test_mirrors_are_tried_in_order(server: Server, tmp_path: Path):
    other = f"http://127.0.0.1:{server.server_port}/other"
    fetch(server, tmp_path, failing(404), lying, mirrors=[f"{server.url}old/", server.url, other])
    assert_complete(tmp_path)
    assert [path for path, _ in server.requests[:3]] == ["/data/old/first.gz", "/data/first.gz", "/other/first.gz"]

    with pytest.raises(
        DataError, match=r"first.gz could .*/data/first.gz: .*404.*; .*/other/first.gz: .*wrong checksum"
    ):
        fetch(server, tmp_path / "b", failing(404), lying, mirrors=[server.url, other])


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_the_checksums_of_mnist_are_those_of_the_real_files():
    assert {f.name for f in get("mnist", DATA / "mnist")} == set(SOURCES["mnist"].files)  # nothing to fetch
