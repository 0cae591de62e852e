"""Where classes come from: the plugins that were run, with the hashes that files keep of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict


class Origin(TypedDict):
    """What a file keeps of the plugin that defined a class: its name, and the SHA-256 of its content."""

    plugin: str
    sha256: str


class Plugin(NamedTuple):
    """A Python file that was run, the SHA-256 of its content, and whether files may be of another version of it."""

    path: Path
    sha256: str
    may_differ: bool

    @property
    def origin(self) -> Origin:
        """What files keep of it."""
        return {"plugin": self.path.name, "sha256": self.sha256}

    def is_same(self, other: Plugin | None) -> bool:
        """Whether another one is a version or a copy of this file."""
        return other is not None and (other.path == self.path or other.sha256 == self.sha256)


PLUGINS: dict[str, Plugin] = {}  # by the names of the modules that the files became


def plugin_of(thing: Any) -> Plugin | None:
    """The plugin that defined a class or a function; None for all others."""
    return PLUGINS.get(getattr(thing, "__module__", None) or "")


def origins(things: Iterable[object]) -> dict[str, Origin]:
    """The origins of the classes of some things, and of what they have as attributes, that plugins defined."""
    found = {cls.__name__: plugin_of(cls) for cls in _classes(things)}
    return {name: plugin.origin for name, plugin in found.items() if plugin is not None}


def check_origins(known: Mapping[str, Origin], things: Iterable[object], *, are_all_needed: bool = True) -> None:
    """Raise unless the classes that a file has from plugins are from the same ones here."""
    classes = {cls.__name__: cls for cls in _classes(things)}
    for name, origin in known.items():
        if name in classes or are_all_needed:
            check_plugin(origin, [plugin_of(classes.get(name))], f"{name!r} is")


def check_plugin(origin: Origin, found: Iterable[Plugin | None], what: str) -> None:
    """Raise unless one of the plugins is the one that a file names, or another version of it that is accepted."""
    plugins = [plugin for plugin in found if plugin is not None]
    if any(origin["sha256"] == plugin.sha256 or plugin.may_differ for plugin in plugins):
        return
    wanted = f"the plugin {origin['plugin']!r} with the SHA-256 {origin['sha256'][:64]!r}"
    if not plugins:
        raise ValueError(f"{what} from {wanted}: name it, with --plugin or mg.load_plugin")
    accept = f'--plugin "{plugins[0].path}, changed=allow" or mg.load_plugin(…, changed=True) accepts it'
    raise ValueError(f"{what} from {wanted}, and {plugins[0].path} has {plugins[0].sha256!r}; {accept}")


def _classes(things: Iterable[object]) -> Iterator[type]:
    """The classes, with their bases, of some things and of their attributes, also of those in lists and tables."""
    for thing in things:
        for x in (thing, *getattr(thing, "__dict__", {}).values()):
            items = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else (x,)
            for item in items:
                yield from (item if isinstance(item, type) else type(item)).__mro__
