"""Specifications: strings such as ``Momentum(mu=0.9)``, with one parser for all of them.

Arguments are positional or by keyword, separated by commas. Where one argument is itself a list,
semicolons separate the arguments and commas the elements: ``MultiStepLR(0.1; 10, 15; 0.1)``. An argument may be
a specification: ``WarmUp(5; Cosine(0.1; 50))``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from matgrad.foundation.limits import FLOAT32, NESTED, check_count

T = TypeVar("T")
Items = str | float | Iterable[object]  # a list such as "784;1024;10" or [784, 1024, 10], or its only item


@dataclass
class Call:
    """A name with its positional and keyword arguments."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)


def parse_call(specification: str) -> Call:
    """The parts of ``Name``, ``Name()``, ``Name(1, 2.5)``, ``Name(a=1; b=2, 3)`` or ``Name(1, Other(2))``.

    An argument that is itself a specification stays a string.
    """
    if not isinstance(specification, str):
        raise TypeError(f"expected a string such as 'Name(argument, ...)', found {specification!r}")
    match = _CALL.fullmatch(specification)
    body = "" if match is None else match[2] or ""
    depths = _depths(body)
    if match is None or min(depths) < 0 or depths[-1] != 0:
        raise ValueError(f"cannot read {specification!r}: expected Name or Name(argument, ...)")
    check_count(max(depths), NESTED, _shortened(specification), "specifications inside each other")
    call = Call(match[1])
    lists = (_split(body, separator) for separator in ";,")
    items = next((items for items in lists if len(items) > 1), [body] if body.strip() else [])
    for position, item in enumerate(items, start=1):
        found = _ARGUMENT.fullmatch(item)
        keyword, value = found.groups() if found else (None, "")
        parts = [part.strip() for part in _split(value, ",")]
        if keyword in call.keywords or not all(part and ("(" not in part or _CALL.fullmatch(part)) for part in parts):
            raise ValueError(f"cannot read argument {position} of {specification!r}: {item.strip()!r}")
        if keyword:
            call.keywords[keyword] = _value(value)
        elif call.keywords:
            raise ValueError(f"argument {position} of {specification!r} needs a keyword, like those before it")
        else:
            call.arguments.append(_value(value))
    return call


def create(specification: str, registry: Mapping[str, Callable[..., T]], kind: str, *first: Any, **options: Any) -> T:
    """What the specification names in the registry, called with `first`, its arguments and `options`.

    `kind` is what the registry holds, such as 'optimizer', for the error messages.
    """
    call = parse_call(specification)
    factory = lookup(call.name, registry, kind)
    signature = signature_of(factory)
    try:
        bound = signature.bind(*first, *call.arguments, **call.keywords, **options)
        for name, value in bound.arguments.items():
            fits, noun = _KINDS.get(signature.parameters[name].annotation, (lambda value: True, ""))
            if not fits(value):
                raise TypeError(f"expected {noun} for {name!r}, found {_shortened(value)}")
    except TypeError as error:
        allowed = [p for p in list(signature.parameters.values())[len(first) :] if p.name not in options]
        words = (p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in allowed)
        usage = f"{call.name}({', '.join(words)})"
        raise ValueError(f"{kind} {specification!r}: {error}; usage: {usage}") from None
    return factory(*bound.args, **bound.kwargs)


def resolve(specification: Any, base: type[T], registry: Mapping[str, Callable[..., T]], kind: str) -> T:
    """What the specification names; an object of class `base` is returned as it is."""
    if isinstance(specification, base):
        return specification
    if not isinstance(specification, str):
        raise TypeError(f"{kind}: expected a {base.__name__} or its name, found {specification!r}")
    return create(specification, registry, kind)


def stem(cls: type, ending: str) -> str:
    """The name by which a class is found: its own without the ending, such as ``LossAware`` for LossAwareLoss."""
    return cls.__name__.removesuffix(ending) or cls.__name__


