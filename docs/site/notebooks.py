"""Notebooks as pages: their text, code and outputs. A notebook that is stored without outputs is run."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))
import run

OUTPUT = re.compile(r"<p><!-- output (.*?) --></p>|<!-- output (.*?) -->")


def page(path: Path) -> str:
    """The notebook in Markdown; outputs in HTML are comments, for which `with_outputs` puts them in the end."""
    return "\n\n".join(part for k, cell in enumerate(_cells(path)) for part in _parts(k, cell))


def with_outputs(content: str, path: Path) -> str:
    """The page in HTML, with the outputs."""

    def output(found: re.Match[str]) -> str:
        k, i = map(int, (found[1] or found[2]).split("."))
        content = "".join(_cells(path)[k]["outputs"][i]["data"]["text/html"])
        return f'<div class="output" data-search-exclude>{content}</div>'

    return OUTPUT.sub(output, content)


@cache
def _cells(path: Path) -> list[dict[str, Any]]:
    """The cells, with outputs."""
    cells = json.loads(path.read_text())["cells"]
    return cells if any(cell.get("outputs") for cell in cells) else run.executed(path, path.parent).cells


def _parts(k: int, cell: dict[str, Any]) -> Iterator[str]:
    """The text of a cell, or its code and outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source.replace("<details>", "<details markdown>")
        return
    yield f"```python\n{source}\n```"
    for i, output in enumerate(cell["outputs"]):
        if "text/html" in output.get("data", {}):
            yield f"<!-- output {k}.{i} -->"
        else:
            text = "".join(output.get("text") or output["data"]["text/plain"])
            yield f'<pre class="printed">{html.escape(text)}</pre>'
