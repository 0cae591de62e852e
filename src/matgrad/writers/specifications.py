"""What is said of arguments: "N D", "N K, Σ_K = 1", "> 0", "N < K" of labels, "T S ?" of masks, "= H" of sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from matgrad.index_notation.values import Array
from matgrad.writers.sizes import Atom, Atoms, Dims, Less, Size, atoms_of, less, longer, merged, number, parted
from matgrad.writers.slots import keys
from matgrad.writers.tensors import entry_name, places, symbols

KIND = re.compile(r"(?P<equal>=)?(?P<dims>[\w\s*·+-]*?)\s*(?P<kind>\?|>\s*0|<\s*\w+)?")
SUM = re.compile(r"(?:Σ|sum)_(?P<size>\w+)\s*=\s*(?P<value>-?\d+(?:/\d+)?)")
T = r"\s*(?:ᵀ|\.T|\^T)\s*"
FACT = {  # what can be said of a matrix, in several spellings
    "symmetric": re.compile(rf"symmetric|(?P<S>\w+)\s*=\s*(?P=S){T}"),
    "QᵀQ": re.compile(rf"orthogonal|(?P<Q>\w+){T}@?\s*(?P=Q)\s*=\s*[1I]"),
    "QQᵀ": re.compile(rf"orthogonal|(?P<Q>\w+?)\s*@?\s*(?P=Q){T}=\s*[1I]"),
}
EXPECTED = (
    '"N D", "B T 2*F", "> 0", "N K, Σ_K = 1", "N N, S = Sᵀ", "N K, QᵀQ = 1", "N < K" for labels, '
    '"T S ?" for masks or "= H" for a size'
)


class Specification(NamedTuple):
    """The shape of an argument, its kind ('', '>0', '?', '<K' or '='), its sums over sizes, and other facts."""

    dims: Dims
    kind: str = ""
    sums: tuple[tuple[str, Fraction], ...] = ()
    facts: frozenset[str] = frozenset()  # of those in FACT

    @property
    def is_differentiable(self) -> bool:
        """Whether there is a gradient with respect to it; a positive number is a constant such as ε."""
        return self.kind == "" or (self.kind == ">0" and bool(self.dims))

    @property
    def names(self) -> set[str]:
        """The sizes in it."""
        return {parted(a)[0] for d in self.dims for a in d if isinstance(a, str)} | (
            {self.kind[1:]} if self.kind[:1] == "<" else set()
        )

    def divided(self, size: str, atoms: Atoms) -> Specification:
        """With a product in place of a size."""
        dims = tuple(merged(b for a in d for b in (atoms if a == size else (a,))) for d in self.dims)
        return self._replace(dims=dims)

    def lengthened(self, size: str, new: str, count: int) -> Specification:
        """With new - count in place of a size."""
        known = [[(a, *parted(a)) for a in d] for d in self.dims]
        dims = tuple(tuple(less(new, n + count) if base == size else a for a, base, n in d) for d in known)
        return self._replace(dims=dims)

    def turned(self) -> Specification:
        """With numbers last in products, whose order a size does not say."""
        dims = (tuple(sorted(d, key=lambda a: isinstance(a, int))) for d in self.dims)
        return self._replace(dims=tuple(map(merged, dims)))

    def symbol(self, name: str) -> Any:
        """The argument as a tensor, or as a size."""
        if self.kind == "=":
            return Size(self.dims[0])
        for a in (a for d in self.dims for a in atoms_of(Size(d))):
            longer(a, 0)
        return symbols(name, self.dims, self.kind)

    def sample(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
        """Numbers for it, with two decimals."""
        shape = [number(a, sizes) for d in self.dims for a in d]
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
            total = x.sum(axes, keepdims=True)
            x = x * float(value) / total if self.kind == ">0" else x + (float(value) - total) / sizes[size]
        if "symmetric" in self.facts:
            x = (x + x.swapaxes(-1, -2)) / 2
        if "QᵀQ" in self.facts:
            x = np.linalg.qr(x)[0]
        elif "QQᵀ" in self.facts:
            x = np.linalg.qr(x.swapaxes(-1, -2))[0].swapaxes(-1, -2)
        return x.reshape(full)

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether there is such an argument of these sizes, not empty: k orthogonal columns need k rows."""
        if any(isinstance(a, Less) and number(a, sizes) < 1 for d in self.dims for a in d):
            return False
        if not self.facts & {"QᵀQ", "QQᵀ"}:
            return True
        rows, columns = (Size(d).value(sizes) for d in self.dims[-2:])
        return ("QᵀQ" not in self.facts or rows >= columns) and ("QQᵀ" not in self.facts or rows <= columns)


def specification(text: str) -> Specification:
    """What a text such as "N K, Σ_K = 1" says."""
    first, *others = (part.strip() for part in text.split(","))
    match = KIND.fullmatch(first)
    if match is None:
        raise ValueError(f"{text!r}: expected {EXPECTED}")
    kind, sums, facts = re.sub(r"\s", "", match["kind"] or ""), list[tuple[str, Fraction]](), set[str]()
    for part in others:
        known = {name for name, pattern in FACT.items() if pattern.fullmatch(part)}
        if found := SUM.fullmatch(part):
            sums.append((found["size"], Fraction(found["value"])))
        elif re.sub(r"\s", "", part) == ">0" and not kind:
            kind = ">0"
        elif known:
            facts |= known
        else:
            raise ValueError(f"{text!r}: {part!r} is not known; expected {EXPECTED}")
    words = [map(_atom, re.split(r"[*·]", word)) for word in match["dims"].split()]
    dims = tuple(merged(a for a in word if a != 1) for word in words)
    if match["equal"] and (len(dims) != 1 or kind):
        raise ValueError(f"{text!r}: expected one size after =, such as '= H'")
    result = Specification(dims, "=" if match["equal"] else kind, tuple(sums), frozenset(facts))
    if unknown := [size for size, _ in sums if size not in result.names]:
        raise ValueError(f"{text!r}: {unknown[0]} is no size of it")
    if facts and (len(dims) < 2 or any(len(d) != 1 for d in dims[-2:]) or kind):
        raise ValueError(f"{text!r}: expected two sizes of a matrix, such as 'N N'")
    if dims[-2:] != dims[-2:][::-1] and ("symmetric" in facts or facts >= {"QᵀQ", "QQᵀ"}):
        raise ValueError(f"{text!r}: expected a square matrix, such as 'N N'")
    return result


def _atom(word: str) -> Atom:
    if word.isdigit() and int(word):
        return int(word)
    if match := re.fullmatch(r"([^\W\d_]\w*)([+-]\d+)", word):
        return less(match[1], -int(match[2]))
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
    full = np.asarray(array).reshape([number(a, sizes) for a in atoms])
    full = np.pad(full, [(0, parted(a)[1]) for a in atoms], "edge") if any(isinstance(a, Less) for a in atoms) else full
    return {entry_name(name, key): full[places(atoms, key)] for key in keys(dims)}
