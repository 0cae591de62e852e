"""How to install what is missing."""

from __future__ import annotations

from importlib.util import find_spec


def how_to_install(extra: str) -> str:
    """The command that installs an extra of the package, such as 'torch'."""
    return f"pip install '.[{extra}]' in a clone of matgrad, else pip install 'matgrad[{extra}]'"


def check_matplotlib() -> None:
    """Raise without matplotlib."""
    _check("plots", "matplotlib", "plot")


def check_tensorboard() -> None:
    """Raise without tensorboard."""
    _check("event files", "tensorboard", "tensorboard")


def _check(what: str, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"{what} need {package}, which is not installed: {how_to_install(extra)}")