def describe(thing: object, ending: str = "", without: Iterable[str] = ()) -> str:
    """The name of a class without the ending, and the attributes that differ from the defaults of its constructor.

    Those called as in `without` are left out, and so is ``*layers``, which no specification can name.
    """
    cls: type = type(thing)
    signature = signature_of(cls)
    parameters = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_POSITIONAL}
    values = {name: value for name, value in vars(thing).items() if name in {*parameters} - {*without}}
    # a matrix, which compares element by element, equals no default
    equal = {name for name, x in values.items() if getattr(x, "shape", ()) == () and x == parameters[name].default}
    changed = [f"{name}={value!r}" for name, value in values.items() if name not in equal]
    return stem(type(thing), ending) + (f"({', '.join(changed)})" if changed else "")


def parse_numbers(items: Items, kind: str, number: type[int] | type[float] = int) -> list[Any]:
    """The numbers of a list such as ``784;1024;512;10`` or ``[784, 1024, 512, 10]``."""
    numbers: list[Any] = []
    for item in split_items(items, kind):
        try:
            numbers.append(number(item))
        except ValueError:
            noun = "an integer" if number is int else "a number"
            raise ValueError(f"{kind} {len(numbers) + 1}: expected {noun}, found {_shortened(item)}") from None
    return numbers


def split_items(items: Items, kind: str) -> list[str]:
    """The items of a list, which is a sequence, one item, or a string with semicolons or commas outside parentheses."""
    if not isinstance(items, str):
        return [str(item) for item in (items if isinstance(items, Iterable) else [items])]
    found = [item.strip() for item in _split(items, ";,")]
    if "" in found:
        raise ValueError(f"{kind} {found.index('') + 1} of {items!r} is empty")
    return found


@contextmanager
def at_position(kind: str, position: int) -> Iterator[None]:
    """ValueErrors inside begin with the kind of an item and its position."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{kind} {position}: {error}") from None


def lookup(name: str, registry: Mapping[str, T], kind: str) -> T:
    """The entry called `name`; an error lists the names that exist and suggests the nearest one."""
    if name in registry:
        return registry[name]
    lower = {known.lower(): known for known in registry}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    suggestion = f"; did you mean {lower[near[0]]!r}?" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{suggestion} (known: {', '.join(registry)})")


@cache
def signature_of(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature of a factory; if it is a class with ``**options`` for its base, with the keywords of that."""
    signature = inspect.signature(factory)
    found = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
    if not isinstance(factory, type) or len(found) == len(signature.parameters):
        return signature
    for constructor in (vars(cls)["__init__"] for cls in factory.__mro__ if "__init__" in vars(cls)):
        parameters = inspect.signature(constructor).parameters.values()
        found |= {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in found}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return signature.replace(parameters=list(found.values()))


_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\s*([^\W\d]\w*)\s*=)?([^(=]*(?:\(.*)?)", re.DOTALL)


def _depths(string: str) -> list[int]:
    """How many parentheses are open before each character, and at the end."""
    return [*accumulate(({"(": 1, ")": -1}.get(character, 0) for character in string), initial=0)]


def _split(string: str, separators: str) -> list[str]:
    """The parts of a string between separators outside parentheses."""
    depths = _depths(string)
    cuts = [i for i, character in enumerate(string) if character in separators and depths[i] == 0]
    return [string[before + 1 : cut] for before, cut in pairwise([-1, *cuts, len(string)])]


def _value(string: str) -> Any:
    """A number, True, False, a word, a specification, or a list of those."""
    if len(items := _split(string, ",")) > 1:
        return [_value(item) for item in items]
    string = string.strip()
    if string in ("True", "False"):
        return string == "True"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(string)
    return string


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


_KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {  # by the annotation of a parameter
    "float": (lambda x: _is_number(x) and abs(x) <= FLOAT32, "a finite float32 number"),
    "int": (lambda x: _is_number(x) and isinstance(x, int), "an integer"),
    "bool": (lambda x: isinstance(x, bool), "True or False"),
    "str": (lambda x: isinstance(x, str), "a word"),
}


def _shortened(value: Any) -> str:
    """A value in messages."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
