"""`matgrad prove`: whether the gradients that foreign code computes are right, for all sizes."""

from __future__ import annotations

import importlib.util
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from matgrad.cli.commands import Command, echo, echo_json, json_option, option
from matgrad.cli.options import POSITIVE
from matgrad.writers import prove as prove_gradients
from matgrad.writers.specifications import argument


@click.command(cls=Command, short_help="Prove the gradients of PyTorch or JAX code for all sizes, or refute them.")
@click.argument("target", metavar="FILE:NAME")
@click.argument("shapes", nargs=-1, metavar="[ARGUMENT=SHAPE]…")
@option("Options", "--backward", metavar="NAME", help="The function with the gradients, if NAME has none of its own.")
@option("Options", "--wrt", metavar="NAMES", help="Only these arguments, separated by commas; none may be None.")
@option(
    "Options",
    "--reference",
    multiple=True,
    metavar="KERNEL=NAME",
    help="What computes the same as a kernel. Repeatable.",
)
@option("Options", "--surrogate", is_flag=True, help="It is no gradient by design: say what it is instead.")
@option("Options", "--seconds", type=POSITIVE, default=60, help="At most so long.")
@json_option
def prove(target: str, shapes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Prove for all sizes that NAME in a Python FILE computes its own gradients, or say what is missing.

    NAME is a torch.autograd.Function, an operator of torch.library.custom_op with register_autograd, a jax.custom_vjp
    or jax.custom_jvp, or a function or module with --backward. Its arguments are given by their shapes, of named sizes:

        matgrad prove losses.py:SoftCrossEntropy z="N K" t="N K, Σ_K = 1"

    Others are "> 0", a positive number; "N < K", labels; "T S ?", a mask; "= H", a size; or a number, as it is. The
    exit status is 0 if everything is proved, 1 if it is refuted, with numbers that show it, and otherwise 2.
    """
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise ValueError(f"{target!r}: expected FILE:NAME, such as losses.py:SoftCrossEntropy")
    module = loaded(Path(path))
    pairs = dict(_pair(text, "ARGUMENT=SHAPE") for text in shapes)
    kernels = dict(_pair(text, "KERNEL=NAME") for text in options["reference"])
    verdict = prove_gradients(
        found(module, name),
        {n: argument(text) for n, text in pairs.items()},
        backward=found(module, options["backward"]) if options["backward"] else None,
        wrt=options["wrt"].split(",") if options["wrt"] else None,
        reference={kernel: found(module, text) for kernel, text in kernels.items()},
        surrogate=options["surrogate"],
        seconds=options["seconds"],
    )
    if as_json:
        echo_json(verdict.as_json())
    else:
        echo(str(verdict))
    raise click.exceptions.Exit(verdict.status)


def loaded(path: Path) -> ModuleType:
    """The module of a file, imported as a part of its package if it is in one."""
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"{str(path)!r}: expected a Python file, with the ending .py")
    folder, names = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if len(names) > 1:
        return importlib.import_module(".".join(names))
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


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"{text!r}: expected {expected}")
    return name.strip(), value.strip()
