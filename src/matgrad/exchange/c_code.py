"""Models as one file of C99 that predicts and, if asked, trains: without libraries but that of C, without malloc.

It is a reader of programs: each value of feedforward, and of a training step, becomes a statement. What is computed
element by element follows from the lines of the rows, and memory from the plan that kernels have too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.datasets.dataset import Normalization
from matgrad.exchange.c_statements import HELPERS, STATEMENTS
from matgrad.foundation.writing import atomic_write
from matgrad.layers.state import SUPPORT, State, matrices_of
from matgrad.loss_functions import LossFunction, target_size
from matgrad.matrix_operations import hadamard, row_repeat
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.buffers import Buffer, Plan
from matgrad.program.computations import Computation, Feedforward, Step
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.recorder import record_computation
from matgrad.program.rules import optimized
from matgrad.program.scalars import ScalarWriter
from matgrad.program.shapes import TIMES, Size, is_number_of_elements
from matgrad.sparse.support import Support

TYPES = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}
INDENT = "    "
UNUSUAL = (
    1009,
    1013,
)  # numbers of examples that no other size has: if their code is the same, it is that of any number


# -- what is recorded --------------------------------------------------------------------------------


def scales(M: MultilayerPerceptron) -> State:
    """The normalizations of M as rows that a program reads: offsets, scales and 1 / scales."""
    found: State = {}
    for name, x in (("input", M.normalization), ("target", M.target_normalization)):
        if isinstance(x, Normalization) and x.kind != "none":
            rows = {"offset": x.offset, "scale": x.scale, "factor": 1 / x.scale.astype(np.float64)}
            found |= {f"{name}_{part}": A.astype(M.dtype) for part, A in rows.items()}
    return found


def scaled(X: Any, state: Mapping[str, Any], name: str) -> Any:
    """(X - 1_N offset) ⊙ (1_N 1/scale), if there is such a normalization"""
    if f"{name}_offset" not in state:
        return X
    N, _ = X.shape
    return hadamard(X - row_repeat(state[f"{name}_offset"], N), row_repeat(state[f"{name}_factor"], N))


def own_state(state: Mapping[str, Any]) -> State:
    """The state of the model alone."""
    return {name: A for name, A in state.items() if not name.startswith(("input_", "target_"))}


class Prediction(Feedforward):
    """Y in the units of the data, from X in those of the data."""

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """Y"""
        Y = super().run(model, own_state(state), scaled(inputs[0], state, "input"))["Y"]
        if "target_scale" in state:
            N, _ = Y.shape
            Y = hadamard(Y, row_repeat(state["target_scale"], N)) + row_repeat(state["target_offset"], N)
        return {"Y": Y}


class ScaledStep(Step):
    """A training step on data in its own units."""

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The new state."""
        X, T, eta = inputs
        return super().run(model, own_state(state), scaled(X, state, "input"), scaled(T, state, "target"), eta)


def save_c(
    M: MultilayerPerceptron,
    path: str | Path,
    *,
    loss: LossFunction | None = None,
    batch_size: int = 1,
    weights: str | Path | None = None,
) -> None:
    """Write the model as one file of C; with a loss it trains, and with `weights` those are in a file of their own."""
    name = re.sub(r"\W", "_", Path(path).stem)
    if not re.match("[A-Za-z]", name):
        raise ValueError(f"{path}: expected a name that begins with a letter, from which the names in C are made")
    state = M.state() | scales(M)
    computations: dict[str, Computation] = {"predict": Prediction(M)}
    sizes = [M.layers[0].input_size]
    if loss is not None:
        computations["train"] = ScaledStep(M, loss)
        sizes.append(target_size(M, loss))

    def recorded(N: int) -> dict[str, Program]:
        inputs = [np.zeros((N, n), M.dtype) for n in sizes]
        return {
            what: optimized(record_computation(x, state, *inputs[: len(x.inputs)])) for what, x in computations.items()
        }

    def written(N: int) -> Writer:
        return Writer(name, recorded(N), state, weights is not None)

    writer, other = map(written, UNUSUAL)
    if not (is_open := writer.functions == other.functions):
        writer = written(batch_size)
    text = "\n".join(writer.lines(batch_size, is_open)) + "\n"
    if weights is not None:
        with atomic_write(weights) as file:
            file.write(b"".join(np.ascontiguousarray(A).tobytes() for A in writer.loaded.values()))
    with atomic_write(path) as file:
        file.write(text.encode())


