"""Names from data, files and modules cannot command a terminal, turn text around, fake a line or become a formula."""

from __future__ import annotations

import csv
import io
import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from cli_support import run
from matgrad import datasets
from matgrad.foundation.writing import as_html, csv_cell, visible

FAKE = "test accuracy 1.000"
EVIL = {
    "escape": "\x1b[2J\x1b]0title\x07",
    "C1": "\x9b31m",
    "bidirectional": "\u202egnp.exe\u2066",
    "invisible": "a\u200b\u2028\u00ad",
    "line": f"a\n{FAKE}",
    "return": "a\rb",
    "formula": "=1+cmd|' /C calc'!A0",
    "markup": "<script>alert(1)</script>",
}
FAST = ("escape", "bidirectional", "line", "formula")
cases = [pytest.param(x, id=kind, marks=[] if kind in FAST else pytest.mark.slow) for kind, x in EVIL.items()]
evil = pytest.mark.parametrize("name", cases)


def check(text: str, where: str) -> None:
    """The text has nothing that is not seen, and no line that a name has faked."""
    hidden = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not hidden, f"{where}: {hidden} in {text!r}"
    assert f"\n{FAKE}" not in text, f"{where}: {text!r}"


def test_what_is_not_seen_is_escaped():
    assert visible("Łódź ∇W 名前 🙂") == "Łódź ∇W 名前 🙂"
    assert visible("\x1b[2J\u202e\udc80\n") == r"\x1b[2J\u202e\udc80\n"
    assert visible("a\nb\tc", kept="\n") == "a\nb\\tc"
    assert as_html("<b>\u202e&") == r"&lt;b&gt;\u202e&amp;"


@pytest.mark.parametrize(("text", "expected"), [
    ("=1+1", "'=1+1"), ("+cmd|x", "'+cmd|x"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"), ("\t=1", r"'\t=1"),
    (" =1", "' =1"), ("-1", "-1"), ("+2.5e-3", "+2.5e-3"), ("a=1", "a=1"), ("", ""), ("x\ny", r"x\ny"),
])  # fmt: skip
def test_a_spreadsheet_computes_no_name(text: str, expected: str):
    assert csv_cell(text) == expected


@pytest.fixture
def table(name: str, tmp_path) -> Path:
    """A table with such names of a column, a category, a class and the target."""
    path, rng = tmp_path / "data.csv", np.random.default_rng(0)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([f"x{name}", f"c{name}", name])
    writer.writerows([rng.random(), f"{name}{i % 3}", name if i % 2 else "other"] for i in range(40))
    writer.writerow([0.5, "plain", "other"])  # a line that ends in the last row would be a quote that is not closed
    path.write_text(buffer.getvalue(), newline="")
    return path


@evil
def test_names_in_a_table(name: str, table: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ("train", "--table", table, "--features", "categorical=auto", "--layers", "Linear", "--epochs", 1)
    written = ("--save-weights", "m.npz", "--output", "run", "--log", "log.csv")
    for command in (
        (*train, *written),
        ("evaluate", "m.npz", "--table", table),
        ("predict", "m.npz", "p.csv", "--table", table),
        ("inspect", "m.npz"),
        ("explain", "m.npz", "--table", table, "--html", "e.html"),
        ("runs", "."),
    ):
        result = run(*command)
        assert result.exit_code == 0, result.output
        check(result.output.replace(f"\n{FAKE}\n", "") if command[0] == "train" else result.output, command[0])
    for file in ("p.csv", "log.csv", "e.html"):
        check(Path(file).read_text(), file)
    cells = [cell for row in csv.reader(io.StringIO(Path("p.csv").read_text())) for cell in row]
    assert csv_cell(name) in cells
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]
    assert name in mg.load("m.npz").information["class_names"], "the name itself is kept"


@evil
def test_names_in_errors_about_a_table(name: str, table: Path, tmp_path):
    for command in (
        ("train", "--table", table, "--target", f"no{name}"),
        ("train", "--table", table, "--features", f"drop=no{name}"),
        ("train", "--table", table, "--task", "regression"),
        ("train", "--table", f"{table}{name}"),
        ("train", "--layers", f"Linear{name}"),
        ("train", "--plugin", f"{name}.py"),
        ("inspect", f"{table}{name}"),
        ("train", f"--{name}"),
    ):
        result = run(*command)
        assert result.exit_code == 2
        check(result.output, str(command))
    with pytest.raises(ValueError, match="no column") as caught:
        datasets.table(table, target="other")
    check(str(caught.value), "table")


@evil
def test_names_in_files_and_modules(name: str, tmp_path):
    import torch

    keys, record = tmp_path / "keys.npz", tmp_path / "record.jsonl"
    np.savez(keys, **{"Xtrain": np.ones((4, 2)), name.replace("/", ""): np.ones(3)})
    record.write_text(json.dumps({"epoch": 1, f"loss{name}": 0.1, name: name}) + "\n")
    module = torch.nn.Sequential(OrderedDict([(name.replace(".", ""), torch.nn.Softplus(beta=2, threshold=1))]))
    for read in (
        lambda: datasets.npz(keys),
        lambda: mg.load(keys),
        lambda: mg.load(tmp_path / f"no{name}"),
        lambda: mg.load_weights(mg.create_model("Linear", [2, 2]), keys),
        lambda: mg.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 2), module)),
        lambda: mg.create_model("Linear", [2, 2]).to("torch", device=name),
        lambda: mg.create_model(name, [2, 2]),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            read()
        check(str(caught.value), "error")
    for command in (("inspect", keys), ("evaluate", keys), ("runs", record), ("plot", record)):
        check(run(*command, *(("--output", tmp_path / "x.svg") if command[0] == "plot" else ())).output, command[0])
