"""docs/zoo.md: the functions of examples/zoo with their equations, what is proved of them, and code to copy.

python docs/site/zoo.py
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from matgrad.writers import Verdict, prove

ROOT = Path(__file__).parents[2]
FILES = {"PyTorch": ROOT / "examples/zoo/torch_zoo.py", "JAX": ROOT / "examples/zoo/jax_zoo.py"}
HEAD = """# A zoo of gradients

Well-known functions with their gradients, to copy: the equations of feedforward and, below them, those of
backpropagation, where $\\mathsf{D}x$ is the gradient with respect to $x$; what `matgrad prove` says of the code,
for all sizes; and the code for PyTorch and JAX. It is that of [torch_zoo.py](../examples/zoo/torch_zoo.py) and
[jax_zoo.py](../examples/zoo/jax_zoo.py): `matgrad prove FILE` proves all that is in a file, and tests compare the
gradients with automatic differentiation in float64.

This page is made by `docs/site/zoo.py`.
"""


def module(path: Path) -> ModuleType:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def claims(path: Path) -> dict[str, dict[str, Any]]:
    """What is said of the arguments of each function, by its name, in the source of a file."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(decorator_list=[ast.Call() as call]):
                found[node.name] = said(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Call() as call)):
                found[name] = said(call)
            case ast.Expr(value=ast.Call(func=ast.Call() as call, args=[ast.Name(id=name)])):
                found[name] = said(call)
    return found


def said(call: ast.Call) -> dict[str, Any]:
    """The arguments of @mg.proved."""
    return {k.arg or "": ast.literal_eval(k.value) for k in call.keywords}


def torch_code(name: str) -> str:
    """A class without its docstring and its claim, with the imports that it needs."""
    text = FILES["PyTorch"].read_text()
    (node,) = (n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name)
    lines = text.splitlines()
    body = "\n".join(lines[node.body[1].decorator_list[0].lineno - 1 : node.end_lineno])  # type: ignore[attr-defined]
    return file_of(text, f"class {name}(Function):\n{body}\n")


def jax_code(name: str) -> str:
    """The functions of a section, without the claim, with the helpers and imports that they need."""
    text = FILES["JAX"].read_text()
    sections = re.split(r"^# -- (\w+)\n", text, flags=re.MULTILINE)
    body = sections[sections.index(name) + 1].strip()
    body = re.sub(r"mg\.proved\([^()]*\)\(\s*(with_backward\(.*?\))\s*\)", r"\1", body, flags=re.DOTALL)
    body = re.sub(r"\n*mg\.proved\(.*\)\(\w+\)", "", body)
    return file_of(sections[0], body + "\n")


def file_of(text: str, body: str) -> str:
    """A body after the imports and helpers of a text that it uses."""
    lines, helpers, imports = text.splitlines(), list[str](), list[str]()
    nodes = ast.parse(text).body
    for n in (n for n in nodes if isinstance(n, ast.FunctionDef)):
        if re.search(rf"\b{n.name}\(", body):
            helpers.append("\n".join(lines[n.lineno - 1 : n.end_lineno]))
    for n in (n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)):
        own = n.names[0].asname or n.names[0].name
        if own != "mg" and re.search(rf"\b{own}\b", "\n".join([*helpers, body])):
            imports.append(ast.unparse(n))
    groups = ["\n".join(x for x in imports if (x == "import math") == is_standard) for is_standard in (True, False)]
    return "\n\n\n".join(["\n\n".join(filter(None, groups)), *helpers, body.rstrip()]) + "\n"


def mathematics(docstring: str) -> tuple[str, str]:
    """The title, and the equations."""
    title, _, *lines = dedent(docstring).strip().splitlines()
    return title, "\n\n".join(f"$${line.strip()}$$" for line in dedent("\n".join(lines)).splitlines() if line.strip())


def proof(verdict: Verdict) -> str:
    """What is proved, in one line."""
    lines = [line for line in verdict.lines if "was not compared" not in line]
    return f"**{verdict.verdict.capitalize()}** " + "; ".join([*lines, *(f"if {x}" for x in verdict.assumptions)]) + "."


def parts() -> Iterator[str]:
    """The page, function by function."""
    yield HEAD
    zoo, torch_claims, jax_claims = module(FILES["PyTorch"]), claims(FILES["PyTorch"]), claims(FILES["JAX"])
    for name, shapes in torch_claims.items():
        cls = getattr(zoo, name)
        title, equations = mathematics(cls.__doc__)
        yield f"\n## {title}\n{equations}\n\n{proof(prove(cls, shapes))}\n"
        for framework, code, own in (("torch", torch_code, shapes), ("jax", jax_code, jax_claims[name])):
            arguments = " ".join(f'{n}="{x}"' if isinstance(x, str) else f"{n}={x}" for n, x in own.items())
            file = f"{name}_{framework}.py"
            yield f'\n```python title="{file}"\n{code(name)}```\n\n`matgrad prove {file}:{name} {arguments}`\n'


if __name__ == "__main__":
    (ROOT / "docs/zoo.md").write_text("".join(parts()))