# -- C -----------------------------------------------------------------------------------------------


class Writer:
    """The text of the file."""

    def __init__(self, name: str, programs: dict[str, Program], state: State, is_loaded: bool) -> None:
        self.name, self.programs = name, programs
        inputs = {x.name for program in programs.values() for x in program.values if x.operation == "input"}
        changed = {x for program in programs.values() for x in program.outputs}
        self.state = {x: np.asarray(A) for x, A in matrices_of(state).items() if x in inputs | changed}
        self.loaded = self.state if is_loaded else {}
        self.variable = {x for x in self.state if x in changed or is_loaded}
        supports = {n: x.support or state[n] for p in programs.values() for n, x in p.supports.items()}
        self.supports: dict[str, Support] = supports
        self.real = next(x.dtype for x in programs["predict"].values if x.shape and x.kind != "source")
        self.functions = [line for what, program in programs.items() for line in self.function(what, program)]

    def lines(self, batch_size: int, is_open: bool) -> Iterator[str]:
        """The file, line by line; if it is open, the number of examples may be defined when it is compiled."""
        N, D, K = self.macro("N"), self.macro("INPUTS"), self.macro("OUTPUTS")
        x, y = self.programs["predict"].inputs["X"], self.programs["predict"].outputs["Y"]
        yield from self.comment()
        yield "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
        if not is_open:
            yield f"#ifdef {N}\n#error this file is for {batch_size} examples: write one for another number\n#endif"
        yield f"#ifndef {N}\n#define {N} {batch_size} /* examples at a time */\n#endif"
        yield f"#define {D} {int(x.shape[1])}\n#define {K} {int(y.shape[1])}\n"
        for name, S in self.supports.items():
            yield from self.table("int32_t", f"{self.named(name)}_starts", S.starts)
            yield from self.table("int32_t", f"{self.named(name)}_columns", S.columns)
        for name, A in self.state.items():
            yield from self.table(
                TYPES[A.dtype.name], self.named(name), A, name not in self.variable, name in self.loaded
            )
        yield "#define FOR(i, n) for (int32_t i = 0; i < (n); i++)"
        code = "\n".join(self.functions)
        called = {name for name in HELPERS if f" {name}(" in code or f"({name}(" in code}
        called |= {"mix"} if "uniform" in called else set()
        yield from (self.of_type(text) for name, text in HELPERS.items() if name in called)
        yield from self.functions
        if self.loaded:
            yield from self.loader()

    def comment(self) -> Iterator[str]:
        """What the file is."""
        T, train = TYPES[self.real], "train" in self.programs
        yield f"/* {self.name}: written by matgrad, in C99 with static memory alone.\n"
        N, K = self.macro("N"), self.macro("OUTPUTS")
        yield f"   void {self.name}_predict(const {T} *X, {T} *Y);     Y ({N} x {K}) of X"
        if train:
            yield f"   void {self.name}_train(const {T} *X, const {T} *T, {T} eta);     one step with the targets T"
        if self.loaded:
            yield f"   void {self.name}_load(const void *weights);     before: the content of the file of weights"
        yield "*/"

    # -- names and sizes ----------------------------------------------------------------------------
    def named(self, name: str) -> str:
        """The variable of an entry of the state."""
        own = re.sub(f"{re.escape(SUPPORT)}$", "_S", name)
        return f"{self.name}_{re.sub('[^A-Za-z0-9]', '_', own)}"

    def macro(self, name: str) -> str:
        """A macro of the file."""
        return f"{self.name.upper()}_{name}"

    def size(self, n: Any) -> str:
        """A size: what depends on the number of examples is a product with its macro."""
        if not isinstance(n, Size) or is_number_of_elements(n):
            return str(int(n))
        first, *others = n.name.split(TIMES)
        if first != "N" or not all(x.isdigit() for x in others):  # another size is that number too
            return str(int(n))
        return f"({' * '.join([self.macro('N'), *others])})" if others else self.macro("N")

    def of_type(self, text: str) -> str:
        """Code for the type of the numbers, whose functions in C end in f if they are floats."""
        f, T = ("f", "float") if self.real == "float32" else ("", "double")
        return re.sub(r"\breal\b", T, text).replace("@", f)

    def number(self, x: Any, dtype: str) -> str:
        """A number as a constant."""
        if dtype.startswith("int"):
            return str(int(x))
        if not math.isfinite(x):
            return "NAN" if math.isnan(x) else f"({'-' if x < 0 else ''}INFINITY)"
        text = str(np.dtype(dtype).type(x))
        text = text if re.search("[.e]", text) else f"{text}.0"
        text += "f" if dtype == "float32" else ""
        return f"({text})" if x < 0 else text

    def table(
        self, kind: str, name: str, A: np.ndarray, is_const: bool = True, is_empty: bool = False
    ) -> Iterator[str]:
        """A variable with its numbers."""
        dtype = next(dtype for dtype, C in TYPES.items() if C == kind)
        size, before = max(A.size, 1), "static const " if is_const else ""
        if is_empty:
            yield f"{kind} {name}[{size}];"
            return
        yield f"{before}{kind} {name}[{size}] = {{"
        numbers = [self.number(x, dtype) for x in np.reshape(A, -1)] or ["0"]
        for k in range(0, len(numbers), 10):
            yield f"{INDENT}{', '.join(numbers[k : k + 10])},"
        yield "};"

    def loader(self) -> Iterator[str]:
        """The function that reads the file of weights."""
        yield f"\nvoid {self.name}_load(const void *weights) {{\n{INDENT}const char *from = weights;"
        for name in self.loaded:
            x = self.named(name)
            yield f"{INDENT}memcpy({x}, from, sizeof {x});\n{INDENT}from += sizeof {x};"
        yield f"{INDENT}(void)from;\n}}"

    # -- functions ----------------------------------------------------------------------------------
    def function(self, what: str, program: Program) -> Iterator[str]:
        """Feedforward or a step."""
        T, body = TYPES[self.real], Function(self, what, program)
        arguments = {"predict": f"const {T} *X, {T} *Y", "train": f"const {T} *X, const {T} *T, {T} eta"}
        read = {x.name for x in program.values}
        statements = body.statements()
        yield f"\nvoid {self.name}_{what}({arguments[what]}) {{"
        for buffer, name in body.local.items():
            yield f"{INDENT}static {TYPES[buffer.dtype]} {name}[{body.count(buffer.shape)}];"
        yield from (f"{INDENT}(void){x};" for x in ("X", "T", "eta") if x in program.inputs and x not in read)
        yield from statements
        yield "}"


