"""Plain values (numbers, strings, lists and tables) from JSON, YAML and TOML, within limits, checked by schemas."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from matgrad.foundation.files import why_unreadable
from matgrad.foundation.limits import CONFIGURATION, DEPTH, JSON, check_count

T = TypeVar("T")


def parse_json(text: str, *, finite: bool = True) -> Any:
    """The value of a JSON string; raise if it nests deeply, has a name twice or, if `finite`, NaN or inf."""
    check_count(len(text), JSON, "JSON", "characters")
    try:
        value = json.loads(text, object_pairs_hook=_table, parse_constant=_raise_constant if finite else None)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check_depth(value)
    return value


def parse_toml(text: str) -> Any:
    """The table of a TOML string."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check_depth(value)
    return value


def parse_yaml(text: str) -> Any:
    """The value of a YAML string; raise if it has aliases, with which a few lines could become billions."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            table = super().construct_mapping(node, deep)
            return table if len(table) == len(node.value) else _table(self.construct_pairs(node))

    try:
        value = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (TypeError, LookupError, AttributeError, OverflowError) as error:  # of scalars with odd tags
        raise ValueError(f"an invalid YAML file ({error})") from None
    _check_depth(value)
    return value


PARSERS: dict[str, tuple[Callable[[str], Any], int]] = {  # by the ending of a file, with the most bytes it may have
    ".toml": (parse_toml, CONFIGURATION),
    ".yaml": (parse_yaml, CONFIGURATION),
    ".yml": (parse_yaml, CONFIGURATION),
    ".json": (parse_json, JSON),
}

TOO_DEEP = f"lists or tables are nested too deeply, expected at most {DEPTH} inside each other"


def read_plain_values(path: Path) -> Any:
    """The value in a TOML, YAML or JSON file."""
    if path.suffix not in PARSERS:
        raise ValueError(f"{path}: expected a file that ends in .toml, .yaml, .yml or .json")
    return read_text(path, *PARSERS[path.suffix])


def read_json(path: Path) -> Any:
    """The value in a JSON file of any name."""
    return read_text(path, *PARSERS[".json"])


def read_text(path: Path, parse: Callable[[str], T], largest: int) -> T:
    """What a parser makes of the content of a file, which may have so many bytes."""
    try:
        with open(path, "rb") as file:
            content = file.read(largest + 1)
        check_count(len(content), largest, "file", "bytes or more")
        return parse(content.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: {why_unreadable(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def conform(value: Any, schema: type[T]) -> T:
    """The plain value as an object of the schema; a ValueError names the first place where it does not fit."""
    import msgspec

    return msgspec.convert(value, schema)


def _table(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The table of these pairs, after a check that no name occurs twice."""
    table: dict[Any, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} occurs twice")
        table[name] = value
    return table


def _raise_constant(name: str) -> None:
    raise ValueError(f"found {name}, expected a finite number")


def _check_depth(value: Any) -> None:
    """Raise if lists and tables are nested too deeply."""
    level = [value]
    for _ in range(DEPTH):
        level = [x for item in level for x in _items(item)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _items(value: Any) -> list[Any]:
    """The values in a list or table."""
    return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
