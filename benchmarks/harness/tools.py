"""What is measured: what a tool is, and the tools that several benchmarks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from harness.problems import Parameters, Setting


class TrainingTool(ABC):
    """What trains, in its process. It is loaded, started and prepared once, then started and timed in every round."""

    is_own_process = False  # whether it starts a process that trains

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @abstractmethod
    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Copy examples X (N×D) and classes t (N) to where the tool trains on them."""

    @abstractmethod
    def start(self, parameters: Parameters) -> None:
        """Begin with these parameters, and with momentum 0."""

    def prepare(self) -> None:
        """Do what happens once, such as compiling, and warm up; the parameters may change."""
        self.train(2)

    @abstractmethod
    def train(self, batches: int) -> float | None:
        """Train on the first `batches` batches, in order, and return when all is computed. This is what is timed.

        A tool that measures its time itself returns the seconds.
        """

    def parameters(self) -> Parameters:
        """The present parameters; an empty list if nothing is trained."""
        return []

    def waited(self) -> float:
        """The seconds for which it has waited for other processes so far."""
        return 0.0


@dataclass(frozen=True)
class Tool:
    """The description of a tool: what a record says about it, its class and what that needs, and its baselines."""

    title: str
    kind: str  # "baseline", "compiled", "eager", "products" or "sums", which train nothing
    framework: str
    class_name: str  # with its module in `baselines`
    arguments: tuple[Any, ...] = ()
    requires: tuple[str, ...] = ()  # modules
    baselines: tuple[str, ...] = ()  # tools that do the same by hand; the fastest of them counts
    threads: int | None = None  # if they are not those of the run
    processes: int = 1  # that train together, and share the threads

    def missing(self) -> str | None:
        """The first requirement that is missing, in words."""
        module = next((module for module in self.requires if find_spec(module) is None), None)
        return None if module is None else f"{module} is not installed"

    def about(self) -> dict[str, str]:
        """What a record says about it."""
        return {"title": self.title, "kind": self.kind, "framework": self.framework}

    def create(self, setting: Setting) -> TrainingTool:
        """The tool itself; imports its framework."""
        module, name = self.class_name.split(".")
        return getattr(import_module(f"baselines.{module}"), name)(setting, *self.arguments)


def matgrad(backend: str, framework: str, *baselines: str, compiled: bool = True) -> Tool:
    """matgrad on a backend."""
    title = f"matgrad {framework}" + ("" if compiled else ", eager")
    requires = {"native": ("matgrad._native",), "numpy": ()}.get(backend, (backend,))
    kind = "compiled" if compiled else "eager"
    return Tool(title, kind, framework, "own.Matgrad", (backend, compiled), requires, baselines)


def baseline(title: str, class_name: str, framework: str, *requires: str, **options: Any) -> Tool:
    """Native code of a framework."""
    return Tool(title, "baseline", framework, class_name, requires=requires, **options)


PYTORCH = baseline("PyTorch native", "pytorch.PyTorch", "PyTorch", "torch")
NATIVE = matgrad("native", "C++", "pytorch")
STAND_ALONE = Tool("matgrad C++, stand-alone", "compiled", "C++", "standalone.StandAlone", baselines=("pytorch",))
