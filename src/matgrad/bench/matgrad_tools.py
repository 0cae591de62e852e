"""matgrad on each of its backends, compiled and by the equations one by one."""

from __future__ import annotations

from itertools import islice

import numpy as np

from matgrad.bench.training_tool import Parameters, Setting, TrainingTool
from matgrad.datasets import DataLoader
from matgrad.layers.layer import convert
from matgrad.loss_functions import create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications import create_model
from matgrad.training_step import EagerStep, compile_step


def model(setting: Setting) -> MultilayerPerceptron:
    """The model of the setting, on NumPy."""
    layers = ["ReLU"] * (len(setting.sizes) - 2) + ["Linear"]
    sizes = ";".join(map(str, setting.sizes))
    return create_model(";".join(layers), sizes, optimizers=f"Momentum({setting.momentum})").to(dtype=setting.dtype)


def state_of(parameters: Parameters) -> dict[str, np.ndarray]:
    """The parameters under their names in a model's state."""
    return {f"{i}.{name}": A for i, pair in enumerate(parameters, start=1) for name, A in zip("Wb", pair, strict=True)}


class Matgrad(TrainingTool):
    """The loop of `stochastic_gradient_descent`, with the step made before and kept."""

    def __init__(self, setting: Setting, backend: str, compiled: bool = True) -> None:
        super().__init__(setting)
        self.M = model(setting).to(backend).train()
        loss = create_loss("SoftmaxCrossEntropy")
        self.step = compile_step(self.M, loss) if compiled else EagerStep(self.M, loss)
        self.initial = self.M.state()

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """The package's own loader, as `matgrad train` uses it."""
        B, classes = self.setting.batch_size, self.setting.sizes[-1]
        self.loader = DataLoader(X, t, B, classes=classes).to(self.M.backend.name, dtype=self.M.dtype)

    def start(self, parameters: Parameters) -> None:
        """The state of a new model, with these parameters."""
        M = self.M
        state = {name: convert(A, M.backend, M.dtype, M.device) for name, A in state_of(parameters).items()}
        self.step.load(self.initial | state)

    def prepare(self) -> None:
        """Compile for batches of this size, and warm up."""
        self.step.prepare(*next(iter(self.loader)))
        self.train(25)  # TensorFlow compiles a loop over 10 batches when it has them

    def train(self, batches: int) -> None:
        """The loop of `stochastic_gradient_descent`."""
        backend, step, eta = self.M.backend, self.step, self.M.scalar(self.setting.learning_rate)
        for X, T in islice(self.loader, batches):
            step(X, T, eta)
        for X in step.state().values():
            backend.to_numpy(X)  # waits until it is computed

    def parameters(self) -> Parameters:
        """The parameters as NumPy arrays."""
        state = {name: self.M.backend.to_numpy(X) for name, X in self.step.state().items()}
        return [(state[f"{i}.W"], state[f"{i}.b"]) for i in range(1, len(self.M.layers) + 1)]

    def release(self) -> None:
        """Drop the loader."""
        del self.loader
