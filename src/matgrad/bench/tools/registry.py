"""The list of tools: native code of the frameworks, matgrad on each backend, and bare products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from matgrad.bench.tools import standalone
from matgrad.bench.tools.training_tool import Setting, TrainingTool
from matgrad.foundation.installing import how_to_install


def _no_core() -> str | None:
    """What to say if the C++ core is missing, else None."""
    return None if find_spec("matgrad._native") else "the C++ core was not built with the package"


@dataclass(frozen=True)
class Tool:
    """A tool: its class and what that needs, its baselines, and its row in the paper."""

    title: str
    kind: str  # "baseline", "compiled", "eager" or, if nothing is trained, "products"
    framework: str
    requires: tuple[str, ...]  # modules
    class_name: str
    arguments: tuple[Any, ...] = ()
    baselines: tuple[str, ...] = ()  # tools that do the same by hand; the fastest of them counts
    paper: str | None = None
    lacks: Callable[[], str | None] = lambda: None  # what else is missing, in words
    threads: int | None = None  # if they are not those of the run
    processes: int = 1  # that train together, and share the threads
    is_alone: bool = True  # while it is prepared: its memory counts, or it measures what is fast

    def missing(self) -> str | None:
        """The first requirement that is missing, in words."""
        module = next((module for module in self.requires if find_spec(module) is None), None)
        extra = "tensorflow" if module == "keras" else module  # which TensorFlow brings
        return self.lacks() if module is None else f"{module} is not installed: {how_to_install(str(extra))}"

    def about(self) -> dict[str, str]:
        """What a record says about it."""
        return {"title": self.title, "kind": self.kind, "framework": self.framework}

    def load_class(self) -> Callable[..., TrainingTool]:
        """Its class; imports its framework."""
        module, _, name = self.class_name.rpartition(".")
        return getattr(import_module(module), name)

    def create(self, setting: Setting) -> TrainingTool:
        """The tool itself; imports its framework."""
        return self.load_class()(setting, *self.arguments)


def _baseline(title: str, class_name: str, framework: str, *requires: str, paper: str | None = None) -> Tool:
    """Native code of a framework."""
    return Tool(title, "baseline", framework, requires, f"matgrad.bench.tools.baselines.{class_name}", paper=paper)


def _matgrad(backend: str, framework: str, *baselines: str, compiled: bool = True) -> Tool:
    """matgrad on a backend."""
    kind = "compiled" if compiled else "eager"
    return Tool(
        f"matgrad {framework}" if compiled else f"matgrad {framework}, eager",
        kind,
        framework,
        (backend,),
        "matgrad.bench.tools.matgrad_tool.Matgrad",
        (backend, compiled),
        baselines,
        f"Nerva-{framework}",
    )


def _products(library: str, class_name: str, *requires: str) -> Tool:
    """Only the products of a training step, with a library's own function."""
    return Tool(f"products, {library}", "products", library, requires, f"matgrad.bench.tools.baselines.{class_name}")


REFERENCE = "pytorch"  # the paper's baseline, with which every tool is compared

_native = replace(_matgrad("native", "C++", "pytorch"), requires=(), lacks=_no_core)

