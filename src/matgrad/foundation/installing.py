"""How to install what is missing."""

from __future__ import annotations

from importlib.util import find_spec


def how_to_install(extra: str) -> str:
    """The command that installs an extra of the package, such as 'torch'."""
    return f"pip install '.[{extra}]' in a clone of matgrad, else pip install 'matgrad[{extra}]'"


def check_matplotlib() -> None:
    """Refuse to go on without matplotlib."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError(f"plots need matplotlib, which is not installed: {how_to_install('plot')}")
