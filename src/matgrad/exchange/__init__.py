"""Exchange with the tools people use: PyTorch, ONNX and Keras models, and files of the original library.

A model goes through a chain of operations that all tools know (see `matgrad.exchange.chain`); each tool has a file that
says which of its own they are. The functions are in the stub beside this file; each is imported when it is asked for.
"""

from typing import Any

import lazy_loader

from matgrad.foundation.imports import check_installed

_function, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A function, after a check that its tool is installed."""
    if name in __all__:
        tool = name.rpartition("_")[2]
        check_installed({"keras": "h5py"}.get(tool, tool), tool, "such models")
    return _function(name)
