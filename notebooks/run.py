"""Runs the notebooks of this folder, and keeps their outputs in them: ``python notebooks/run.py``."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, after it has run with `folder` as its current one; raises if a cell does."""
    node = nbformat.read(notebook, as_version=4)
    where, quietly = {"metadata": {"path": str(folder)}}, ["--log-level=ERROR"]
    options = {"timeout": 300, "kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
    return NotebookClient(node, resources=where, extra_arguments=quietly, **options).execute()


if __name__ == "__main__":
    for notebook in sorted(FOLDER.glob("*.ipynb")):
        node = executed(notebook, FOLDER)
        node.metadata.pop("language_info", None)
        nbformat.write(node, notebook)
        print(f"{notebook.name}: {notebook.stat().st_size / 1000:.0f} kB")
