"""Methods that are functions of a module which imports their class; it is imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from types import MethodType
from typing import Any


class deferred:
    """The function `name` of a module as a method: ``M.fit`` is ``training.fit`` with M as its first argument."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, instance: Any, owner: type) -> Any:
        function = getattr(import_module(self.module), self.name)
        return function if instance is None else MethodType(function, instance)
