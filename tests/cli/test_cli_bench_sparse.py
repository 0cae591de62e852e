"""`matgrad bench sparse` and `native`: tables, JSON and plots of quick runs, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli_support import run, succeed
from matgrad.bench.tools import standalone

SPARSE = ("bench", "sparse", "--sizes", "30,20,10,4", "--steps", 3, "--batch-sizes", 5, "--threads", 2)
NATIVE = ("bench", "native", "--experiments", "mnist", "--steps", 2, "--rounds", 1, "--threads", 1)
TOOLS = ["matgrad-native", "matgrad-native-1", "matgrad-native-dense", "pytorch-masked"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Path, str]:
    """The folder and the output of a quick run."""
    folder = tmp_path_factory.mktemp("bench") / "out"
    options = ("--densities", "0.2,0.5", "--rounds", 2, "--tools", ",".join(TOOLS), "--output", folder)
    return folder, succeed(*SPARSE, *options)


@pytest.fixture
def record(measured):
    return json.loads((measured[0] / "bench.json").read_text())


def test_the_record_has_points_for_densities_and_batch_sizes(record):
    assert (record["kind"], record["missing"], record["failures"]) == ("sparse", {}, {})
    assert record["setting"]["optimizer"] == "GradientDescent"
    assert (record["sizes"], record["steps"], record["batch_size"]) == ([30, 20, 10, 4], 3, 100)
    assert [(p["density"], p["nnz"], p["steps"]) for p in record["points"]] == [(0.2, 168, 3), (0.5, 419, 3)]
    assert [(p["density"], p["batch_size"], p["steps"]) for p in record["batches"]] == [(0.05, 5, 60)]
    assert set(record["fit"]) == {"step", "weight", "largest_error"}
    assert record["machine"]["threads"] == 2


def test_every_tool_has_times_ratios_memory_and_the_same_parameters(record):
    for point in (*record["points"], *record["batches"]):
        assert list(point["tools"]) == TOOLS
        for name, row in point["tools"].items():
            assert len(row["seconds"]) == 2
            assert row["per_example"] == pytest.approx(row["median"] / (point["steps"] * point["batch_size"]))
            assert list(row["ratios"]) == [other for other in TOOLS if other != name]
            assert row["memory"]["training"] is None or row["memory"]["training"] >= 0
            assert set(row["startup"]["pools"].values()) <= {1 if name == "matgrad-native-1" else 2}
        seconds = (point["tools"][name]["seconds"] for name in ("matgrad-native", "pytorch-masked"))
        ratio = point["tools"]["matgrad-native"]["ratios"]["pytorch-masked"]
        assert ratio["values"] == pytest.approx([a / b for a, b in zip(*seconds, strict=True)])
        for name in ("matgrad-native", "matgrad-native-1"):
            difference = point["tools"][name]["difference"]
            assert difference["to"] == "pytorch-masked"
            assert difference["relative"] < 1e-5
        assert point["tools"]["matgrad-native-dense"]["difference"] is None


def test_the_tables(measured):
    folder, output = measured
    assert output.startswith("seconds against density, 3 steps of batch 100, layers 30;20;10;4\n\ntool ")
    assert re.search(r"^matgrad C\+\+, dense +\d\.\d{3} +\d\.\d{3}$", output, re.M)
    assert re.search(
        r"^density  weights +÷ masked.*÷ CSR.*÷ dense.*÷ 1 thread.*\n0\.2 +168 +\d+\.\d{3} \(", output, re.M
    )
    assert "µs per example against batch size, density 0.05" in output
    assert re.search(r"a step of matgrad C\+\+ takes at best about -?\d+ µs \+ -?[\d.]+ ns per stored weight", output)
    assert "## Sparse training" in (folder / "table.md").read_text()


def test_the_plots_are_pictures_and_redrawing_gives_the_same(measured, tmp_path):
    folder, _ = measured
    assert ElementTree.parse(folder / "plot.svg").getroot().tag.endswith("svg")
    succeed("bench", "plot", folder / "bench.json", "--output", tmp_path / "again")
    for name in ("plot.png", "plot.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_one_tool_alone_as_json():
    options = ("--densities", "0.3", "--rounds", 1, "--tools", "matgrad-numpy", "--dtype", "float64", "--json")
    result = run(*SPARSE, *options)
    assert result.exit_code == 0, result.output
    assert not result.stderr
    record = json.loads(result.stdout)
    assert (record["fit"], record["break_even"]) == (None, None)
    assert record["points"][0]["tools"]["matgrad-numpy"]["difference"] is None


def test_native(tmp_path):
    tools = ("--tools", "matgrad-native,products-openblas,pytorch")
    output = succeed(*NATIVE, *tools, "--output", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    plain, momentum = record["experiments"]
    assert [e["title"] for e in (plain, momentum)] == ["MNIST, GradientDescent", "MNIST, Momentum(0.9)"]
    for experiment in (plain, momentum):
        torch, native, products = experiment["tools"]
        assert (torch["tool"], native["tool"], products["tool"]) == ("pytorch", "matgrad-native", "products-openblas")
        assert native["ratios"]["reference"]["to"] == native["difference"]["to"] == "pytorch"
        assert native["ratios"]["own"]["to"] == "products-openblas"
        assert native["difference"]["relative"] < 0.1  # a ReLU may differ at 0
        assert products["difference"] is None
    assert re.search(r"^matgrad C\+\+ .*products-openblas \d+\.\d\d \(", output, re.M)
    assert (tmp_path / "out" / "plot.png").exists()
    succeed("bench", "plot", tmp_path / "out" / "bench.json")


def test_without_a_compiler_the_program_of_its_own_is_left_out_with_a_note(monkeypatch):
    monkeypatch.setattr(standalone, "_compiler", lambda: None)
    options = ("--optimizers", "GradientDescent", "--tools", "matgrad-cpp,matgrad-native")
    output = succeed(*NATIVE, *options)
    assert re.search(r"matgrad-cpp was left out: there is no C\+\+ compiler", output)
    assert "matgrad C++, stand-alone" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sparse", "--densities", "0.1,2"), "'0.1,2' is not a list of numbers in .0, 1., separated by commas"),
        (("sparse", "--densities", "nan"), "'nan' is not a list of numbers"),
        (("sparse", "--densities", "x"), "'x' is not a list of numbers"),
        (("sparse", "--densities", ""), "is not a list of numbers"),
        (("sparse", "--tools", "pytorch"), "unknown tool 'pytorch'; known: matgrad-native, "),
        (("sparse", "--sizes", "10"), "--sizes: expected the number of features and those of the layers"),
        (("sparse", "--sizes", "3,2", "--densities", "0.001", "--tools", "matgrad-native"), "less than one weight"),
        (("native", "--optimizers", "Adam"), r"unknown optimizer 'Adam'; known: GradientDescent, Momentum\(0.9\)"),
        (("native", "--experiments", "svhn"), "unknown experiment 'svhn'; known: mnist, cifar10"),
    ],
)
def test_bad_input(arguments, message: str, tmp_path):
    result = run("bench", *arguments)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr)
    assert not result.stdout
    assert not list(tmp_path.iterdir())
