"""matgrad on each of its backends, compiled or with the equations one by one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np

from matgrad.backends.conversion import convert
from matgrad.bench.tools.training_tool import Parameters, Setting, TrainingTool
from matgrad.datasets import DataLoader
from matgrad.engines.eager import EagerStep
from matgrad.engines.engine import CompiledStep
from matgrad.engines.registry import compile_step
from matgrad.layers import ActivationLayer, LinearLayer
from matgrad.layers.state import matrices_of
from matgrad.loss_functions import create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program import Program, optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.training.rates import Rates


def model(setting: Setting, parameters: Parameters | None = None) -> MultilayerPerceptron:
    """The model of the setting on NumPy, sparse where the parameters are; it does not get their values."""
    weights = [None] * len(setting.layers) if parameters is None else [W for W, _ in parameters]
    supports = [W.support if isinstance(W, SparseMatrix) else None for W in weights]
    *hidden, ((D, K), last) = zip(setting.layers, supports, strict=True)
    M = MultilayerPerceptron(ActivationLayer(d, k, "ReLU", support=support) for (d, k), support in hidden)
    M.layers.append(LinearLayer(D, K, support=last))
    M.set_optimizer(setting.optimizer)
    return M.to(dtype=setting.dtype)


def recorded(M: MultilayerPerceptron, batch_size: int) -> Program:
    """The training step of M as the program that is executed."""
    X, T = (np.empty((batch_size, n), M.dtype) for n in (M.layers[0].input_size, M.layers[-1].output_size))
    return optimized(record_computation(make_step(M, create_loss("SoftmaxCrossEntropy")), M.state(), X, T))


def state_of(parameters: Parameters) -> dict[str, np.ndarray]:
    """The parameters under their names in a model's state."""
    return {
        f"{i}.{name}": values_of(A)
        for i, pair in enumerate(parameters, start=1)
        for name, A in zip("Wb", pair, strict=True)
    }


def parameters_of(state: Mapping[str, np.ndarray], like: Parameters) -> Parameters:
    """The parameters in a model's state, on the supports of other parameters."""
    return [(with_values(W, state[f"{i}.W"]), state[f"{i}.b"]) for i, (W, _) in enumerate(like, start=1)]


def densely(parameters: Parameters) -> Parameters:
    """The parameters with dense weights."""
    return [(W.to_dense() if isinstance(W, SparseMatrix) else W, b) for W, b in parameters]


class Matgrad(TrainingTool):
    """The loop of `stochastic_gradient_descent`, with a step that is made in advance and kept.

    With `dense`, weights that are initially sparse are trained as dense weights too.
    """

    M: MultilayerPerceptron
    step: CompiledStep

    def __init__(self, setting: Setting, backend: str, compiled: bool = True, dense: bool = False) -> None:
        super().__init__(setting)
        self.backend, self.compiled, self.dense = backend, compiled, dense
        self.is_made = False

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """The loader that `matgrad train` uses."""
        B, classes = self.setting.batch_size, self.setting.sizes[-1]
        loader = DataLoader(np.array(X), t, B, classes=classes)
        self.loader = loader.to(self.backend, dtype=self.setting.dtype, device=self.setting.device)

    def start(self, parameters: Parameters) -> None:
        """The state of a new model, with these parameters."""
        initial = densely(parameters) if self.dense else parameters
        if not self.is_made:
            self._make(initial)
        M = self.M
        state = {name: convert(A, M.backend, M.dtype, M.device) for name, A in state_of(initial).items()}
        self.step.load(self.blank | state)

    def _make(self, initial: Parameters) -> None:
        """Make the model, on the supports of the initial parameters, and its step."""
        products = {} if self.setting.matmul == "float32" else {"matmul": self.setting.matmul}
        self.M = model(self.setting, initial).to(self.backend, device=self.setting.device, **products).train()
        loss = create_loss("SoftmaxCrossEntropy")
        self.step = compile_step(self.M, loss) if self.compiled else EagerStep(self.M, loss)
        self.blank = self.M.state()
        self.is_made = True

    def prepare(self) -> None:
        """Compile for batches of this size, and warm up."""
        self.step.prepare(*next(iter(self.loader)))
        self.train(25)  # TensorFlow compiles a loop over 10 batches when it has them

    def train(self, batches: int) -> float | None:
        """What `stochastic_gradient_descent` does in an epoch, with all batches or with the first ones."""
        rates = Rates(self.M, lambda epoch: self.setting.learning_rate, per_step=False)
        rates.start(0, 0)
        self.step.train(self.loader if batches == len(self.loader) else islice(self.loader, batches), rates)
        self._wait()
        return None

    def _wait(self) -> None:
        """Until the state is computed."""
        for X in matrices_of(self.step.state()).values():
            self.M.backend.wait(X)

    def waited(self) -> float:
        """The seconds of the exchanges of its steps."""
        return sum(exchange.seconds for exchange in getattr(self.step, "exchanges", ()))

    def parameters(self) -> Parameters:
        """The parameters as NumPy arrays."""
        state = {name: self.M.backend.to_numpy(X) for name, X in matrices_of(self.step.state()).items()}
        return parameters_of(state, [(x.W, x.b) for x in self.M.layers if isinstance(x, LinearLayer)])

    def release(self) -> None:
        """Drop the loader."""
        del self.loader


class MatgradSteps(Matgrad):
    """Bare steps: the same batch again and again."""

    def train(self, batches: int) -> None:
        """One call of the step per batch, then wait for the last one."""
        X, T = self.batch
        eta = self.M.scalar(self.setting.learning_rate)
        for _ in range(batches):
            self.step(X, T, eta)
        self._wait()

    def prepare(self) -> None:
        """Take the first batch, compile for it, and warm up."""
        self.batch = next(iter(self.loader))
        self.train(25)


class MatgradFit(Matgrad):
    """`M.fit` with shuffled examples: the seconds of the last epoch, as its history tells."""

    EPOCHS = 3  # of which the first compiles

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """The arrays that `M.fit` takes."""
        self.X, self.t = np.array(X), t

    def prepare(self) -> None:
        """Nothing: every round compiles by itself."""

    def train(self, batches: int) -> float:
        """Epochs of the first `batches` batches."""
        s, N = self.setting, batches * self.setting.batch_size
        self.M.load_state(self.step.state())
        history = self.M.fit(
            self.X[:N], self.t[:N], loss="SoftmaxCrossEntropy", epochs=self.EPOCHS, batch_size=s.batch_size,
            learning_rate=s.learning_rate, seed=0, statistics=False,
        )  # fmt: skip
        return float(history["seconds"][-1])

    def release(self) -> None:
        """Drop the arrays."""
        del self.X, self.t
