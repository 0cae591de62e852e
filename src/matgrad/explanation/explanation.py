"""`mg.explain`: every equation of a training step in order, with its LaTeX, its source, its size and its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.datasets import DataLoader
from matgrad.datasets.checking import checked_examples
from matgrad.explanation.passes import Pass, Result, named
from matgrad.explanation.text import HEADINGS, matrix_text
from matgrad.explanation.verdicts import Judge, Verdict
from matgrad.foundation.imports import deferred
from matgrad.foundation.writing import atomic_write
from matgrad.loss_functions import LossFunction, check_loss, check_target_values, create_loss, default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.program import Program, Value
from matgrad.program.recorder import record_computation
from matgrad.sparse.matrix import SparseMatrix
from matgrad.training import LEARNING_RATE

if TYPE_CHECKING:
    from matgrad.explanation.writing import Written

MOST = 1_000_000  # limit of elements in all matrices of an explanation


@dataclass(frozen=True, repr=False, kw_only=True)
class Explained(Result):
    """One equation of a training step, with its value: a matrix of NumPy, a `SparseMatrix`, or a number."""

    written: Written  # in LaTeX and in characters, with its source
    verdict: Verdict

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of the value: (m, n), or () for a number."""
        return tuple(getattr(self.value, "shape", ()))

    def __str__(self) -> str:
        size = " × ".join(map(str, self.shape)) or "a number"
        w, verdict = self.written, "; ".join([self.verdict.summary, *self.verdict.details])
        lines = [
            self.title,
            *([f"  defined  {w.definition}"] if w.definition else []),
            *(f"  {line}" for line in w.text.splitlines()),
            f"  LaTeX    {w.latex}",
            f"  source   {w.source}   ({'; '.join(filter(None, [w.location, w.note]))})",
            *([] if self.verdict.ok is None and not self.verdict.details else [f"  verdict  {verdict}"]),
            f"  {self.name} is {size}" + (":" if self.shape else ""),
            indent(matrix_text(self.value), "    "),
        ]
        return "\n".join(lines)

    __repr__ = __str__

    _repr_html_ = deferred("matgrad.explanation.notebook", "explained_html")


@dataclass(frozen=True)
class Explanation:
    """The equations of one training step of a model on a batch, in order of execution.

    ``explanation["layer 2 DW"]`` is one of them, and `save` writes a page for a browser that shows all. In a
    notebook, the explanation is that page.
    """

    M: MultilayerPerceptron  # a copy on NumPy in float64
    loss: LossFunction
    eta: float
    X: np.ndarray
    T: np.ndarray
    equations: list[Explained]
    program: Program = field(repr=False)  # of the step, with the value of every equation as an output
    values: list[Value] = field(repr=False)  # of the program, one for each equation
    symbols: dict[Value, str] = field(repr=False)  # in LaTeX
    shape: tuple[int, ...] = ()  # height and width of examples that are drawn as images

    def __iter__(self) -> Iterator[Explained]:
        return iter(self.equations)

    def __len__(self) -> int:
        return len(self.equations)

    def __getitem__(self, name: str) -> Explained:
        """The equation of this name: ``layer 2 DW``, ``layer 2 ActivationLayer.DW``, ``DW2``, ``loss`` or ``DY``."""
        return named(self.equations, name)

    @property
    def wrong(self) -> list[Explained]:
        """The equations that are wrong, without those that only depend on one."""
        return [e for e in self if e.verdict.ok is False]

    def given(self) -> dict[str, np.ndarray | SparseMatrix]:
        """X, T and the parameters of the layers, by the names that they have in the equations."""
        parameters = {f"{name}{i}": getattr(x, name) for i, x in self.M.walk() for name in x.parameters}
        return {"X": self.X, "T": self.T, **parameters}

    def __str__(self) -> str:
        parts = {"Given": [f"{name}\n{indent(matrix_text(A), '    ')}" for name, A in self.given().items()]}
        parts |= {HEADINGS[phase]: [*map(str, found)] for phase, found in groupby(self, lambda e: e.phase)}
        return "\n\n".join(line for title, lines in parts.items() for line in (f"── {title} {'─' * 40}", *lines))

    def _repr_html_(self) -> str:
        """The page in a frame, so that nothing of it leaks into the notebook."""
        style = "width:100%;height:820px;border:1px solid rgba(128,128,128,.4);border-radius:8px"
        return f'<iframe srcdoc="{escape(self.page())}" style="{style}" title="equations of a training step"></iframe>'

    def page(self) -> str:
        """A page for a browser, which needs nothing else."""
        from matgrad.explanation.page import page, page_data

        return page(page_data(self))

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        text = self.page()
        with atomic_write(Path(path)) as file:
            file.write(text.encode())