TOOLS = {
    "pytorch": _baseline("PyTorch native", "pytorch.PyTorch", "PyTorch", "torch", paper="PyTorch-Native"),
    "matgrad-native": _native,
    "matgrad-cpp": replace(
        _native,
        title="matgrad C++, stand-alone",
        class_name="matgrad.bench.tools.standalone.StandAlone",
        arguments=(),
        lacks=standalone.missing,
    ),
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

# dense training in the C++ core, PyTorch, and the bare products
PRODUCTS = {
    "products-openblas": _products("OpenBLAS", "openblas.OpenBLASProducts"),
    "products-torch": _products("PyTorch", "pytorch.PyTorchProducts", "torch"),
}
NATIVE_TOOLS = {
    "pytorch": TOOLS["pytorch"],
    "matgrad-native": replace(_native, baselines=tuple(PRODUCTS)),
    "matgrad-cpp": replace(TOOLS["matgrad-cpp"], baselines=tuple(PRODUCTS)),
    **PRODUCTS,
}

# sparse training; all are compared with masked PyTorch, except dense training from the same weights
SPARSE, DENSE, MASKED = "matgrad-native", "matgrad-native-dense", "pytorch-masked"
_sparse = replace(_native, baselines=(MASKED,))
SPARSE_TOOLS = {
    SPARSE: _sparse,
    "matgrad-native-1": replace(_sparse, title="matgrad C++, 1 thread", threads=1),
    DENSE: replace(_native, title="matgrad C++, dense", arguments=("native", True, True), baselines=()),
    "pytorch-csr": replace(_baseline("PyTorch CSR", "pytorch.CSRPyTorch", "PyTorch", "torch"), baselines=(MASKED,)),
    MASKED: _baseline("PyTorch masked", "pytorch.MaskedPyTorch", "PyTorch", "torch"),
    "matgrad-torch": replace(TOOLS["matgrad-torch"], baselines=(MASKED,)),
    "matgrad-numpy": replace(TOOLS["matgrad-numpy"], baselines=(MASKED,)),
}
SPARSE_DEFAULT = tuple(SPARSE_TOOLS)[:5]  # the other two only if they are asked for

# one process and several, beside DistributedDataParallel, and what it takes to add up gradients or nothing much
RANKS = 2


def _on_ranks(tool: Tool, *baselines: str) -> Tool:
    """The tool as several processes that train together."""
    return replace(tool, title=f"{tool.title}, {RANKS} processes", processes=RANKS, baselines=baselines)


def _sums(title: str, *arguments: Any) -> Tool:
    """Sums over the ranks alone."""
    class_name = "matgrad.bench.tools.baselines.ddp.AllReduce"
    return Tool(title, "sums", "PyTorch", ("torch",), class_name, arguments, processes=RANKS)


DDP, SUMS, LATENCY = "pytorch-ddp", "all-reduce", "all-reduce-small"
_ddp = replace(_baseline("PyTorch DDP", "ddp.DistributedPyTorch", "PyTorch", "torch"), processes=RANKS)
RANKS_OF = {name: f"{name}-ranks" for name in ("matgrad-native", "matgrad-torch")}
DISTRIBUTED_TOOLS = {
    "pytorch": TOOLS["pytorch"],
    **{name: TOOLS[name] for name in RANKS_OF},
    DDP: replace(_ddp, title=f"PyTorch DDP, {RANKS} processes"),
    **{ranks: _on_ranks(TOOLS[name], DDP, name) for name, ranks in RANKS_OF.items()},
    SUMS: _sums("all-reduce alone"),
    LATENCY: _sums("all-reduce of one number", True),
}

# on a GPU: the same, and native PyTorch compiled and in a CUDA graph; under names of their own, as their classes differ
GPU_NATIVE, GPU_COMPILE, GPU_GRAPH, GPU_OWN, GPU_OWN_JAX = (
    *("gpu-pytorch", "gpu-pytorch-compile", "gpu-pytorch-graph"),
    *("matgrad-torch", "matgrad-jax"),
)


def _gpu(title: str, class_name: str, *baselines: str) -> Tool:
    """Native PyTorch on a GPU."""
    native = _baseline(title, f"gpu_pytorch.{class_name}", "PyTorch", "torch")
    return replace(native, baselines=baselines, is_alone=False)


def _own(title: str, class_name: str) -> Tool:
    """matgrad on PyTorch, trained in another way."""
    return replace(TOOLS[GPU_OWN], title=title, class_name=f"matgrad.bench.tools.matgrad_tool.{class_name}")


GPU_TOOLS = {
    GPU_NATIVE: _gpu("PyTorch native", "GPUPyTorch"),
    GPU_COMPILE: _gpu("PyTorch, torch.compile", "CompiledPyTorch", GPU_NATIVE),
    GPU_GRAPH: _gpu("PyTorch, CUDA graph", "GraphPyTorch", GPU_NATIVE),
    GPU_OWN: replace(TOOLS[GPU_OWN], baselines=(GPU_NATIVE,)),
}
GPU_JAX_TOOLS = {"jax": TOOLS["jax"], GPU_OWN_JAX: replace(TOOLS[GPU_OWN_JAX], baselines=("jax",))}
STEPS, FIT = "matgrad-torch-steps", "matgrad-torch-fit"
EPOCH_TOOLS = {STEPS: _own("matgrad PyTorch, bare steps", "MatgradSteps"), FIT: _own("M.fit", "MatgradFit")}

# for a process that knows only the name
ALL_TOOLS = GPU_TOOLS | EPOCH_TOOLS | DISTRIBUTED_TOOLS | SPARSE_TOOLS | PRODUCTS | TOOLS


def chosen_tools(names: tuple[str, ...], known: Mapping[str, Tool] = TOOLS) -> list[str]:
    """The tools with these names, in the order of the list; all of them if no name is given."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown tool {unknown[0]!r}; known: {', '.join(known)}")
    return [name for name in known if name in names or not names]
