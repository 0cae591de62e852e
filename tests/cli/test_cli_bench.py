"""`matgrad bench`: the tables, JSON, Markdown and plots of a quick run, redrawing, and bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli_support import run, start, succeed
from matgrad.bench.tools import registry
from support import PATIENCE

QUICK = ("bench", "paper", "--experiments", "mnist", "--steps", 3, "--rounds", 2, "--threads", 1)
TOOLS = ("pytorch", "matgrad-torch", "matgrad-numpy-eager")


@pytest.fixture(scope="module", autouse=True)
def no_real_data():
    """Data is generated, whatever the environment has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MATGRAD_DATA", raising=False)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Path, str]:
    """The folder and the output of a quick run on generated data."""
    folder = tmp_path_factory.mktemp("bench") / "out"
    return folder, succeed(*QUICK, "--tools", ",".join(TOOLS), "--output", folder, "--seed", 5)


@pytest.fixture
def record(measured):
    return json.loads((measured[0] / "bench.json").read_text())


def test_the_record_has_all_that_was_measured(record):
    assert (record["kind"], record["format"], record["missing"]) == ("paper", 1, {})
    assert record["machine"]["threads"] == 1
    assert {"processor", "cores", "memory_GB", "system", "blas"} <= set(record["machine"])
    assert {"python", "matgrad", "numpy", "torch"} <= set(record["versions"])
    assert record["setting"]["preprocessing"] == "pixels / 255"
    assert record["options"]["seed"] == 5
    (experiment,) = record["experiments"]
    assert experiment["sizes"] == [784, 1024, 512, 10]
    assert (experiment["steps"], experiment["is_whole_epoch"], experiment["failures"]) == (3, False, {})
    assert experiment["data"]["is_generated"]
    assert experiment["data"]["training_examples"] == 300


def test_every_tool_has_times_measures_ratios_and_the_same_parameters(record):
    rows = record["experiments"][0]["tools"]
    assert [row["tool"] for row in rows] == list(TOOLS)
    for row in rows:
        assert len(row["seconds"]) == 2
        assert row["best"] == min(row["seconds"]) <= row["median"]
        assert row["startup"]["prepare"] > 0
        assert set(row["startup"]["pools"].values()) == {1}
        assert row["measures"] == pytest.approx(rows[0]["measures"], abs=1e-4)
    for row in rows[1:]:
        values = [a / b for a, b in zip(row["seconds"], rows[0]["seconds"], strict=True)]
        assert row["ratios"]["reference"]["values"] == pytest.approx(values)
        assert row["ratios"]["own"]["to"] == row["difference"]["to"] == "pytorch"
        assert row["difference"]["relative"] < 0.1  # a ReLU may differ at 0


def test_the_tables(measured):
    folder, output = measured
    lines = output.splitlines()
    assert lines[0] == "GENERATED data of the shape of MNIST, 3 steps of batch 100, NOT A WHOLE EPOCH"
    assert lines[2].startswith("tool ")
    assert [line[:20].strip() for line in lines[3:6]] == ["PyTorch native", "matgrad PyTorch", "matgrad NumPy, eager"]
    assert re.search(
        r"0\.204 0\.940 0\.939 +\d\.\d{3} \(\d\.\d{3}\) +\d+\.\d\d \(\d+\.\d\d\) +1\.40 +pytorch", lines[4]
    )
    markdown = (folder / "table.md").read_text()
    assert "| PyTorch native |" in markdown
    assert "preprocessing pixels / 255" in markdown
    assert "no real data for MNIST" in markdown


