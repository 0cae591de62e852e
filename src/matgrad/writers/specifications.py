"""What is said of arguments: "N D", "N K, Σ_K = 1", "> 0", "N < K" of labels, "T S ?" of masks, "= H" of sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from matgrad.index_notation.expressions import Entry, Expression, Factor, Rule
from matgrad.index_notation.sums import Sum, summed_over
from matgrad.index_notation.values import Array
from matgrad.writers.sizes import Atom, Atoms, Dims, Size, UnsupportedError, merged
from matgrad.writers.slots import counted, keys
from matgrad.writers.tensors import entry_name, places, symbols

KIND = re.compile(r"(?P<equal>=)?(?P<dims>[\w\s*·]*?)\s*(?P<kind>\?|>\s*0|<\s*\w+)?")
SUM = re.compile(r"(?:Σ|sum)_(?P<size>\w+)\s*=\s*(?P<value>-?\d+(?:/\d+)?)")
EXPECTED = '"N D", "B T 2*F", "> 0", "N K, Σ_K = 1", "N < K" for labels, "T S ?" for masks or "= H" for a size'


class Specification(NamedTuple):
    """The shape of an argument, its kind ('', '>0', '?', '<K' or '='), and what its sums over sizes are."""

    dims: Dims
    kind: str = ""
    sums: tuple[tuple[str, Fraction], ...] = ()

    @property
    def is_differentiable(self) -> bool:
        """Whether there is a gradient with respect to it; a positive number is a constant such as ε."""
        return self.kind == "" or (self.kind == ">0" and bool(self.dims))

    @property
    def names(self) -> set[str]:
        """The sizes in it."""
        return {a for d in self.dims for a in d if isinstance(a, str)} | (
            {self.kind[1:]} if self.kind[:1] == "<" else set()
        )

    def divided(self, size: str, atoms: Atoms) -> Specification:
        """With a product in place of a size."""
        dims = tuple(merged(b for a in d for b in (atoms if a == size else (a,))) for d in self.dims)
        return self._replace(dims=dims)

    def turned(self) -> Specification:
        """With numbers last in products, whose order a size does not say."""
        dims = (tuple(sorted(d, key=lambda a: isinstance(a, int))) for d in self.dims)
        return self._replace(dims=tuple(map(merged, dims)))

    def symbol(self, name: str) -> Any:
        """The argument as a tensor, or as a size."""
        return Size(self.dims[0]) if self.kind == "=" else symbols(name, self.dims, self.kind)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
        """Numbers for it, with two decimals."""
        shape = [a if isinstance(a, int) else sizes[a] for d in self.dims for a in d]
        if self.kind == "=":
            return int(np.prod(shape))
        full = [Size(d).value(sizes) for d in self.dims]
        if self.kind.startswith("<"):
            return rng.integers(0, sizes[self.kind[1:]], shape).reshape(full)
        if self.kind == "?":
            mask = rng.random(shape) < 0.4
            mask[..., :1] = False  # softmax has no value where all of a row is masked
            return mask.reshape(full)
        x = np.round(rng.normal(size=shape), 2) + 0.003  # nothing is 0
        x = np.abs(x) + 0.2 if self.kind == ">0" else x
        for size, value in self.sums:
            axes = tuple(i for i, a in enumerate(a for d in self.dims for a in d) if a == size)
            x = x + (float(value) - x.sum(axes, keepdims=True)) / sizes[size]
        return x.reshape(full)


def specification(text: str) -> Specification:
    """What a text such as "N K, Σ_K = 1" says."""
    first, *others = (part.strip() for part in text.split(","))
    kind, sums = "", []
    for part in others:
        found = SUM.fullmatch(part)
        if found is None and re.sub(r"\s", "", part) != ">0":
            raise ValueError(f"{text!r}: expected {EXPECTED}")
        kind = kind if found else ">0"
        sums += [(found["size"], Fraction(found["value"]))] if found else []
    match = KIND.fullmatch(first)
    if match is None:
        raise ValueError(f"{text!r}: expected {EXPECTED}")
    kind = "=" if match["equal"] else re.sub(r"\s", "", match["kind"] or "") or kind
    words = [map(_atom, re.split(r"[*·]", word)) for word in match["dims"].split()]
    dims = tuple(merged(a for a in word if a != 1) for word in words)
    if match["equal"] and (len(dims) != 1 or match["kind"]):
        raise ValueError(f"{text!r}: expected one size after =, such as '= H'")
    result = Specification(dims, kind, tuple(sums))
    if unknown := [size for size, _ in sums if size not in result.names]:
        raise ValueError(f"{text!r}: {unknown[0]} is no size of it")
    return result


def _atom(word: str) -> Atom:
    if word.isdigit() and int(word):
        return int(word)
    if not re.fullmatch(r"[^\W\d_]\w*", word):
        raise ValueError(f"{word!r} is no size: expected a name or a number of 1 or more")
    return word


def argument(text: str) -> Any:
    """What is given in a command line: a number or a constant of Python, or a specification."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return text if isinstance(value, tuple | list | dict | set) else value


def part_values(name: str, dims: Dims, array: Any, sizes: Mapping[str, int]) -> dict[str, Array]:
    """The arrays of the parts of an array, by the names of their entries."""
    atoms = [a for d in dims for a in d]
    full = np.asarray(array).reshape([a if isinstance(a, int) else sizes[a] for a in atoms])
    return {entry_name(name, key): full[places(atoms, key)] for key in keys(dims)}


class SumRule(NamedTuple):
    """Σ_k t_ik = 1, over indices of a size."""

    name: str
    size: str
    value: Fraction

    def of(self, f: Factor) -> Expression | None:
        """Σ_ik t_ik·e_i = Σ_i e_i"""
        if not isinstance(f, Sum) or self.name not in f.key:
            return None
        bound, body = f.opened()
        ((m, c),) = body.terms.items()
        for k in (k for k in bound if k.size == self.size):
            match [(g, p) for g, p in m if k in g.free]:
                case [(Entry(name=self.name) as g, 1)] if [*g.indices].count(k) == 1:
                    others = Expression({tuple(item for item in m if item[0] is not g): c * self.value})
                    return summed_over(bound - {k}, others)
        return None


def under(rules: Iterable[Rule], e: Expression) -> Expression:
    """An expression with rules applied until nothing changes."""
    for rule in rules:
        while (changed := e.mapped(rule)) != e:
            e = changed
    return e


def sum_rules(specifications: Mapping[str, Specification]) -> list[SumRule]:
    """The rules that arguments obey."""
    for name, s in specifications.items():
        if s.sums and counted(s.dims):
            raise UnsupportedError(f"sums of {name}, which has numbers in its shape")
    return [SumRule(name, size, value) for name, s in specifications.items() for size, value in s.sums]
