"""What the tests of index notation share: the numbers that expressions stand for, and random programs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import erf

from matgrad.index_notation.conditions import Step
from matgrad.index_notation.expressions import Delta, Entry, Expression, Factor, UndefinedError
from matgrad.index_notation.functions import Applied, Maximum
from matgrad.index_notation.indices import Index
from matgrad.index_notation.powers import Base, Constant
from matgrad.index_notation.sums import Sum
from matgrad.judges.index_judge import entry_of
from matgrad.matrix_operations import (
    Diag,
    apply,
    column_repeat,
    columns_max,
    columns_mean,
    columns_sum,
    diag,
    exp,
    hadamard,
    identity,
    inv_sqrt,
    log_sigmoid,
    ones,
    reciprocal,
    row_repeat,
    rows_max,
    rows_mean,
    rows_sum,
    step,
    tanh,
)
from matgrad.program.entries import IndexMatrix, symbols
from matgrad.program.shapes import Size
from matgrad.softmax_functions import log_softmax, softmax, stable_softmax

FUNCTIONS: dict[str, Callable[[float], float]] = {"exp": math.exp, "log": math.log, "erf": lambda x: float(erf(x))}


class Numbers:
    """Random numbers for entries and sizes, and the values of expressions by the definitions of their factors."""

    def __init__(self, sizes: Mapping[str, int], symbolic: Iterable[IndexMatrix], rng: np.random.Generator) -> None:
        self.sizes = sizes
        self.matrices = {entry_of(V).name: rng.uniform(0.3, 1.5, self.shape(V)) for V in symbolic}

    def shape(self, A: IndexMatrix) -> tuple[int, ...]:
        return tuple(math.prod(self.sizes[k.size] for k in i.parts) for i in A.indices)

    def matrix(self, A: IndexMatrix) -> np.ndarray:
        """The values of all entries."""
        indices = [k for i in A.indices for k in i.parts]
        places = (dict(zip(indices, at, strict=True)) for at in product(*(range(self.sizes[k.size]) for k in indices)))
        return np.array([self.value(A.entry, at) for at in places]).reshape(self.shape(A))

    def value(self, e: Expression, at: Mapping[Index, int]) -> float:
        return math.fsum(
            float(c) * math.prod(self.power(self.factor(f, at), p) for f, p in m) for m, c in e.terms.items()
        )

    def power(self, x: float, p: Fraction) -> float:
        return x ** int(p) if p.denominator == 1 else x ** float(p)

    def factor(self, f: Factor, at: Mapping[Index, int]) -> float:
        match f:
            case Entry(name=name) if name in self.sizes:
                return self.sizes[name]
            case Entry():
                shape = [self.sizes[i.size] for i in f.indices]
                return float(self.matrices[f.name].reshape(shape)[tuple(at[i] for i in f.indices)])
            case Delta():
                return float(at[f.i] == at[f.j])
            case Step():
                return float(self.value(f.argument, at) >= -1e-12)  # a maximum and what it is the maximum of are equal
            case Applied():
                return FUNCTIONS[f.function.name](self.value(f.argument, at))
            case Base():
                return self.value(f.expression, at)
            case Constant():
                return math.pi if f.name == "π" else float(f.name)
            case Maximum():
                return max(self.value(f.argument, {**at, f.index: k}) for k in range(self.sizes[f.index.size]))
            case Sum():
                ranges = [range(self.sizes[i.size]) for i in f.bound]
                places = ({**at, **dict(zip(f.bound, x, strict=True))} for x in product(*ranges))
                return math.fsum(math.prod(self.power(self.factor(g, x), p) for g, p in f.body) for x in places)
        raise TypeError(f)


# -- random programs over the table --------------------------------------------------------------

N, D, K = map(Size, "NDK")
INPUTS = {"X": (N, D), "W": (K, D), "Z": (N, K), "V": (N, D), "b": (1, K), "v": (N, 1)}
Matrix = Any


def centered(A: Matrix) -> Matrix:
    return A - row_repeat(columns_mean(A), A.shape[0])


def normalized(A: Matrix) -> Matrix:
    R = centered(A)
    return hadamard(row_repeat(inv_sqrt(columns_mean(hadamard(R, R)), 0.01), A.shape[0]), R)


def selected(A: Matrix, B: Matrix) -> Matrix:
    """The greater of the elements of A and 0.7 times those of B."""
    S = step(A - 0.7 * B)
    return hadamard(S, A) + 0.7 * hadamard(ones(*A.shape, like=A) - S, B)


UNARY: dict[str, Callable[[Matrix], Matrix]] = {
    "transpose": lambda A: A.T,
    "columns_sum": columns_sum,
    "rows_sum": rows_sum,
    "columns_mean": columns_mean,
    "rows_mean": rows_mean,
    "columns_max": columns_max,
    "rows_max": rows_max,
    "exp": lambda A: exp(A / 4),
    "tanh": tanh,
    "log_sigmoid": log_sigmoid,
    "cube": lambda A: apply(lambda x: x**3, A),
    "reciprocal": lambda A: reciprocal(ones(*A.shape, like=A) + hadamard(A, A)),
    "inv_sqrt": lambda A: inv_sqrt(hadamard(A, A), 0.01),
    "softmax": softmax,
    "stable_softmax": stable_softmax,
    "log_softmax": log_softmax,
    "centered": centered,
    "normalized": normalized,
    "Diag": Diag,
    "diag": diag,
    "Gram": lambda A: A @ A.T,
    "weighted": lambda A: A * ((A.shape[0] + 1) / A.shape[1]),
    "minus": lambda A: -A,
    "identity": lambda A: identity(A.shape[0], like=A) @ A,
}
BINARY: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "add": lambda A, B: A + B,
    "subtract": lambda A, B: A - B,
    "hadamard": hadamard,
    "selected": selected,
    "product": lambda A, B: A @ B,
    "product with a transpose": lambda A, B: A @ B.T,
    "product of a transpose": lambda A, B: A.T @ B,
    "column_repeat": lambda A, B: column_repeat(A, B.shape[1]),
    "row_repeat": lambda A, B: row_repeat(A, B.shape[0]),
}
Program = list[tuple[str, int, int]]  # operations, and the positions of their operands among what there is so far


def run(program: Program, inputs: Mapping[str, Matrix]) -> Matrix:
    """The last result of a program."""
    pool = [inputs[name] for name in INPUTS]
    for name, a, b in program:
        pool.append(UNARY[name](pool[a]) if name in UNARY else BINARY[name](pool[a], pool[b]))
    return pool[-1]


def random_program(rng: random.Random, length: int, sizes: Mapping[Size, Size] = MappingProxyType({})):
    """A program whose operations all have operands that fit, and its result in index notation."""
    pool = list(symbolic_inputs(sizes).values())
    program: Program = []
    while len(program) < length:
        name = rng.choice([*UNARY, *BINARY])
        a = rng.choice([*range(len(pool)), *range(max(0, len(pool) - 3), len(pool))])
        b = rng.randrange(len(pool))
        try:
            result = UNARY[name](pool[a]) if name in UNARY else BINARY[name](pool[a], pool[b])
            assert result.entry.key is not None
        except (TypeError, ValueError, UndefinedError, RecursionError):  # it does not fit, or has no form in reach
            continue
        program.append((name, a, b))
        pool.append(result)
    return program, pool[-1]


def symbolic_inputs(sizes: Mapping[Size, Size] = MappingProxyType({})) -> dict[str, IndexMatrix]:
    """The inputs, with other sizes in place of some."""
    return {name: symbols(name, *(sizes.get(n, n) for n in shape)) for name, shape in INPUTS.items()}
