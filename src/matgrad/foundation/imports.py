"""Modules that are imported late, because they import what uses them, or that may be missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any


class deferred:
    """The function `name` of a module as a method: ``M.fit`` is ``training.fit`` with M as its first argument."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, instance: Any, owner: type) -> Any:
        function = getattr(import_module(self.module), self.name)
        return function if instance is None else MethodType(function, instance)


def how_to_install(extra: str) -> str:
    """The command that installs an extra of the package, such as 'torch'."""
    return f"pip install '.[{extra}]' in a clone of matgrad, else pip install 'matgrad[{extra}]'"


def check_installed(package: str, extra: str, what: str) -> None:
    """Raise if a package that something needs is missing."""
    if find_spec(package) is None:
        message = f"{what} need {package}, which is not installed: {how_to_install(extra)}"
        raise ModuleNotFoundError(message, name=package)


def check_matplotlib() -> None:
    """Raise without matplotlib."""
    check_installed("matplotlib", "plot", "plots")
