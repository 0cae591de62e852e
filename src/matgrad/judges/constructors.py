"""Constructors of layers, which are given numbers for sizes: what they ask about these, and what becomes of these."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from matgrad.foundation.callers import is_asked_by_user
from matgrad.foundation.numbers import as_number
from matgrad.inspection.following import FIXED
from matgrad.inspection.settings import SET_BY_MODELS, UnfollowedError, is_of_users, settings, texts
from matgrad.inspection.verdicts import suffixed
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.program.shapes import Questions

SMALL, LARGE = {"D": 5, "K": 7}, {"D": 11, "K": 13}  # with which layers are made
MORE = ((1, 1), (2, 3), (3, 2), (64, 65), (100, 128), (257, 130), (1031, 1021))  # D and K of layers that are looked at


def misfit(make: MakeLayer) -> str:
    """Where a layer of other sizes is not what the proof takes it for; '' if it is."""
    make = for_equal_sizes(make)
    given = make(*(Given(n, name, Questions(), []) for name, n in SMALL.items()))
    small, large = make(*SMALL.values()), make(*LARGE.values())
    for layer in (given, small, large):
        for cls in {base for _, part in layer.walk() for base in type(part).__mro__ if is_of_users(base)}:
            if changed := next((name for name in FIXED if name in vars(cls)), None):
                return f"{cls.__name__} changes {changed}, which a proof cannot follow"
    for D, K in (tuple(SMALL.values()), *MORE):
        try:
            layer = make(D, K)
        except ValueError:  # it does not exist in these sizes
            continue
        known = dict(zip(zip(SMALL.values(), LARGE.values(), strict=True), (D, K), strict=True))
        walks = [dict(x.walk()) for x in (given, small, large, layer)]
        kinds = [{path: type(part) for path, part in walk.items()} for walk in walks]
        if any(x != kinds[0] for x in kinds):
            return f"{type(given).__name__} has other parts for D = {D} and K = {K}"
        for path, part in walks[0].items():
            for name in set().union(*(vars(walk[path]) for walk in walks)) - {*SET_BY_MODELS}:
                if not all(name in vars(walk[path]) for walk in walks) or not _fits(
                    known, *(vars(walk[path])[name] for walk in walks)
                ):
                    return f"{type(part).__name__}.{suffixed(name, path)} is something else for D = {D} and K = {K}"
    return ""


def _fits(known: Mapping[tuple[int, int], int], x: Any, a: Any, b: Any, c: Any) -> bool:
    """Whether an attribute is x in a small layer with given sizes, a in it, b in a large one, and c in another."""
    if type(a) is np.ndarray and a.ndim == 2:
        shapes = [np.shape(x) for x in (x, a, b, c)]
        return shapes[0] == shapes[1] and all(known.get((m, n), m) == k for m, n, k in zip(*shapes[1:], strict=True))
    if type(a) is int and (a, b) in known:
        return x == a and known[a, b] == c
    if type(a) is float:
        return type(x) is type(c) is float
    return texts(settings("", x)) == texts(settings("", a))  # which the verdict names


# -- sizes that remember what is asked about them ------------------------------------------------

_COMPARISONS = {
    "lt": ("<", "≥"),
    "le": ("≤", ">"),
    "gt": (">", "≤"),
    "ge": ("≥", "<"),
    "eq": ("=", "≠"),
    "ne": ("≠", "="),
}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "·", "floordiv": "//", "mod": "%", "pow": "^"}


def check_type(name: str, x: Any) -> None:
    """Raise if a number or an array has operators of its own."""
    if isinstance(x, int | float | np.ndarray) and type(as_number(x)) not in (bool, int, float, np.ndarray, Given):
        raise UnfollowedError(f"{name} is of the type {type(x).__name__}, whose operators a proof cannot follow")


class Given(int):
    """A size that a constructor is given: `answers` gets what it asks, unless the answer is the same for all sizes."""

    name: str
    questions: Questions
    answers: list[str]

    def __new__(cls, number: int, name: str, questions: Questions, answers: list[str]) -> Given:
        """The number, called `name`."""
        given = super().__new__(cls, number)
        given.name, given.questions, given.answers = name, questions, answers
        return given

    def _compare(self, comparison: str, other: Any) -> Any:
        answer = getattr(int, f"__{comparison}__")(self, other)
        if answer is NotImplemented or not is_asked_by_user(2):
            return answer
        of = [getattr(operator, comparison)(n, other) for n in (1, 2, 10**9)]
        if self.name.isalpha() and type(other) in (int, float) and (other < 2 or other != int(other)):
            if of[0] != of[1]:
                self.questions.ones.add(self.name)
            if of[1] == of[2]:
                return answer
        is_same = isinstance(other, Given) and other.name == self.name
        if not is_same:
            holds, fails = _COMPARISONS[comparison]
            self.answers.append(f"{self.name} {holds if answer else fails} {getattr(other, 'name', other)}")
        return answer

    def _computed(self, operation: str, is_reflected: bool, other: Any) -> Any:
        result = getattr(int, f"__{'r' * is_reflected}{operation}__")(self, other)
        if type(result) is not int:
            return result
        left, right = (other, self) if is_reflected else (self, other)
        names = (getattr(x, "name", x) for x in (left, right))
        return Given(result, f"({f' {_ARITHMETIC[operation]} '.join(map(str, names))})", self.questions, self.answers)

    def _text(self, *options: Any) -> str:
        if is_asked_by_user():
            self.questions.others.append(f"for the text of the size {self.name}")
        return format(int(self), *options)

    __repr__ = __str__ = __format__ = _text

    def __hash__(self) -> int:
        if is_asked_by_user():
            self.questions.others.append(f"for the hash of the size {self.name}")
        return hash(int(self))


for _name in _COMPARISONS:
    setattr(Given, f"__{_name}__", lambda self, other, name=_name: self._compare(name, other))
for _name in _ARITHMETIC:
    setattr(Given, f"__{_name}__", lambda self, other, name=_name: self._computed(name, False, other))
    setattr(Given, f"__r{_name}__", lambda self, other, name=_name: self._computed(name, True, other))