def test_the_plots_are_pictures_and_redrawing_gives_the_same(measured, tmp_path):
    folder, _ = measured
    assert (folder / "plot.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert ElementTree.parse(folder / "plot.svg").getroot().tag.endswith("svg")
    output = succeed("bench", "plot", folder / "bench.json", "--output", tmp_path / "again")
    assert output.split() == [str(tmp_path / "again" / name) for name in ("plot.png", "plot.svg")]
    for name in ("plot.png", "plot.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["bench.json", "plot.png", "plot.svg", "table.md"]


def test_json_and_nothing_else():
    result = run(*QUICK, "--rounds", 1, "--tools", "matgrad-numpy", "--dtype", "float64", "--json")
    assert result.exit_code == 0, result.output
    assert not result.stderr
    (row,) = json.loads(result.stdout)["experiments"][0]["tools"]
    assert row["ratios"] == {"reference": None, "own": None}
    assert row["difference"] is None


def test_cost(tmp_path):
    options = ("--batch-sizes", "5,20", "--widths", "8", "--examples", 40, "--rounds", 1, "--threads", 1)
    output = succeed("bench", "cost", *options, "--tools", "matgrad-numpy", "--output", tmp_path / "out")

    assert re.search(r"µs per example against batch size \(width 1024\)\n\ntool +5 +20\nmatgrad NumPy +\d", output)
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    batch, width = record["curves"]
    assert [(point["value"], point["examples"]) for point in batch["points"]] == [(5, 40), (20, 100)]
    assert width["points"][0]["sizes"] == [784, 8, 8, 10]
    times = batch["points"][0]["tools"]["matgrad-numpy"]
    assert times["per_example"] == pytest.approx(times["median"] / 40)
    assert (tmp_path / "out" / "plot.svg").exists()
    succeed("bench", "plot", tmp_path / "out" / "bench.json")


def test_a_tool_that_is_not_installed_is_left_out_with_a_note(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    output = succeed(*QUICK, "--rounds", 1, "--tools", "jax,matgrad-numpy")
    assert "jax was left out: jax is not installed" in output
    result = run(*QUICK, "--tools", "jax")
    assert result.exit_code == 2
    assert "jax: jax is not installed" in result.stderr


def test_a_tool_that_fails_ends_with_status_1_and_the_others_are_shown(monkeypatch):
    for tools in (registry.TOOLS, registry.ALL_TOOLS):  # of which its process does not know
        monkeypatch.setitem(tools, "broken", registry.TOOLS["matgrad-numpy"])
    result = run(*QUICK, "--rounds", 1, "--tools", "broken,matgrad-numpy")
    assert result.exit_code == 1
    assert re.search(r"^broken (failed|ended).*KeyError: 'broken'", result.stdout, re.M)
    assert "matgrad NumPy " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("paper", "--tools", "torch"), "unknown tool 'torch'; known: pytorch, "),
        (("paper", "--experiments", "cifar"), "unknown experiment 'cifar'; known: mnist, cifar10"),
        (("paper", "--data", "nowhere"), "nowhere: no such folder"),
        (("paper", "--output", "a/b"), r"--output a/b: the folder .* does not exist"),
        (("paper", "--output", "file"), "--output file: expected a folder, found a file"),
        (("paper", "--steps", "1"), "--steps"),
        (("paper", "--rounds", "0"), "--rounds"),
        (("cost", "--widths", "12,x"), "'12,x' is not a list of positive whole numbers"),
        (("cost", "--batch-sizes", ""), "is not a list of positive whole numbers"),
        (("plot", "nothing.json"), "nothing.json: no such file"),
        (("plot", "file"), "file: Expecting value"),
        (("plot", "other.json"), "other.json: not a record of matgrad bench"),
        (("plot", "old.json"), "old.json: expected format 1, found 0"),
        (("plot", "damaged.json"), "damaged.json: the record is damaged .KeyError: 'experiments'"),
    ],
)
def test_bad_input(arguments, message: str, tmp_path):
    Path("file").write_text("hello")
    Path("other.json").write_text("[1]")
    Path("old.json").write_text('{"kind": "paper", "format": 0}')
    Path("damaged.json").write_text('{"kind": "paper", "format": 1}')
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run("bench", *arguments)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr)
    assert not result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_ctrl_c_ends_the_tools_and_leaves_nothing_behind(tmp_path):
    options = ("--rounds", 1000, "--tools", "matgrad-numpy", "--output", "out")
    process = start(*QUICK, *options, env=os.environ | {"TMPDIR": str(tmp_path)})
    try:
        while "round 1 of" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert not output
    assert errors.splitlines()[-1] == "interrupted"
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_nothing_is_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(*QUICK, "--output", "out")
    assert result.exit_code == 2
    assert "plots need matplotlib, which is not installed: pip install '.[plot]' in a clone of matgrad" in result.stderr
    assert not list(tmp_path.iterdir())
    succeed(*QUICK, "--rounds", 1, "--tools", "matgrad-numpy", "--output", "out", "--no-plot")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["bench.json", "table.md"]
