"""matgrad on each of its backends, compiled or with the equations one by one."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

import matgrad as mg
from harness.problems import Parameters, Setting, dense
from harness.tools import TrainingTool


def model(setting: Setting, parameters: Parameters) -> mg.MultilayerPerceptron:
    """The model of the setting on NumPy, sparse where the parameters are, with these parameters."""
    layers = []
    for i, (W, b) in enumerate(parameters, start=1):
        K, D = W.shape
        options: Any = {"support": W.support} if isinstance(W, mg.SparseMatrix) else {}
        is_last = i == len(parameters)
        layer = mg.LinearLayer(D, K, **options) if is_last else mg.ActivationLayer(D, K, "ReLU", **options)
        layer.W, layer.b = W, b
        layers.append(layer)
    M = mg.MultilayerPerceptron(layers)
    M.set_optimizer(setting.optimizer)
    return M.to(dtype=setting.dtype)


class Matgrad(TrainingTool):
    """The loop of `stochastic_gradient_descent`, with a step that is made in advance and kept.

    With `dense`, weights that are initially sparse are trained as dense weights too.
    """

    M: mg.MultilayerPerceptron | None = None

    def __init__(self, setting: Setting, backend: str, compiled: bool = True, dense: bool = False) -> None:
        super().__init__(setting)
        self.backend, self.compiled, self.dense = backend, compiled, dense

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        loader = mg.DataLoader(np.array(X), t, self.setting.batch_size, classes=self.setting.sizes[-1])
        self.loader = loader.to(self.backend, dtype=self.setting.dtype, device=self.setting.device)

    def start(self, parameters: Parameters) -> None:
        if self.M is None:
            self._make([(dense(W), b) for W, b in parameters] if self.dense else parameters)
        self.step.load(self.initial)

    def _make(self, parameters: Parameters) -> None:
        """Make the model and its step."""
        products = {} if self.setting.matmul == "float32" else {"matmul": self.setting.matmul}
        self.like, M = parameters, model(self.setting, parameters)
        self.M = M = M.to(self.backend, device=self.setting.device, **products).train()
        self.initial, loss = M.state(), mg.SoftmaxCrossEntropyLoss()
        if self.compiled:
            self.step = mg.compile_step(M, loss)
        else:
            from matgrad.engines.fallback import TrainingStep

            self.step = TrainingStep(M, loss, compiled=False)
        self.eta = M.scalar(self.setting.learning_rate)

    def prepare(self) -> None:
        self.train(len(self.loader))  # with all that is compiled, or captured, for an epoch

    def train(self, batches: int) -> float | None:
        chosen = self.loader if batches >= len(self.loader) else islice(self.loader, batches)
        self.step.train(chosen, lambda i: self.eta)
        self._wait()
        return None

    def _state(self) -> dict[str, Any]:
        """The matrices of the state."""
        return {name: X for name, X in self.step.state().items() if not isinstance(X, mg.Support)}

    def _wait(self) -> None:
        """Until the state is computed."""
        assert self.M is not None
        for X in self._state().values():
            self.M.backend.wait(X)

    def waited(self) -> float:
        return sum(exchange.seconds for exchange in getattr(self.step, "exchanges", ()))

    def parameters(self) -> Parameters:
        assert self.M is not None
        state = {name: self.M.backend.to_numpy(X) for name, X in self._state().items()}
        return parameters_in(state, self.like)


def parameters_in(state: dict[str, np.ndarray], like: Parameters) -> Parameters:
    """The parameters in the state of a model, on the supports of other parameters."""
    pairs = [(W, state[f"{i}.W"], state[f"{i}.b"]) for i, (W, _) in enumerate(like, start=1)]
    return [(mg.SparseMatrix(W.support, V) if isinstance(W, mg.SparseMatrix) else V, b) for W, V, b in pairs]


class MatgradSteps(Matgrad):
    """Bare steps: the same batch again and again."""

    def prepare(self) -> None:
        self.batch = next(iter(self.loader))
        self.train(25)

    def train(self, batches: int) -> None:
        X, T = self.batch
        for _ in range(batches):
            self.step(X, T, self.eta)
        self._wait()


class MatgradFit(Matgrad):
    """`M.fit` with shuffled examples: the seconds of the last epoch, as its history tells."""

    EPOCHS = 3  # of which the first compiles

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = np.array(X), t

    def prepare(self) -> None:
        """Nothing: every round compiles by itself."""

    def train(self, batches: int) -> float:
        assert self.M is not None
        self.M.load_state(self.initial)
        s, N = self.setting, batches * self.setting.batch_size
        options: dict[str, Any] = {"epochs": self.EPOCHS, "seed": 0, "statistics": False}
        options |= {"loss": "SoftmaxCrossEntropy", "batch_size": s.batch_size, "learning_rate": s.learning_rate}
        return float(self.M.fit(self.X[:N], self.t[:N], **options)["seconds"][-1])
