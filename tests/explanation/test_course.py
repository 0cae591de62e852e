"""The course: each exercise begins with an answer that is refuted, and ends with a solution that is proved."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COURSE = sorted((ROOT / "notebooks/course").glob("*.ipynb"))


def cells(path: Path) -> Iterator[tuple[str, Any]]:
    """The code of each cell, run in one namespace, and the value of its last line."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            *body, last = ast.parse(source).body
            if not isinstance(last, ast.Expr):
                body, last = [*body, last], None
            exec(compile(ast.Module(body, []), path.name, "exec"), namespace)
            yield source, last and eval(compile(ast.Expression(last.value), path.name, "eval"), namespace)


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_answers_are_refuted_and_solutions_proved(path):
    exercises, solutions = [], []
    for source, value in cells(path):
        proved = re.findall(r"mg\.prove\(\s*(\w+)\s*\+", source)
        if "answer = " in source:
            exercises += proved
            assert value.verdict == "refuted", value
            assert re.search(r"true − returned = |true = returned · |expected shapes", str(value)), value
        elif proved:
            solutions += proved
            assert value.verdict == "proved", value
    assert solutions == exercises, "an exercise without a solution"
    assert len(exercises) >= 4
