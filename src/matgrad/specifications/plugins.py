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
    """Run a Python file and make what it defines usable by name: layers, activation functions, losses, and rules and

    methods of sparse training, which are callbacks. The name is that of the class, without the ending Layer,
    Activation, Loss, Prune or Grow.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"plugin {str(path)!r}: no such file")
    name = f"matgrad_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"plugin {str(path)!r}: expected a Python file, with the ending .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"plugin {str(path)!r}: {type(error).__name__}: {error}") from error
    found = 0
    for cls in vars(module).values():
        for base, registry, ending in REGISTRIES:
            if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == name:
                registry[stem(cls, ending)] = cls
                found += 1
    if not found:
        bases = ", ".join(base.__name__ for base, *_ in REGISTRIES)
        raise ValueError(f"plugin {str(path)!r}: no class in it derives from one of {bases}")
    return module
