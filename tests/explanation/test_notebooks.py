"""The notebooks run, each of their claims is asserted in a cell, and what is committed shows their outputs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from html_support import parsed

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
_specification = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
run = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(run)


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def html(notebook: nbformat.NotebookNode) -> list[str]:
    return [output.data["text/html"] for output in outputs(notebook) if "text/html" in output.get("data", {})]


def kinds(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What kinds of output each cell has."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[kind for x in cell.outputs for kind in sorted(x.get("data", [x.output_type]))] for cell in code]


@pytest.mark.filterwarnings("default")  # of the packages that talk to the kernel
@pytest.mark.parametrize("name", [NOTEBOOKS[0], *(pytest.param(x, marks=pytest.mark.slow) for x in NOTEBOOKS[1:])])
def test_a_notebook_runs(name, tmp_path):
    fresh = run.executed(FOLDER / name, tmp_path)
    for content in html(fresh):
        parsed(content)
    assert kinds(fresh) == kinds(nbformat.read(FOLDER / name, as_version=4))
    assert not list(tmp_path.iterdir())
    if name.startswith("3"):
        (live,) = [x for x in outputs(fresh) if x.output_type == "display_data"]
        assert live.data["text/plain"] == "Training: 12 of 12 epochs"
        assert len([*parsed(live.data["text/html"]).iter("svg")]) == 2


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_committed_notebook_has_its_outputs_and_nothing_of_a_machine(name):
    content = (FOLDER / name).read_text()
    assert len(content) < 300_000
    assert not re.search(r"/tmp|/home|/root|/work\b|/Users|site-packages|Traceback", content)
    notebook = nbformat.reads(content, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert len(html(notebook)) >= 3
    assert any("assert" in cell.source for cell in code)
    assert {output.output_type for output in outputs(notebook)} <= {"execute_result", "display_data", "stream"}
