"""The page of equations: what each class computes, recorded with named sizes, with the verdict of the verifier."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import verified

from matgrad import softmax_functions
from matgrad.activation_functions import ACTIVATIONS
from matgrad.inspection.equations import METHODS, Equation, equations, label_of
from matgrad.inspection.latex import aligned, function_latex, mode_latex, update_latex
from matgrad.judges.definitions import SOFTMAX
from matgrad.judges.lemmas import LEMMAS
from matgrad.judges.suite import example_of
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS, Optimizer

ROOT = Path(__file__).parents[2]
LABEL = re.compile(r"`((?:eq|appendix):[\w-]+)`")
GROUPS = {"Activation functions": ACTIVATIONS, "Losses": LOSSES, "Optimizers": OPTIMIZERS}


@cache
def record() -> dict[str, Any]:
    """What docs/verified.json has."""
    return json.loads(verified.RECORD.read_text())


def files() -> list[str]:
    """The files of the repository that have equations."""
    bases = {base for cls in verified.CLASSES for base in cls.__mro__ if base.__module__.startswith("matgrad.")}
    return sorted({_inside(inspect.getfile(thing)) for thing in (softmax_functions, *bases)})


@cache
def page() -> str:
    """All equations in Markdown; where a label comes first, links lead to it."""
    found = set[str]()

    def anchor(match: re.Match[str]) -> str:
        label = match[1]
        if label in found:
            return match[0]
        found.add(label)
        return f'<code id="{label}">{label}</code>'

    return LABEL.sub(anchor, "\n\n".join(_sections()))


def labels() -> set[str]:
    """The labels that links can lead to."""
    return {*re.findall(r'<code id="([^"]+)">', page())}


def _sections() -> Iterator[str]:
    yield f"**{record()['checks']} checks, {sum(record()['wrong'].values())} wrong.**"
    yield "## Layers"
    for layer in verified.LAYER_CLASSES:
        yield from _head(layer)
        latex = mode_latex(example_of(layer))
        for method in METHODS:
            yield f"**{method}**"
            yield from (_equation_of_layer(equation, latex[equation]) for equation in equations(layer, method))
    for title, registry in GROUPS.items():
        yield f"## {title}"
        for cls in registry.values():
            yield from _head(cls)
            methods = ("update",) if title == "Optimizers" else ("__call__", "gradient")
            yield from (_equation_of_method(cls, method) for method in methods)
    yield "## Softmax functions"
    for name in SOFTMAX:
        yield f"### {name}"
        for function in (name, f"{name}_jacobian"):
            yield _equation_of_function(getattr(softmax_functions, function))
    yield from _derivations()


def _head(cls: type) -> Iterator[str]:
    yield f"### {cls.__name__}"
    yield (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")


def _equation_of_layer(equation: Equation, latex: list[str]) -> str:
    label = label_of(equation.layer, equation.name)
    return _card(aligned(latex), equation.source, equation.file, equation.line, label, str(equation))


def _equation_of_method(cls: type, name: str) -> str:
    method = getattr(cls, name)
    quantity = {"__call__": "value", "update": "x"}.get(name, name)
    source, line = _body(method)
    updates = issubclass(cls, Optimizer) and update_latex(cls(np.zeros((2, 3)), None))
    latex = aligned([*updates.values()]) if updates else function_latex(getattr(cls(), name))
    return _card(latex, source, inspect.getfile(method), line, label_of(cls, quantity), f"{cls.__name__}.{quantity}")


def _equation_of_function(function: Callable[..., Any]) -> str:
    source, line = _body(function)
    name = function.__name__
    return _card(function_latex(function), source, inspect.getfile(function), line, label_of(function), name)


def _card(latex: str, source: str, file: str, line: int, label: str, name: str) -> str:
    """One equation: its mathematics, its source, where that is, its label in the paper, and its verdict."""
    place = f"[{_inside(file).removeprefix('src/matgrad/')}:{line}](../{_inside(file)}#L{line})"
    facts = [place, *([f"`{label}`"] if label else []), _verdict(name)]
    code = f"```python\n{source}\n```"
    return f'<div class="equation" markdown>\n\n$$\n{latex}\n$$\n\n{code}\n\n{" · ".join(facts)}\n\n</div>'


def _verdict(name: str) -> str:
    """How many checks the equation has passed; one without checks of its own is judged by what it is part of."""
    checks, wrong = record()["equations"].get(name, 0), record()["wrong"].get(name, 0)
    if wrong:
        return f'<span class="wrong">wrong in {wrong} of {checks} checks</span>'
    if not checks:
        return "part of the next equation"
    return f'<span class="right">right in {checks} {"check" if checks == 1 else "checks"}</span>'


def _body(function: Callable[..., Any]) -> tuple[str, int]:
    """The statements of a function without its docstring, and the number of their first line."""
    lines, first = inspect.getsourcelines(function)
    node = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    start = body[0].lineno - 1
    return textwrap.dedent("".join(lines[start:])).rstrip(), first + start


def _derivations() -> Iterator[str]:
    """The lemmas and derivations of the paper, each with the number of its steps."""
    yield "## Lemmas and derivations"
    yield "Each step of a derivation in the paper is compared with the step before it."
    rows = [f"| {d.name} | `{d.label}` | {_verdict(d.name)} |" for d in LEMMAS]
    yield "\n".join(["| derivation | in the paper | verdict |", "| --- | --- | --- |", *rows])


def _inside(file: str) -> str:
    return Path(file).relative_to(ROOT).as_posix()
