"""Equations in LaTeX, with indices or of matrices, in numbers: what pages print is evaluated as a reader does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from scipy.special import erf, expit, softmax

TOKEN = re.compile(
    r"\\(?:mathsf|operatorname|text)\{(?P<word>\w+)\}(?P<letter>\\?[A-Za-z]*'?)?|\\[A-Za-z]+|\\\\|\d+|[A-Za-z]'?|\S"
)
SPACES = re.compile(r"(?<!\\)\\[,; ]|\\quad")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"\\sigma": expit, "erf": erf, "\\log": np.log, "\\cos": np.cos, "\\sin": np.sin, "diag": np.diagonal},
    **{"softmax": lambda x: softmax(x, -1), "\\min": np.minimum, "\\max": np.maximum},
}
DEFINED = ("h", "\\Phi")  # functions that pages define
ENDS = ("+", "-", ")", "}", "]", "=", ",", "&", "\\\\", "\\end", "\\leq")
Values = Mapping[str, Any]
Term = Callable[[Values, Mapping[str, int]], Any]  # of variables, and of numbers from 0 for indices


def tokens(text: str) -> list[str]:
    """The tokens: Dx for \\mathsf{D}x."""
    found = []
    for m in TOKEN.finditer(SPACES.sub(" ", text)):
        is_gradient = m["word"] == "D"
        found += (
            [f"D{m['letter']}"] if is_gradient else [m["word"], *filter(None, [m["letter"]])] if m["word"] else [m[0]]
        )
    return found


def times(a: Any, b: Any) -> Any:
    """a·b, which is a product of matrices if both are."""
    return a @ b if np.ndim(a) == np.ndim(b) == 2 else a[:, None] * b if np.ndim(a) == 1 else a * b


def entry(values: Values, name: str) -> Any:
    """A variable; its entries may be written in small letters."""
    return values[name if name in values else name[:-1] + name[-1].swapcase()]


class Equation:
    """left = right, read token by token; products of variables are those of matrices if they have capital letters."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, tokens(text)
        self.places: list[tuple[str, str, int]] = []  # an index, and where it stands
        self.is_in_bars = False
        self.is_matrix = bool(re.match(r"(\\mathsf\{D\})?[A-Z] ?=", text)) and not text.startswith("L")
        self.names = [self.next()] if self.tokens[0] != "(" else self.tuple()
        self.parameter = self.inside() if self.take("(") else None
        self.indices = self.subscript() if self.take("_") else []
        self.want("=")
        self.right = [self.sum()] if len(self.names) == 1 else self.terms()
        assert not self.tokens, (text, self.tokens)

    def next(self) -> str:
        return self.tokens.pop(0)

    def take(self, *wanted: str) -> str:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else ""

    def want(self, token: str) -> None:
        assert self.take(token), (self.text, token, self.tokens)

    def inside(self) -> str:
        name = self.next()
        self.want(")")
        return name

    def tuple(self) -> list[str]:
        self.want("(")
        found = [self.next()]
        while self.take(","):
            found.append(self.next())
        self.want(")")
        return found

    def terms(self) -> list[Term]:
        self.want("(")
        found = [self.sum()]
        while self.take(","):
            found.append(self.sum())
        self.want(")")
        return found

    def sum(self) -> Term:
        found = self.negative() if self.take("-") else self.product()
        while sign := self.take("+", "-"):
            a, b = found, self.product()
            found = (
                (lambda v, i, a=a, b=b: a(v, i) + b(v, i))
                if sign == "+"
                else (lambda v, i, a=a, b=b: a(v, i) - b(v, i))
            )
        return found

    def negative(self) -> Term:
        a = self.product()
        return lambda v, i: -a(v, i)

    def product(self) -> Term:
        found = self.power()
        while self.tokens and self.tokens[0] not in (*ENDS, *"|" * self.is_in_bars):
            is_entry, operator = self.take("\\odot"), self.take("/")
            a, b = found, self.power()
            if operator:
                found = lambda v, i, a=a, b=b: a(v, i) / b(v, i)  # noqa: E731
            elif self.is_matrix and not is_entry:
                found = lambda v, i, a=a, b=b: times(a(v, i), b(v, i))  # noqa: E731
            else:
                found = lambda v, i, a=a, b=b: a(v, i) * b(v, i)  # noqa: E731
        return found

    def power(self) -> Term:
        is_e, is_one = self.tokens[0] == "e", self.tokens[0] == "1"
        a = self.atom()
        while self.take("^"):
            if self.take("\\top"):
                return (lambda v, i: np.ones((1, 1))) if is_one else (lambda v, i, a=a: a(v, i).T)
            b = self.group()
            a = (lambda v, i, b=b: np.exp(b(v, i))) if is_e else (lambda v, i, a=a, b=b: a(v, i) ** b(v, i))
        return a

    def group(self) -> Term:
        if not self.take("{"):
            return self.atom()
        found = self.sum()
        self.want("}")
        return found

    def atom(self) -> Term:
        token = self.next()
        if token in ("(", "|", "["):
            outside, self.is_in_bars = self.is_in_bars, token == "|"
            a = self.sum()
            self.is_in_bars = outside
            if token == "[":
                self.want("=")
                self.places.append((self.tokens[0], "[]", 0))  # as many as there are classes
                b = self.sum()
                self.want("]")
                return lambda v, i: float(a(v, i) == b(v, i))
            self.want({"(": ")", "|": "|"}[token])
            return a if token == "(" else lambda v, i: size_of(a(v, i))
        if token == "\\frac":
            a, b = self.group(), self.group()
            return lambda v, i: a(v, i) / b(v, i)
        if token == "\\sqrt":
            a = self.group()
            return lambda v, i: np.sqrt(a(v, i))
        if token == "\\sum" or (token == "\\max" and self.tokens[0] == "_"):
            return self.over(np.sum if token == "\\sum" else np.max)
        if token == "\\begin":
            return self.cases()
        if token.isdigit():
            return lambda v, i: float(token)
        if token in FUNCTIONS:
            return self.function(FUNCTIONS[token])
        return self.variable(token)

    def function(self, f: Callable[..., Any]) -> Term:
        argument = self.tokens[1]
        arguments = self.terms() if self.tokens[0] == "(" else [self.power()]
        at = self.subscript() if self.take("_") else []
        self.places += [(k.__name__, argument, d) for d, k in enumerate(at)]
        return lambda v, i: (lambda x: x[tuple(k(v, i) for k in at)] if at else x)(f(*(a(v, i) for a in arguments)))

    def over(self, reduce: Callable[..., Any]) -> Term:
        self.want("_")
        start, braced = len(self.places), self.take("{")
        letters = [self.next()]
        while braced and not self.take("}"):
            letters.append(self.next())
        body = self.product()
        places = self.places[start:]

        def value(v: Values, i: Mapping[str, int]) -> Any:
            ranges = [range(extent(places, k, v)) for k in letters]
            return reduce([body(v, {**i, **dict(zip(letters, at, strict=True))}) for at in product(*ranges)])

        return value

    def cases(self) -> Term:
        del self.tokens[: self.tokens.index("}") + 1]  # {cases}
        a = self.sum()
        self.want("&")
        left = self.sum()
        self.want("\\leq")
        right = self.sum()
        self.want("\\\\")
        b = self.sum()
        self.tokens.clear()  # otherwise
        return lambda v, i: np.where(left(v, i) <= right(v, i), a(v, i), b(v, i))

    def subscript(self) -> list[Term]:
        if not self.take("{"):
            return [self.letter()]
        found = []
        while not self.take("}"):
            found.append(self.letter())
        return found

    def letter(self) -> Term:
        k = self.next()
        if self.take("_"):
            inner = self.letter()
            return lambda v, i: v[k][inner(v, i)]
        found: Term = lambda v, i: i[k]  # noqa: E731
        found.__name__ = k
        return found

    def variable(self, name: str) -> Term:
        at = self.subscript() if self.take("_") else []
        self.places += [(k.__name__, name, d) for d, k in enumerate(at)]
        if name in DEFINED and self.take("("):
            a = self.sum()
            self.want(")")
            return lambda v, i: v[name](a(v, i))
        if not at:
            return lambda v, i: i[name] if name in i else entry(v, name)
        return lambda v, i: entry(v, name)[tuple(k(v, i) for k in at)]

    def evaluate(self, values: dict[str, Any]) -> None:
        """Put what is defined into values."""
        if self.parameter is not None:
            values[self.names[0]] = lambda x: self.right[0]({**values, self.parameter: x}, {})
            return
        letters = [k.__name__ for k in self.indices]
        sizes = [extent(self.places, k, values) for k in letters]
        for name, right in zip(self.names, self.right, strict=True):
            if not letters:
                values[name] = right(values, {})
                continue
            found = np.zeros(sizes)
            for at in np.ndindex(*sizes):
                found[at] = right(values, dict(zip(letters, at, strict=True)))
            values[name] = found


def extent(places: list[tuple[str, str, int]], k: str, values: Values) -> int:
    """How many values an index has, by what it is an index of."""
    return next(int(np.shape(entry(values, name))[d]) for letter, name, d in places if letter == k)


def size_of(x: Any) -> Any:
    """|x|, for numbers; the norms of rows."""
    return np.abs(x) if np.ndim(x) == 0 else np.linalg.norm(x, axis=-1, keepdims=np.ndim(x) > 1)


def equations(text: str) -> Iterator[Equation]:
    """The equations in lines of a docstring."""
    for line in filter(str.strip, text.splitlines()):
        for part in re.split(r",\s*\\quad", line.strip()):
            if not re.fullmatch(r"\w = \(\w, \w\)", part.strip()):  # how an argument is divided
                yield Equation(part.strip())


def evaluated(text: str, given: Values) -> dict[str, Any]:
    """All variables that are defined, in the order in which they can be."""
    values, left = dict(given), [e for e in equations(text) if not {*e.names} <= {*given}]
    while left:
        ready = []
        for e in left:
            try:
                e.evaluate(values)
            except (KeyError, StopIteration, IndexError):
                ready.append(e)
        assert len(ready) < len(left), [e.text for e in ready]
        left = ready
    return values
