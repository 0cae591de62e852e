"""What is claimed in a file: the functions that @proved names, with what is said of their arguments."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from matgrad.writers.proving import prove
from matgrad.writers.texts import place_of
from matgrad.writers.verdicts import Verdict

F = TypeVar("F")


class Claim(NamedTuple):
    """What a file claims of a function: that prove(function, **said) proves it."""

    function: Any
    said: dict[str, Any]
    file: str

    @property
    def name(self) -> str:
        """The name of the function, or of the class of a module."""
        return getattr(self.function, "__name__", None) or type(self.function).__name__

    def verdict(self, **more: Any) -> Verdict:
        """What is known of it."""
        return prove(self.function, **self.said | more)


CLAIMS: list[Claim] = []


def proved(**said: Any) -> Callable[[F], F]:
    """Claim that gradients are right, for `matgrad prove FILE` and `pytest --matgrad`; nothing else happens.

    What is said is what `prove` takes: @proved(x="N D", eps="> 0"), also with backward=, reference= and so on.
    """
    file = sys._getframe(1).f_globals.get("__file__", "")

    def noted(function: F) -> F:
        CLAIMS.append(Claim(function, said, file))
        return function

    return noted


def claims_of(module: ModuleType) -> list[Claim]:
    """The claims in a module."""
    return [claim for claim in CLAIMS if claim.file == module.__file__]


def has_claims(path: Path) -> bool:
    """Whether the text of a file may have claims in it, so that it is worth importing."""
    return path.suffix == ".py" and "proved(" in path.read_text(errors="replace")


def loaded(path: Path) -> ModuleType:
    """The module of a file, imported as a part of its package if it is in one."""
    if path.suffix == ".py" and not path.is_file():
        raise ValueError(f"{str(path)!r}: there is no such file")
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"{str(path)!r}: expected a Python file, with the ending .py")
    folder, names = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    known = sys.modules.get(".".join(names))
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve():
        return known
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(".".join(names)) if len(names) > 1 else _executed(path)
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {error}{place_of(error)}") from error


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def found(module: ModuleType, name: str) -> Any:
    """What has a name, which may have dots, in a module."""
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        known = [n for n, x in vars(module).items() if getattr(x, "__module__", None) == module.__name__]
        raise ValueError(f"{module.__name__} has no {name!r}; it has {', '.join(known) or 'nothing'}") from None
