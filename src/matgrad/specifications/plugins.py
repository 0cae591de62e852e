"""Plugins: a user's own layers, activation functions, losses, rules and methods, from a Python file."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.callbacks import Callback
from matgrad.callbacks.methods import METHODS
from matgrad.layers import Layer
from matgrad.learning_rate import SCHEDULERS
from matgrad.loss_functions import LOSSES, LossFunction
from matgrad.optimizers import OPTIMIZERS
from matgrad.sparse.rules import GROWERS, PRUNERS, Grow, Prune
from matgrad.specifications.models import LAYERS
from matgrad.specifications.origins import PLUGINS, Plugin, plugin_of
from matgrad.specifications.parsing import stem
from matgrad.specifications.shaped import SHAPED
from matgrad.weight_initializers import INITIALIZERS

# a kind, in which a name means one thing; what is known by name; and what a plugin may define: classes with a base,
# and the ending that their names leave out
REGISTRIES: tuple[tuple[str, dict[str, Any], type | None, str], ...] = (
    ("layer or activation function", LAYERS, Layer, "Layer"),
    ("layer or activation function", ACTIVATIONS, ActivationFunction, "Activation"),
    ("layer or activation function", SHAPED, None, ""),
    ("loss", LOSSES, LossFunction, "Loss"),
    ("rule of pruning", PRUNERS, Prune, "Prune"),
    ("rule of growing", GROWERS, Grow, "Grow"),
    ("method", METHODS, Callback, "Callback"),
    ("optimizer", OPTIMIZERS, None, ""),
    ("learning rate scheduler", SCHEDULERS, None, ""),
    ("weight initializer", INITIALIZERS, None, ""),
)


def load_plugin(path: str | Path, *, changed: bool = False) -> ModuleType:
    """Run a Python file and make what it defines usable by name.

    These are layers, activation functions, losses, and rules and methods of sparse training, which are callbacks. The
    name is that of the class, without the ending Layer, Activation, Loss, Prune, Grow or Callback. It is an error if
    something of the package or of another plugin has the name; a file that is loaded again replaces what it defined.
    Models and checkpoints keep the name and the hash of the plugin, and are only loaded with the same content, unless
    `changed` says that another version of the plugin will do.
    """
    file = Path(path)
    name = f"plugin {str(path)!r}"
    if not file.is_file() or file.suffix != ".py":
        reason = "expected a Python file, with the ending .py" if file.is_file() else "no such file"
        raise ValueError(f"{name}: {reason}")
    content = file.read_bytes()
    plugin = Plugin(file.resolve(), hashlib.sha256(content).hexdigest(), changed)
    try:
        module, claims = _executed(file, content, f"matgrad_plugin_{file.stem}_{plugin.sha256[:16]}")
        _check_names(claims, plugin)
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{name}: {kind}{error}") from error
    for _, registry, *_ in REGISTRIES:
        for word in [word for word, x in registry.items() if plugin.is_same(plugin_of(x))]:
            del registry[word]
    for registry, word, thing in claims:
        registry[word] = thing
    PLUGINS[module.__name__] = plugin
    return module


Claim = tuple[dict[str, Any], str, Any]  # a registry, a name, and what it shall mean there


def _executed(file: Path, content: bytes, name: str) -> tuple[ModuleType, list[Claim]]:
    """The module that a file becomes when this content of it is run, not a cached one, and what it wants to define.

    The registries stay as they are, also where the file puts something there itself.
    """
    module = ModuleType(name)
    module.__file__ = str(file.absolute())
    before, previous = [(registry, dict(registry)) for _, registry, *_ in REGISTRIES], sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(content, file, "exec"), vars(module))
        after = [dict(registry) for registry, _ in before]
    except BaseException:
        del sys.modules[name]
        if previous is not None:
            sys.modules[name] = previous
        raise
    finally:
        for registry, known in before:
            registry.clear()
            registry.update(known)
    own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name]
    bases = [(registry, base, end) for _, registry, base, end in REGISTRIES if base is not None]
    claims = [(registry, stem(cls, end), cls) for registry, base, end in bases for cls in own if issubclass(cls, base)]
    if not claims:
        raise ValueError(f"no class in it derives from one of {', '.join(base.__name__ for _, base, _ in bases)}")
    for (registry, known), now in zip(before, after, strict=True):
        claims += [(registry, word, x) for word, x in now.items() if known.get(word) is not x]
    if wrong := [word for _, word, x in claims if not callable(x)]:
        raise ValueError(f"{wrong[0]!r}: expected a class")
    return module, claims


def _check_names(claims: list[Claim], plugin: Plugin) -> None:
    """Raise if a name that a plugin claims means something else: in the package, another plugin, or the same one."""
    known = [(kind, word, x) for kind, registry, *_ in REGISTRIES for word, x in registry.items()]
    taken = {(kind, word): x for kind, word, x in known if not plugin.is_same(plugin_of(x))}
    for registry, word, thing in claims:
        kind = next(kind for kind, names, *_ in REGISTRIES if names is registry)
        other: Any = taken.setdefault((kind, word), thing)
        if other is not thing:
            owner = plugin_of(other)
            whose = "the package" if owner is None else str(owner.path)
            if getattr(other, "__module__", None) == thing.__module__:
                whose = f"this file, {other.__qualname__},"
            raise ValueError(f"there is a {kind} {word!r} in {whose} already; rename {thing.__qualname__}")
