"""Models, layers and programs as HTML: what a notebook shows of them."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import DTYPES
from matgrad.explanation.html import LINE, MUTED, PLAIN, mathml, matrix_html, muted, picture_html, size_html, table_html
from matgrad.explanation.text import HEADINGS
from matgrad.explanation.writing import place
from matgrad.foundation.notation import symbol
from matgrad.foundation.writing import as_html
from matgrad.inspection.equations import METHODS, Equation, equations
from matgrad.inspection.latex import latex_lines, layer_latex
from matgrad.inspection.observing import observed
from matgrad.layers.layer import Layer
from matgrad.layers.model_base import density_of, headline, parameter_count
from matgrad.layers.state import State, matrices_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import CompositeOptimizer
from matgrad.program.computations import Computation
from matgrad.program.recorder import record_computation
from matgrad.program.shapes import size_name
from matgrad.program.text import LatexPrinter
from matgrad.sparse.matrix import SparseMatrix

if TYPE_CHECKING:
    from matgrad.derivation.derivation import Derivation
    from matgrad.explanation.explanation import Explained
    from matgrad.program.program import Program
    from matgrad.writers.verdicts import Verdict

MOST_LINES = 150  # of a program
CELL = f"{PLAIN};border-bottom:{LINE};padding:5px 20px 5px 0;text-align:left;vertical-align:top"
HEAD = f"{CELL};{MUTED};font-weight:normal"
RIGHT = "text-align:right"


def model_html(M: MultilayerPerceptron) -> str:
    """A table of the layers, with their equations, sizes, densities, parameters and optimizers."""
    has_density = any(layer.is_sparse for layer in M.layers)
    head = ["", "layer", "equations", "sizes", *(["density"] if has_density else []), "parameters", "optimizer"]
    sides = [CELL, CELL, CELL, f"{CELL};white-space:nowrap", *([f"{CELL};{RIGHT}"] * (1 + has_density)), CELL]
    lines = []
    for path, layer in M.walk():
        sizes, count = f"{layer.input_size} → {layer.output_size}", f"{parameter_count(layer):,}"
        numbers = [density_of(layer), count] if has_density else [count]
        name = f'<span style="padding-left:{path.count(".")}em">{_code(repr(layer))}</span>'
        lines.append([path, name, _equations_of(layer), sizes, *numbers, as_html(layer.optimizer.specification())])
    total = sum(parameter_count(layer) for _, layer in M.walk())
    lines.append(["", "total", "", *[""] * has_density, "", f"{total:,}", ""])
    return _page(f"<div><b>{as_html(headline(M))}</b></div>{table_html(head, lines, sides, HEAD)}")


def _equations_of(layer: Layer) -> str:
    """The equations of feedforward, and those of backpropagation folded."""
    try:
        latex = layer_latex(layer)
        forward, backward = ("".join(_formula(e, latex) for e in found) for found in _executed(layer)[0].values())
    except ValueError as error:
        return muted(str(error))
    return forward + (_folded(muted("backpropagation"), backward) if backward else "")


def layer_html(layer: Layer) -> str:
    """The definition of a layer, its equations with sizes and source, its parts, and pictures of its parameters."""
    walked = [part for _, part in layer.walk()]
    optimizer = CompositeOptimizer(*(part.optimizer for part in walked)).specification()
    sizes, count = f"{layer.input_size} → {layer.output_size}", sum(map(parameter_count, walked))
    properties = " · ".join(filter(None, [sizes, f"{count:,} parameters", optimizer]))
    matrices = {name: getattr(layer, name, None) for name in (*layer.parameters, *layer.buffers)}
    pictures = [picture_html(A, symbol(x)) for x, A in matrices.items() if len(getattr(A, "shape", ())) == 2]
    parts = [_folded(_code(f"{i}  {part!r}"), layer_html(part)) for i, part in enumerate(layer.parts(), start=1)]
    documented = (vars(base).get("__doc__") for base in type(layer).__mro__ if not issubclass(Layer, base))
    text = next(filter(None, documented), "").strip().partition("\n\n")[0]
    definition = re.sub(r"``(.+?)``|`(.+?)`", r"<code>\1\2</code>", as_html(text))
    return _page(
        f"<div><b>{_code(repr(layer))}</b> &#160;{muted(properties)}</div>"
        f'<div style="margin:2px 0 6px">{definition}</div>'
        f"{_table_of_equations(layer)}{''.join(parts)}<div>{''.join(pictures)}</div>"
    )


def _table_of_equations(layer: Layer) -> str:
    try:
        found, sizes = _executed(layer)
    except ValueError as error:
        return muted(str(error))
    latex, lines = layer_latex(layer), []
    for method, listed in found.items():
        for k, e in enumerate(listed):
            head, source = "" if k else muted(HEADINGS[method].lower()), f"{_code(e.source)}<br/>{muted(place(e))}"
            lines.append([head, _formula(e, latex), sizes.get(e, ""), source])
    sides = [CELL, CELL, f"{CELL};white-space:nowrap", CELL]
    return table_html(["", "equation", "size", "source"], lines, sides, HEAD) if lines else ""


def _executed(layer: Layer) -> tuple[dict[str, list[Equation]], dict[Equation, str]]:
    """The equations of each method that run in the present mode, or all if none does, and the sizes of their values."""
    found, sizes = {method: equations(type(layer), method) for method in METHODS}, _sizes(layer)
    return {method: [e for e in listed if e in sizes] or listed for method, listed in found.items()}, sizes


class _Pass(Computation):
    """Feedforward and backpropagation of one layer, to see what sizes the values of its equations have."""

    inputs = ("X", "DY")
    sizes: dict[Equation, str]

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """Y"""
        X, DY = inputs
        (layer,) = model.layers

        def keep(_: Layer, equation: Equation, value: Any) -> Any:
            size = size_html(map(size_name, getattr(value, "shape", ())))
            self.sizes[equation] = f"{size}, sparse" if isinstance(value, SparseMatrix) else size
            return value

        model.load_state(state)
        with observed([layer], keep):
            Y = layer.feedforward(X)
            layer.backpropagate(Y, DY)
        return {"Y": Y}


def _sizes(layer: Layer) -> dict[Equation, str]:
    """The sizes of the values of the equations that a layer executes, N for the number of examples."""
    own = _Pass(MultilayerPerceptron([layer]))
    own.template.train(layer.training)
    own.sizes, state = {}, own.template.state()
    matrices = matrices_of(state).values()
    backend = backend_of(*matrices) if matrices else get_backend("numpy")
    dtype = next(filter(DTYPES.__contains__, map(backend.dtype, matrices)), "float64")
    with suppress(Exception):  # a layer that is being written may fail in any way: then sizes are missing
        X, DY = (backend.from_numpy(np.zeros((2, n), dtype)) for n in (layer.input_size, layer.output_size))
        record_computation(own, state, X, DY)
    return own.sizes


def explained_html(e: Explained) -> str:
    """An equation with its source and verdict, and its value as a heat map."""
    w = e.written
    source = f"{_code(w.source)} &#160;{muted(w.location)}"
    verdict = muted("; ".join([e.verdict.summary, *e.verdict.details]) if e.verdict.details else "")
    opened = [_folded(muted("with the steps of functions"), _math(w.opened))] if w.opened else []
    parts = [f"<b>{as_html(e.title)}</b>", _math(w.latex), _math(w.numbered), *opened, source, verdict]
    lines = "".join(f'<div style="margin:3px 0">{part}</div>' for part in parts)
    return _page(lines + matrix_html(e.value, w.symbol))


def verdict_html(verdict: Verdict) -> str:
    """A verdict on gradients, with its formulas, those of the gradients too if they are right."""
    parts = [f"<b>{as_html(verdict.name)}</b> {as_html(verdict.verdict)} {muted(f'({verdict.seconds:.2f} s)')}"]
    parts += [as_html(line) if isinstance(line, str) else _math(line.latex) for line in verdict.lines]
    parts += [_math(formula.latex) for formula in verdict.formulas if not verdict.status]
    parts += [as_html(f"if {text}") for text in verdict.assumptions]
    return _page("".join(f'<div style="margin:3px 0">{part}</div>' for part in parts))


def derivation_html(found: Derivation) -> str:
    """The equations of a derived layer, with what is proved of them, and its code, folded."""
    marks = {x.name: "proved" if x.ok else "NOT PROVED" for x in found.verdicts}
    lines = (*found.feedforward, *found.backpropagation)
    formulas = latex_lines({x.name: x.term for x in lines})
    rows = [[_math(latex), muted(marks.get(x.name, ""))] for x, latex in zip(lines, formulas, strict=True)]
    code = f"<pre>{as_html(found.code)}</pre>"
    return _page(table_html([], rows, [CELL, CELL], "") + _folded(muted("the code of the layer"), code))


def program_html(program: Program) -> str:
    """The inputs, and each line of a program with the equation of the layer, loss or optimizer that it is part of.

    Below it, folded, are the steps of softmax and whatever else has a name.
    """
    shown, opened = (_program_table(LatexPrinter(program, is_opened=x)) for x in (False, True))
    return _page(shown if shown == opened else shown + _folded(muted("with the steps of functions"), opened))


def _program_table(printer: LatexPrinter) -> str:
    given = ", ".join(map(mathml, printer.given()))
    labels = chain((value.equation for value in printer.lines()), repeat(""))  # none for outputs that are copies
    pairs = zip(printer.equations(), labels, strict=False)
    lines = [[mathml(name), _math(f"= {right}"), muted(label)] for (name, right), label in pairs]
    rest = len(lines) - MOST_LINES
    more = muted(f"… and {rest} more lines: print(program) shows all of them") if rest > 0 else ""
    cell = f"{PLAIN};padding:2px 6px 2px 0;text-align:left;vertical-align:baseline"
    sides = [f"{cell};{RIGHT}", cell, f"{cell};padding-left:24px;white-space:nowrap"]
    return f'<div style="max-width:70em">given {given}</div>{table_html([], lines[:MOST_LINES], sides, "")}{more}'


# -- what they share ------------------------------------------------------------------------------


def _formula(equation: Equation, latex: dict[Equation, str]) -> str:
    """An equation; as code, if its layer cannot be recorded."""
    formula = _math(latex[equation]) if equation in latex else _code(equation.source)
    return f'<div style="margin:2px 0">{formula}</div>'


def _math(latex: str) -> str:
    """A formula, with fractions as tall as on a line of their own."""
    return mathml(rf"\displaystyle {latex}")


def _page(content: str) -> str:
    return f'<div style="overflow-x:auto;line-height:1.5">{content}</div>'


def _folded(summary: str, content: str) -> str:
    return f'<details><summary style="cursor:pointer">{summary}</summary>{content}</details>'


def _code(text: str) -> str:
    return f'<code style="background:none;color:inherit;padding:0;white-space:pre-wrap">{as_html(text)}</code>'
