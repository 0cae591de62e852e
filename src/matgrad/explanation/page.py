"""The page of `matgrad explain --html`: one file, without a network, that runs the recorded training step."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from string import Formatter, Template
from typing import Any

import numpy as np

from matgrad.explanation.explanation import Explained, Explanation
from matgrad.explanation.html import mathml
from matgrad.explanation.writing import definition
from matgrad.foundation.numbers import own_generator
from matgrad.foundation.writing import as_html, finite
from matgrad.layers.layer import Layer
from matgrad.layers.state import supports_of
from matgrad.layers.tokens import AttentionLayer
from matgrad.program.description import value_as_dictionary
from matgrad.program.operations import OPERATIONS, Notation, Operation
from matgrad.program.program import Value
from matgrad.program.scalars import ScalarWriter
from matgrad.specifications.parsing import describe


def page_data(explanation: Explanation) -> dict[str, Any]:
    """The network, the program of the step with its inputs, and the equations in order of execution."""
    program = explanation.program
    values = program.all_values
    indices = {value: i for i, value in enumerate(values)}
    lines = [value_as_dictionary(x, indices) | {"shape": [int(n) for n in x.shape]} for x in values]
    for x, line in zip(values, lines, strict=True):
        del line["dtype"]
        line |= {} if x.number is None else {"number": float(x.number)}
    bound = supports_of(explanation.M.state())
    supports = {name: value.support or bound[name] for name, value in program.supports.items()}
    for k, (parts, of) in _tiles(explanation, indices).items():
        lines[k]["tiles"] = {"parts": parts, "of": of}
    given = explanation.M.state() | {"X": explanation.X, "T": explanation.T, "eta": explanation.eta}
    layers = explanation.M.layers
    sizes = [layers[0].input_size, *(layer.output_size for layer in layers if not layer.keeps_size)]
    loss = next(i for i, e in enumerate(explanation) if e.phase == "loss")
    return {
        "title": f"{';'.join(map(_name, layers))} ({';'.join(map(str, sizes))})",
        "network": _network(explanation),
        "values": lines,
        "inputs": {name: np.asarray(given[name]).tolist() for name in program.inputs if name not in program.supports},
        "supports": {x: {"rows": S.row_indices().tolist(), "columns": S.columns.tolist()} for x, S in supports.items()},
        "outputs": {name: indices[program.outputs[name]] for name in program.inputs if name in program.outputs},
        "loss": indices[explanation.values[loss]],
        "symbols": {str(indices[value]): mathml(latex) for value, latex in explanation.symbols.items()},
        "steps": [_step(e, indices[value]) for e, value in zip(explanation, explanation.values, strict=True)],
    }


def _tiles(explanation: Explanation, indices: Mapping[Value, int]) -> dict[int, tuple[list[int], str]]:
    """How matrices of images, of tokens and of attention are drawn, by the indices of their values.

    Height, width and number of the parts of a row, or of a block of attention, that are side by side.
    """
    found: dict[int, tuple[list[int], str]] = {}
    X, first = explanation.program.inputs["X"], explanation.M.layers[0]
    shapes = [(X, getattr(first, "input_shape", (*explanation.shape, 1) if explanation.shape else ()))]
    for e, value in zip(explanation, explanation.values, strict=True):
        if isinstance(e.owner, AttentionLayer) and e.part in ("S", "A", "DA", "DS"):
            L, heads = e.owner.L, e.owner.heads
            found[indices[value]] = [L, L, heads], "heads"
        names = {"Y": "output_shape", "DY": "output_shape", "DX": "input_shape"}
        shapes.append((value, getattr(e.owner, names.get(e.part, ""), ())))
    for value, shape in shapes:
        if len(shape) in (2, 3) and value.shape[1] == math.prod(shape):
            parts = [*shape] if len(shape) == 3 else [*shape, 1]
            what = "images" if len(shape) == 3 else "tokens"
            found.setdefault(indices[value], (parts, what))
    return found


def _name(layer: Layer) -> str:
    """The specification of a layer, without settings if all of them are the defaults."""
    try:
        full = layer.specification()
    except ValueError:  # it has none
        return type(layer).__name__.removesuffix("Layer")
    with suppress(Exception), own_generator():  # its constructor may need more
        if type(layer)(layer.input_size, layer.output_size).specification() == full:
            return full.partition("(")[0]
    return full


def _network(explanation: Explanation) -> dict[str, Any]:
    """The layers, the loss and what else a reader wants to know at first."""
    M = explanation.M
    optimizers = dict.fromkeys(
        describe(x, "Optimizer", ("x", "Dx")) for _, layer in M.walk() for x in layer._optimizers.values()
    )
    return {
        "layers": [
            {
                "name": name,
                "class": type(layer).__name__,
                "specification": _name(layer),
                "inputs": layer.input_size,
                "outputs": layer.output_size,
                "density": getattr(layer, "density", 1.0),
                "definition": definition(type(layer)),
            }
            for name, layer in M.walk()
        ],
        "loss": type(explanation.loss).__name__,
        "optimizer": ", ".join(optimizers),
        "eta": explanation.eta,
        "examples": len(explanation.X),
    }


def _step(e: Explained, index: int) -> dict[str, Any]:
    """An equation, with its formulas in MathML."""
    w = e.written
    return {
        "phase": e.phase,
        "layer": e.layer or None,
        "class": type(e.owner).__name__,
        "name": e.name,
        "title": e.title,
        "value": index,
        "equation": mathml(w.latex, "block"),
        "numbered": mathml(w.numbered, "block"),
        "opened": mathml(w.opened, "block") if w.opened else "",
        **{name: getattr(w, name) for name in ("text", "source", "location", "definition", "note")},
        "verdict": {**vars(e.verdict), "summary": e.verdict.summary},
    }


_ASSETS = files("matgrad.explanation") / "assets"
_SCRIPTS = ("program", "arithmetic", "expressions", "notation", "matrix", "state", "stage", "network", "view")


def page(data: Mapping[str, Any]) -> str:
    """The page as HTML, from `page_data(explanation)`."""
    return Template(_text("page.html")).substitute(
        title=as_html(data["title"]),
        style=_text("page.css"),
        font=base64.b64encode((_ASSETS / "stix-two-math.woff2").read_bytes()).decode(),
        # JSON inside a script element, where < would begin a tag
        data=json.dumps(finite(data, _number), ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
            "<", r"\u003c"
        ),
        script="\n".join([_lines(), *(_text(f"{name}.js") for name in _SCRIPTS)]),
    )


class _JavaScript(ScalarWriter):
    call = "functions.{function}({argument})"
    power = "functions.pow({base}, {exponent})"
    step = "({argument} >= 0 ? 1 : 0)"


def _lines() -> str:
    """The elementwise operations in JavaScript, from their rows; some functions have a formula of their own."""
    entries = []
    for name, operation in OPERATIONS.items():
        if operation.scalar:
            letters = "".join(operation.letters)
            line = f"({', '.join(letters)}) => {_JavaScript()(operation.scalar)}"
            entries.append(f'  {name}: {{ letters: "{letters}", line: {line}{_formula(operation)} }},')
    return "\n".join(["const LINES = {", *entries, "};"])


def _formula(operation: Operation) -> str:
    """How a function of one operand is written, as a function of MathML, if its row has LaTeX for it."""
    notation = operation.latex
    if operation.letters != ["x"] or operation.text is not None or not isinstance(notation, Notation):
        return ""
    level = next(str(level) for _, field, level, _ in Formatter().parse(notation.template) if field)
    template = re.sub(r"\{0:\w+\}", r"\\square ", notation.template).format()
    before, after = mathml(template).split("<mi>\u25fb</mi>")
    start, end = before.partition(">")[2], after.removesuffix("</math>")
    return f", formula: (at) => `{start}${{at({level.upper()})}}{end}`"


def _text(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _number(x: float) -> str:
    """The string that JavaScript reads as a number that JSON does not have."""
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
