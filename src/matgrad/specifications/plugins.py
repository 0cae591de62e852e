"""Plugins: a user's own layers, activation functions, losses, rules and methods, from a Python file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.callbacks import Callback
from matgrad.callbacks.methods import METHODS
from matgrad.layers import Layer
from matgrad.loss_functions import LOSSES, LossFunction
from matgrad.sparse.growing import GROWERS, Grow
from matgrad.sparse.pruning import PRUNERS, Prune
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import stem

# what a plugin may define: a base class, the classes by name, and the ending that the names leave out
REGISTRIES: tuple[tuple[type, dict, str], ...] = (
    (Layer, LAYERS, "Layer"),
    (ActivationFunction, ACTIVATIONS, "Activation"),
    (LossFunction, LOSSES, "Loss"),
    (Prune, PRUNERS, "Prune"),
    (Grow, GROWERS, "Grow"),
    (Callback, METHODS, "Callback"),
)


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file and make what it defines usable by name.

    These are layers, activation functions, losses, and rules and methods of sparse training, which are callbacks. The
    name is that of the class, without the ending Layer, Activation, Loss, Prune, Grow or Callback.
    """
    file = Path(path)
    name = f"matgrad_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        reason = "expected a Python file, with the ending .py" if file.is_file() else "no such file"
        raise ValueError(f"plugin {str(path)!r}: {reason}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"plugin {str(path)!r}: {type(error).__name__}: {error}") from error
    own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name]
    for base, registry, ending in REGISTRIES:
        registry |= {stem(cls, ending): cls for cls in own if issubclass(cls, base)}
    if not any(issubclass(cls, base) for cls in own for base, *_ in REGISTRIES):
        bases = ", ".join(base.__name__ for base, *_ in REGISTRIES)
        raise ValueError(f"plugin {str(path)!r}: no class in it derives from one of {bases}")
    return module
