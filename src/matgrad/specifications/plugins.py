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
from matgrad.sparse.growing import GROWERS, Grow
from matgrad.sparse.pruning import PRUNERS, Prune
from matgrad.specifications.models import LAYERS
from matgrad.specifications.origins import PLUGINS, Plugin, plugin_of
from matgrad.specifications.parsing import stem
from matgrad.weight_initializers import INITIALIZERS

# what a plugin may define: a base class, the classes by name, and the ending that the names leave out
REGISTRIES: tuple[tuple[type, dict, str], ...] = (
    (Layer, LAYERS, "Layer"),
    (ActivationFunction, ACTIVATIONS, "Activation"),
    (LossFunction, LOSSES, "Loss"),
    (Prune, PRUNERS, "Prune"),
    (Grow, GROWERS, "Grow"),
    (Callback, METHODS, "Callback"),
)
SPACES: tuple[tuple[str, tuple[dict[str, Any], ...]], ...] = (  # in each of which a name means one thing
    ("layer or activation function", (LAYERS, ACTIVATIONS)),
    ("loss", (LOSSES,)),
    ("rule of pruning", (PRUNERS,)),
    ("rule of growing", (GROWERS,)),
    ("method", (METHODS,)),
    ("optimizer", (OPTIMIZERS,)),
    ("learning rate scheduler", (SCHEDULERS,)),
    ("weight initializer", (INITIALIZERS,)),
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
    for registry in (registry for _, registries in SPACES for registry in registries):
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
    registries = [registry for _, registries in SPACES for registry in registries]
    before, previous = [dict(registry) for registry in registries], sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(content, file, "exec"), vars(module))
        after = [dict(registry) for registry in registries]
    except BaseException:
        del sys.modules[name]
        if previous is not None:
            sys.modules[name] = previous
        raise
    finally:
        for registry, known in zip(registries, before, strict=True):
            registry.clear()
            registry.update(known)
    own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name]
    claims = [(names, stem(cls, end), cls) for base, names, end in REGISTRIES for cls in own if issubclass(cls, base)]
    if not claims:
        bases = ", ".join(base.__name__ for base, *_ in REGISTRIES)
        raise ValueError(f"no class in it derives from one of {bases}")
    for registry, known, now in zip(registries, before, after, strict=True):
        claims += [(registry, word, x) for word, x in now.items() if known.get(word) is not x]
    return module, claims


def _check_names(claims: list[Claim], plugin: Plugin) -> None:
    """Raise if a name that a plugin claims means something else: in the package, another plugin, or the same one."""
    for kind, registries in SPACES:
        known = [item for registry in registries for item in registry.items()]
        taken = {word: x for word, x in known if not plugin.is_same(plugin_of(x))}
        for registry, word, thing in claims:
            if any(registry is x for x in registries) and taken.setdefault(word, thing) is not thing:
                other, owner = taken[word], plugin_of(taken[word])
                whose = "the package" if owner is None else str(owner.path)
                whose = f"this file, {other.__qualname__}," if other.__module__ == thing.__module__ else whose
                raise ValueError(f"there is a {kind} {word!r} in {whose} already; rename {thing.__qualname__}")