class Function:
    """The statements of a program."""

    def __init__(self, writer: Writer, what: str, program: Program) -> None:
        self.writer, self.program, self.plan = writer, program, Plan(program)
        self.size, self.number = writer.size, writer.number
        used = dict.fromkeys(self.plan.buffers[v] for v in program.values if v in self.plan.buffers)
        used |= dict.fromkeys(b for pair in self.plan.copies for b in pair)
        self.local = {b: f"v{k}" for k, b in enumerate(b for b in used if not b.name)}
        f = "f" if writer.real == "float32" else ""

        class Element(ScalarWriter):
            call, power = f"{{function}}{f}({{argument}})", "power({base}, {exponent})"
            step, number = f"({{argument}} >= 0 ? 1.0{f} : 0.0{f})", f"{{number}}.0{f}"

        self.element = Element

    def count(self, shape: Any) -> str:
        """The number of elements of a buffer."""
        return " * ".join(map(self.size, shape)) or "1"

    def variable(self, buffer: Buffer) -> str:
        """What a buffer is called: an argument, a part of the state, or a local array."""
        if not buffer.name:
            return self.local[buffer]
        return buffer.name if buffer.name in ("X", "T", "Y", "eta") else self.writer.named(buffer.name)

    def at(self, x: Value, i: str = "0", j: str = "0") -> str:
        """The element of a value at row i and column j, or a scalar."""
        if x.operation == "number":
            n: Any = x.number
            text = self.size(n) if isinstance(n, Size) else self.number(n, x.dtype)
            return f"({TYPES[x.dtype]}){text}" if isinstance(n, Size) else text
        match x.operation:
            case "transpose":
                return self.at(x.operands[0], j, i)
            case "row_repeat":
                return self.at(x.operands[0], "0", j)
            case "column_repeat":
                return self.at(x.operands[0], i, "0")
            case "full":
                return self.at(x.operands[0])
            case "stack" | "unstack":
                return f"{self.memory(x)}[{self.place(x, i, j)}]"
        name = self.variable(self.plan.buffers[x])
        return name if name == "eta" else f"{name}[{self.place(x, i, j) if x.shape else 0}]"

    def memory(self, x: Value) -> str:
        """The array of a value whose rows follow each other."""
        while x.operation in ("stack", "unstack"):
            (x,) = x.operands
        return self.variable(self.plan.buffers[x])

    def place(self, x: Value, i: str, j: str) -> str:
        """The index of an element in its array."""
        columns = self.size(x.shape[1])
        row = "" if i == "0" or (isinstance(x.shape[0], int) and x.shape[0] == 1) else i
        if columns == "1":
            return row or "0"
        i = i if i.isalnum() else f"({i})"
        return " + ".join(filter(None, (f"{i} * {columns}" if row else "", j if j != "0" or not row else "")))

    def statements(self) -> list[str]:
        """One for each value that is computed, and the copies at the end."""
        found = [line for x in self.program.instructions if x.kind != "view" for line in self.statement(x)]
        for to, source in self.plan.copies:
            a, b = self.variable(to), self.variable(source)
            found.append(f"{INDENT}memcpy({a}, {b}, sizeof(*{a}) * ({self.count(to.shape)}));")
        return found

    def statement(self, x: Value) -> Iterator[str]:
        """The loops that compute a value, after a comment with its equation."""
        row = OPERATIONS[x.operation]
        if row.kind == "collective":
            raise ValueError(f"{x.operation}: a program of several ranks cannot become C")
        yield f"{INDENT}/* {' '.join(filter(None, (x.name, x.operation)))}{': ' * bool(x.equation)}{x.equation} */"
        if row.scalar:
            operands = {letter: self.at(y, "i", "j") for letter, y in zip(row.letters, x.operands, strict=True)}
            text = f"{self.at(x, 'i', 'j')} = {self.element(**operands)(row.scalar)};"
            text = f"FOR(i, {self.size(x.shape[0])}) FOR(j, {self.size(x.shape[1])}) {text}" if x.shape else text
        else:
            text = self.written(x)
        yield from (f"{INDENT}{line}" for line in self.writer.of_type(text).splitlines())

    def written(self, x: Value) -> str:
        """The statement of an operation on matrices."""
        result, operands = Matrix(self, x), [Matrix(self, y) for y in x.operands]
        return STATEMENTS[x.operation](result, *operands)


class Matrix:
    """A value in a statement: ``A("i", "k")`` is an element, and it has `m` rows and `n` columns.

    A support has `starts`, and `column`, that of element e.
    """

    def __init__(self, function: Function, x: Value) -> None:
        self.function, self.x = function, x
        self.m, self.n = [*map(function.size, x.shape[:2]), "1", "1"][:2]
        if x.operation == "support":
            name = function.writer.named(x.name)
            self.starts, self.column = f"{name}_starts", f"{name}_columns[e]"

    def __call__(self, i: str = "0", j: str = "0") -> str:
        """The element at row i, column j."""
        return self.function.at(self.x, i, j)