def explain(
    M: MultilayerPerceptron,
    X: Any,
    T: Any,
    *,
    loss: LossFunction | str | None = None,
    eta: float = LEARNING_RATE,
    equation: str | None = None,
    shape: tuple[int, ...] = (),
    verify: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Explanation:
    """Every equation of one training step of M on the batch X with targets T, with its value.

    X and T are as in `M.fit`, and so are the default loss and the default learning rate η. The equations run in float64
    on NumPy, in training mode, on a copy of M, which is not changed. With a `shape`, such as (28, 28), the page
    draws the examples as images. Gradients are compared with central differences;
    with `verify`, the equations are also checked symbolically, which takes seconds; `progress` is called with the name
    of each class that is checked. If there is no `equation` of that name, this is said before anything is compared.
    """
    from matgrad.explanation.writing import Writer  # reads source, which `import matgrad` need not know how to do

    rate = np.asarray(eta)
    if rate.shape or rate.dtype.kind not in "iuf" or not 0 < rate < math.inf:
        raise ValueError(f"eta: expected a number above 0, found {eta!r}")
    eta = float(rate)
    X, T = checked_examples(X, T)
    if shape and (len(shape) != 2 or math.prod(shape) != X.shape[1]):
        raise ValueError(f"shape: expected height and width of images of {X.shape[1]} pixels, found {shape}")
    loss = default_loss(M, T) if loss is None else create_loss(loss)
    check_loss(M, loss)
    copy = M.clone().train().to("numpy", dtype="float64")
    X, T = _batch(copy, loss, X, T)
    step, state = Pass(copy, loss), copy.state()
    program = record_computation(step, state, X, T)
    count = sum(math.prod(map(int, x.shape[:2])) for x in program.values)
    if count > MOST:
        raise ValueError(
            f"explain: the step has matrices with {count:,} elements in all, expected at most {MOST:,}; "
            "give fewer examples, or a smaller model"
        )
    with np.errstate(all="ignore"):
        step(state, X, T, copy.scalar(eta))
    results = step.results
    if equation is not None:
        named(results, equation)
    values = _separated(program, [r.key for r in results])
    program = Program(program.inputs, program.outputs | {r.key: x for r, x in zip(results, values, strict=True)})
    writer = Writer(program, results, are_classes=bool((T.sum(axis=1) == 1).all()))
    judge = Judge(copy, loss, X, T, results)
    if verify:
        judge.verify(progress)
    equations = [
        Explained(
            **vars(r) | {"value": r.value if np.shape(r.value) else float(r.value)},
            written=writer(r),
            verdict=verdict,
        )
        for r, verdict in zip(results, judge.verdicts(results, values), strict=True)
    ]
    symbols = {value: writer.symbol(value) for value in program.values if value in writer.opened.names}
    return Explanation(copy, loss, eta, X, T, equations, program, values, symbols, tuple(shape))


def _batch(M: MultilayerPerceptron, loss: LossFunction, X: Any, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The examples and targets as M trains on them, in float64."""
    X = X.toarray() if hasattr(X, "toarray") else X
    T = M.normalize_targets(T)
    K = M.layers[-1].output_size
    loader = DataLoader(M.normalize(X).astype(np.float64), T, len(X), classes=K).to("numpy", dtype="float64")
    if loader.labels is None:
        check_target_values(M, loader.T, loss)
    ((X, T),) = loader
    return X, T


def _separated(program: Program, keys: list[str]) -> list[Value]:
    """The output of each key, as a value of its own: a copy where it is an input, or has appeared before."""
    found: dict[Value, None] = {}
    end = max(value.order for value in program.values) + 1
    for value in map(program.outputs.__getitem__, keys):
        is_new = value not in found and value.kind != "source"
        found[value if is_new else Value("copy", (value,), value.shape, value.dtype, order=end)] = None
    return [*found]
