"""How to install what is missing."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command that installs an extra of the package, such as 'torch'."""
    return f"pip install '.[{extra}]' in a clone of matgrad, else pip install 'matgrad[{extra}]'"
