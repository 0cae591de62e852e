"""The tools that are measured: native code of the frameworks, and matgrad on each backend."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from matgrad.bench.training_tool import Setting, TrainingTool


@dataclass(frozen=True)
class Tool:
    """A tool: its class and what that needs, what it is compared with, and its row in the paper."""

    title: str
    kind: str  # "baseline", "compiled" or "eager"
    framework: str
    requires: tuple[str, ...]  # modules
    class_name: str
    arguments: tuple[Any, ...] = ()
    baselines: tuple[str, ...] = ()  # tools that do the same by hand; the fastest of them counts
    paper: str | None = None

    def missing(self) -> str | None:
        """The first module that it needs and that is not installed."""
        return next((module for module in self.requires if find_spec(module) is None), None)

    def create(self, setting: Setting) -> TrainingTool:
        """The tool itself; imports its framework."""
        module, _, name = self.class_name.rpartition(".")
        return getattr(import_module(module), name)(setting, *self.arguments)


def _baseline(title: str, class_name: str, framework: str, *requires: str, paper: str | None = None) -> Tool:
    """Native code of a framework."""
    return Tool(title, "baseline", framework, requires, f"matgrad.bench.baselines.{class_name}", paper=paper)


def _matgrad(backend: str, framework: str, *baselines: str, compiled: bool = True) -> Tool:
    """matgrad on a backend."""
    kind = "compiled" if compiled else "eager"
    return Tool(
        f"matgrad {framework}" if compiled else f"matgrad {framework}, eager",
        kind,
        framework,
        (backend,),
        "matgrad.bench.matgrad_tools.Matgrad",
        (backend, compiled),
        baselines,
        f"Nerva-{framework}",
    )


REFERENCE = "pytorch"  # the paper's baseline, which every tool is compared with

TOOLS = {
    "pytorch": _baseline("PyTorch native", "pytorch.PyTorch", "PyTorch", "torch", paper="PyTorch-Native"),
    "matgrad-torch": _matgrad("torch", "PyTorch", "pytorch"),
    "matgrad-torch-eager": _matgrad("torch", "PyTorch", "pytorch", compiled=False),
    "matgrad-numpy": _matgrad("numpy", "NumPy", "pytorch"),
    "matgrad-numpy-eager": _matgrad("numpy", "NumPy", "pytorch", compiled=False),
    "jax": _baseline("JAX, jit by hand", "jax.Jax", "JAX", "jax"),
    "matgrad-jax": _matgrad("jax", "JAX", "jax"),
    "matgrad-jax-eager": _matgrad("jax", "JAX", "jax", compiled=False),
    "tensorflow": _baseline("TensorFlow, tf.function", "tensorflow.TensorFlow", "TensorFlow", "tensorflow"),
    "keras": _baseline("Keras, model.fit", "keras.Keras", "TensorFlow", "tensorflow", "keras"),
    "matgrad-tensorflow": _matgrad("tensorflow", "TensorFlow", "tensorflow", "keras"),
    "matgrad-tensorflow-eager": _matgrad("tensorflow", "TensorFlow", "tensorflow", "keras", compiled=False),
}


def chosen_tools(names: tuple[str, ...]) -> list[str]:
    """The tools of these names in the table's order; all of them where no name is given."""
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise ValueError(f"unknown tool {unknown[0]!r}; known: {', '.join(TOOLS)}")
    return [name for name in TOOLS if name in names or not names]
