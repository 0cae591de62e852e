"""The README: every command and every example in it works as printed, and its code is the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import matgrad as mg
from support import DATA, PATIENCE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SOURCE = Path(mg.__file__).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Every command in the shell blocks, without its comment."""
    text = "".join(blocks("sh")).replace("\\\n", " ")
    return [" ".join(line.split("#")[0].split()) for line in text.splitlines() if line.strip()]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def test_the_commands_are_all_known():
    """Those of make are run by CI and by hand; those of matgrad below."""
    assert commands()[:2] == ["make train", "make test"]
    assert all(command.startswith("matgrad ") for command in commands()[2:])
    assert len(commands()) >= 10


def test_the_commands_on_embedded_and_generated_data_work_in_order(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for command in commands():
        if command.startswith("matgrad") and "mnist" not in command and not command.startswith("matgrad bench"):
            output = run(command, tmp_path)
            if command.startswith("matgrad train"):
                last = r"test RMSE \d+\.\d{3}" if "--csv" in command else r"test accuracy 0\.9\d\d"
                assert re.fullmatch(last, output.splitlines()[-1]), command
    assert (tmp_path / "run1" / "run.json").exists()
    assert (tmp_path / "prices.csv").read_text().startswith("price\n")
    assert r"\mathsf{D}\gamma" in (tmp_path / "notes.tex").read_text()


def test_the_first_commands_need_only_the_first_install(tmp_path):
    """Which is `make train`, with SymPy and without the other frameworks."""
    assert "$(PIP) --editable '.[symbolic]'" in (ROOT / "Makefile").read_text()
    others = ("torch", "jax", "tensorflow", "keras", "matplotlib", "sklearn", "hypothesis", "pytest")
    code = f"import sys; sys.modules |= dict.fromkeys({others}); from matgrad.cli import main; main()"
    first = [line.split("#")[0] for line in blocks("sh")[1].splitlines()]
    assert len(first) == 7
    for command in first:
        run(command.replace("matgrad", f'{sys.executable} -c "{code}"', 1), tmp_path)


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_the_experiment_of_the_paper_works(tmp_path):
    (tmp_path / "mnist").symlink_to(DATA / "mnist")
    (command,) = [c for c in commands() if "--mnist" in c]
    assert run(command, tmp_path).splitlines()[-1] == "test accuracy 0.940"


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_the_benchmark_works(tmp_path):
    """As printed, but for two steps of one experiment."""
    (tmp_path / "data").symlink_to(DATA)
    (command,) = [c for c in commands() if c.startswith("matgrad bench paper")]
    short = "--rounds 1 --steps 2 --experiments mnist --tools pytorch,matgrad-numpy"
    command, count = re.subn(r"--rounds \d+", short, command)
    assert count == 1
    assert "matgrad NumPy" in run(command, tmp_path)


def test_the_table_has_the_figures_of_the_record():
    record = json.loads((ROOT / "benchmarks/paper/bench.json").read_text())
    rows = {line.split(" | ")[0].strip("| "): line for line in README.splitlines() if line.startswith("| ")}
    seen = 0
    for tools in zip(*(experiment["tools"] for experiment in record["experiments"]), strict=True):
        if tools[0]["kind"] != "eager":
            cells = [cell.strip() for cell in rows[tools[0]["title"]].strip("|").split("|")][1:]
            for tool, (seconds, to_torch, by_hand, in_paper) in zip(tools, (cells[:4], cells[4:]), strict=True):
                ratios = tool["ratios"]
                assert seconds == f"{tool['median']:.2f}"
                assert to_torch == (f"{ratios['reference']['median']:.2f}" if ratios["reference"] else "1.00")
                assert by_hand in ("", f"{(ratios['own'] or {'median': 0})['median']:.2f}")
                assert in_paper == (f"{tool['paper']['ratio']:.2f}" if tool["paper"] else "")
                seen += 1
    assert seen == 20


def test_the_sparse_table_has_the_figures_of_the_record():
    record = json.loads((ROOT / "benchmarks/sparse/bench.json").read_text())
    for point in record["points"]:
        tools = point["tools"]
        own, others = tools["matgrad-native"], ("pytorch-csr", "pytorch-masked")
        seconds = [f"{tool['median']:.2f} s" for tool in (own, *(tools[name] for name in others))]
        faster = [f"{1 / own['ratios'][name]['median']:.1f}" for name in others]
        threads = f"{1 / own['ratios']['matgrad-native-1']['median']:.2f}"
        memory = [f"{tool['memory']['training'] / 1e6:.0f}" for tool in (own, tools["pytorch-masked"])]
        density = f"{point['density']:g}"
        assert f"| {' | '.join([density, *seconds, *faster, threads, *memory])} |" in README
    fit = record["fit"]
    assert f"takes at best {fit['step'] * 1e6:.0f} µs and {fit['weight'] * 1e9:.1f} ns for every stored" in README
    assert f"(off by at most {fit['largest_error'] * 100:.0f} %)" in README


def test_the_dense_table_has_the_figures_of_the_record():
    record = json.loads((ROOT / "benchmarks/native/bench.json").read_text())
    for experiment in record["experiments"]:
        tools = {tool["tool"]: tool for tool in experiment["tools"]}
        cells = [experiment["title"], f"{tools['pytorch']['median']:.2f} s"]
        for tool in (tools["matgrad-native"], tools["matgrad-cpp"]):
            ratios = (tool["ratios"]["reference"], tool["ratios"]["own"])
            cells += [f"{tool['median']:.2f} s", *(f"{ratio['median']:.2f}" for ratio in ratios)]
        assert f"| {' | '.join(cells)} |" in README


def test_the_printed_program_is_the_recorded_one(tmp_path):
    (command,) = [c for c in commands() if c.startswith("matgrad program")]
    (printed,) = re.findall(r"```\n(Z1 .*?)…\n```", README, re.DOTALL)
    assert printed in run(command, tmp_path)


def test_the_python_examples_work_in_order(tmp_path):
    (tmp_path / "example.py").write_text("".join(blocks("python")))
    output = run(f"{sys.executable} example.py", tmp_path)
    assert float(output.splitlines()[0]) > 0.9, "the accuracy of the first example"
    assert "MultilayerPerceptron on " in output
    assert mg.load(tmp_path / "digits.npz").layers[-1].output_size == 10
    assert "(100, 128) (100, 128) (128, 64) (100, 64)" in output
    assert "None" in output.splitlines()


def test_the_code_beside_the_equations_is_the_source():
    lines = re.findall(r"^\| [\w -]+ \| \$.*?\$ \| `(.*?)` \|$", README, re.MULTILINE)
    (first,) = re.findall(r"^\$\$\\mathsf.*\$\$\n\n    (.*)$", README, re.MULTILINE)
    source = "\n".join(path.read_text() for path in (SOURCE / "layers").glob("*.py"))
    assert len(lines) == 4
    for line in (first, *lines):
        assert line in source


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["train", "test"])
def test_make_knows_the_two_commands(target: str):
    result = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
