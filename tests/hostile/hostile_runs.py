"""Hostile records and logs of runs, and hostile svmlight files."""

from __future__ import annotations

import gzip
import json
from typing import Any

from hostile_readers import Case, record, svmlight


def recorded(*places: Any) -> bytes:
    """The good record with the last of the arguments at the place that the others name."""
    value = content = json.loads(record())
    *path, last, new = places
    for place in path:
        value = value[place]
    value[last] = new
    return json.dumps(content).encode()


RECORD: list[Case] = [
    ("as it is", record(), None),
    ("empty", b"", "run.json: "),
    ("a list", b"[]", "Expected `object`"),
    ("a configuration", b'{"epochs": 3}', "run.json: "),
    ("a name twice", b'{"seed": 1, "seed": 1}', "'seed' occurs twice"),
    ("NaN", b'{"seed": NaN}', "found NaN"),
    ("nested", b"[" * 100_000, "nested too deeply"),
    ("9 MB", lambda: b" " * (9 << 20), "bytes or more"),
    ("started as a number", recorded("started", 3), "$.started"),
    ("seconds as a string", recorded("seconds", "3"), "$.seconds"),
    ("seconds of 400 digits", recorded("seconds", 10**400), "run.json"),
    ("seconds of 1e308", recorded("seconds", 1e308), None),
    ("seed as a number with a point", recorded("seed", 0.5), "$.seed"),
    ("data as a string", recorded("data", "digits"), "$.data"),
    ("no name of the data", recorded("data", {}), "$.data"),
    ("model of numbers", recorded("model", {"layers": 3}), "$.model"),
    ("model is empty", recorded("model", {}), None),
    ("results of words", recorded("results", {"test_loss": "low"}), "$.results"),
    ("results are null", recorded("results", {"test_loss": None}), None),
    ("epochs as a table", recorded("epochs", {}), "$.epochs"),
    ("epochs as numbers", recorded("epochs", [1, 2]), "$.epochs"),
    ("no epochs", recorded("epochs", []), None),
    ("an epoch that goes back", recorded("epochs", 1, "epoch", 1), "expected an epoch after 1"),
    ("an epoch of 400 digits", recorded("epochs", 1, "epoch", 10**400), "expected an epoch after 1"),
    ("an epoch that is true", recorded("epochs", 1, "epoch", True), "expected an epoch after 1"),
    ("a loss of 400 digits", recorded("epochs", 1, "test_loss", 10**400), None),
    ("a loss that is a list", recorded("epochs", 1, "test_loss", [1]), None),
    ("an option that is a table", recorded("configuration", "layers", {"a": [1]}), None),
    ("what could command a terminal", recorded("data", "name", "\x1b]0;x\x07"), None),
]  # fmt: skip

LOG: list[Case] = [
    ("empty", b"", None),
    ("blank lines", b"\n" * 1_000_000, None),
    ("a byte order mark", b'\xef\xbb\xbf{"epoch": 1}\n', None),
    ("UTF-16", '{"epoch": 1}\n'.encode("utf-16"), "run.jsonl: "),
    ("a line that is cut off", b'{"epoch": 1}\n{"epo', "line 2: "),
    ("lists", b"[]\n", "line 1: "),
    ("nested", b"[" * 100_000, "line 1: lists or tables are nested too deeply"),
    ("a line of 9 MB", lambda: b"[" + b" " * (9 << 20), "line 1: JSON: found"),
    ("17 MB", lambda: b'{"epoch": 1}\n' * 1_400_000, "bytes or more"),
    ("600,000 values", lambda: _wide_lines(), "epochs: found"),
    ("no epoch", b'{"loss": 1}\n', "line 1: expected an epoch"),
]

CSV_LOG: list[Case] = [
    ("empty", b"", None),
    ("a header", b"epoch,loss\n", None),
    ("blank lines", b"epoch\n" + b"\n" * 1_000_000, None),
    ("zeros", bytes(1000), None),
    ("a field of 200 KB", b"epoch,loss\n1," + b"x" * 200_000, "line 2: field larger than field limit"),
    ("a quote that is not closed", b'epoch,loss\n1,"2\n', "line 2: unexpected end of data"),
    ("500,000 columns", lambda: b"1," * 500_000 + b"\n", "same name"),
    ("600,000 values", lambda: _wide_table(), "epochs: found"),
    ("no epoch", b"loss\n1\n", "line 2: expected an epoch"),
    ("infinity", b"epoch,loss\n1,inf\n2,nan\n", None),
    ("an epoch of infinity", b"epoch,loss\ninf,1\n", "line 2: expected an epoch"),
    ("other columns", b"epoch,loss\n1,2,3\n", "line 2: found 3 columns"),
]

SVMLIGHT: list[Case] = [
    ("empty", b"", "a.svm: "),
    ("zeros", bytes(1000), "a.svm: "),
    ("a comment", b"# hello\n", "a.svm: "),
    ("index 2^31", svmlight() + b"1 2147483648:1\n", "a.svm"),
    ("index 2^63", svmlight() + b"1 9223372036854775808:1\n", "a.svm"),
    ("index 2^30", svmlight() + b"1 1073741824:1\n", "asks for"),
    ("a negative index", svmlight() + b"1 -1:1\n", "a.svm"),
    ("indices that decrease", svmlight() + b"1 3:1 2:1\n", "a.svm"),
    ("no value", svmlight() + b"1 3:\n", "a.svm"),
    ("no target", svmlight() + b"1:1\n", "a.svm"),
    ("NaN", svmlight() + b"1 1:nan\n", "a.svm"),
    ("1e999", svmlight() + b"1 1:1e999\n", "a.svm"),
    ("a target of infinity", svmlight() + b"inf 1:1\n", "a.svm"),
    ("a word", svmlight() + b"yes 1:1\n", "a.svm"),
    ("a gzip bomb", lambda: gzip.compress(b"#\n" * (20 << 20), 1), "becomes more than"),
    ("queries", b"".join(b"%d qid:1 1:1\n" % (i % 2) for i in range(20)), None),
]


def _wide_lines() -> bytes:
    """Lines with many short values."""
    names = ", ".join(f'"{i}": 1' for i in range(100_000))
    return b"".join(b'{"epoch": %d, %s}\n' % (i, names.encode()) for i in range(1, 7))


def _wide_table() -> bytes:
    header = ",".join(map(str, range(100_000)))
    return f"epoch,{header}\n".encode() + b"".join(b"%d%s\n" % (i, b",1" * 100_000) for i in range(1, 7))
