"""The models that are trained by one process and by several, to compare: built-in layers, and layers of users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import matgrad as mg
from matgrad.loss_functions import create_loss
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    columns_max,
    columns_sum,
    diag,
    hadamard,
    identity,
    ones,
    row_repeat,
    rows_sum,
    step,
    uniform,
)
from matgrad.specifications.models import create_model

EXAMPLES = 37  # so that the last batch is smaller
RATE = 0.1


class Attention(mg.LinearLayer):
    """Y = (X Xᵀ / 10N) X Wᵀ + 1_N b"""

    def feedforward(self, X):
        N, _ = X.shape
        G = (X @ X.T) / (10 * N)
        return super().feedforward(G @ X)


class Noise(mg.LinearLayer):
    """Y = (X ⊙ [U ≥ 0.3] / 0.7) Wᵀ + 1_N b, with a number in U for every element of X"""

    def feedforward(self, X):
        N, D = X.shape
        U = uniform(N, D, seed=7, count=3, like=X)
        R = step(U - 0.3 * ones(N, D, like=X)) / 0.7
        return super().feedforward(hadamard(X, R))


class Largest(mg.LinearLayer):
    """R = X - 1_N max(X)_col, centred as in the paper, (N·I - 1_N 1_Nᵀ) R / N, and with its sums and squares added."""

    def feedforward(self, X):
        N, D = X.shape
        R = X - row_repeat(columns_max(X), N)
        C = (N * identity(N, like=X) - ones(N, N, like=X)) @ R / N
        d = Diag(rows_sum(C)) @ ones(N, 1, like=X) + diag(C @ C.T)
        return super().feedforward(C + column_repeat(d, D) / N + row_repeat(columns_sum(C), N))


class Case(NamedTuple):
    """A model, its loss, and how it is trained."""

    layers: str | type[mg.Layer]  # of a user's layer: it stands between two linear ones
    sizes: str = "20;16;12;5"
    loss: str = "SoftmaxCrossEntropy"
    optimizers: str = "Momentum(0.9)"
    clip_norm: float | None = None
    batch_size: int = 7
    dropouts: str = ""
    densities: str = ""

    @property
    def tolerance(self) -> float:
        """How far several processes may be from one, in float64: Adam divides by roots of what is almost 0."""
        return 1e-11 if self.optimizers.startswith("Adam") else 1e-12


NORMALIZED = "ReLU;BatchNormalization;ReLU;BatchNormalization;Linear"
BUILT_IN = {
    "mlp": Case("ReLU;ReLU;Linear", batch_size=8),
    "batchnorm": Case(NORMALIZED),
    "layernorm": Case("ReLU;LayerNormalization;ReLU;RMSNormalization;Linear"),
    "dropout": Case("ReLU;ReLU;Linear", optimizers="Nesterov(0.9)", dropouts="0.2;0.3;0"),
    "clip": Case("ReLU;BatchNormalization;Linear", "20;16;5", "SoftmaxCrossEntropy(0.1)", clip_norm=0.05),
    "adamw": Case("ReLU;ReLU;Linear", loss="SoftmaxCrossEntropy(0.1)", optimizers="AdamW", clip_norm=0.5),
    "decay": Case("ReLU;ReLU;Linear", optimizers="Adam(weight_decay=0.01)"),
    "srelu": Case("SReLU;SReLU(shared=True);Linear"),
    "softmax": Case("Sigmoid;HyperbolicTangent;Softmax", loss="NegativeLogLikelihood"),
    "logsoftmax": Case(
        "AllReLU(0.3);LeakyReLU(0.1);LogSoftmax", loss="LogProbability(0.2)", optimizers="GradientDescent"
    ),
    "mse": Case("ReLU;Linear", "20;16;5", "MeanSquaredError"),
    "sparse": Case("ReLU;ReLU;Linear", densities="0.2;0.3;1"),
    "sparse_all": Case(
        "SReLU;BatchNormalization;ReLU;Linear",
        optimizers="AdamW",
        clip_norm=0.5,
        dropouts="0.1;0.2;0",
        densities="0.2;0.3;0.5",
    ),
    "convolution": Case(
        "Conv(4, 3, padding=1, act=GELU);MaxPool(2);Each(BatchNormalization);Conv(2, 2, groups=2);Linear", "5x6x2;5"
    ),
    "sparse_convolution": Case("Conv(4, 3, act=ReLU);AvgPool(2);Linear", "5x6x2;5", densities="0.3;0.5"),
    "text": Case("Embedding(8, vocabulary=6);Positions;Transformer(1, heads=2);Linear", "4;5", clip_norm=0.5),
    "llama": Case(
        "Embedding(8, vocabulary=6);Residual(Each(RMSNormalization;Linear(16));Rotary(2, groups=1);"
        "Attention(2, groups=1);Each(Linear(8)));Each(RMSNormalization);"
        "Residual(Each(RMSNormalization;Gated(SiLU(5);Linear(5));Linear(8)));Linear",
        "3;5",
        clip_norm=0.1,
    ),
    "one": Case("ReLU;BatchNormalization;Linear", "20;16;5", batch_size=1),
    "square": Case("ReLU;Linear", "7;7;7"),  # N = D = K
}
USERS = {
    "attention": Case(Attention, "6;6;5;4"),
    "noise": Case(Noise, "6;6;5;4"),
    "largest": Case(Largest, "6;6;5;4"),
}
CASES = BUILT_IN | USERS
DENSE = {name: case for name, case in CASES.items() if not case.densities}


def model(
    name: str, backend: str, dtype: str = "float64", *, batch_size: int | None = None
) -> tuple[mg.MultilayerPerceptron, mg.LossFunction, float | None, mg.DataLoader]:
    """The model of a case, its loss, its clip norm and its batches: the same numbers every time."""
    case = CASES[name]
    mg.manual_seed(3)
    M = _made(case).to(backend, dtype=dtype)
    D, K = M.layers[0].input_size, M.layers[-1].output_size
    rng = np.random.default_rng(1)
    X, T = rng.standard_normal((EXAMPLES, D)), rng.integers(0, K, EXAMPLES)
    if isinstance(M.layers[0], mg.EmbeddingLayer):
        X = rng.integers(0, M.layers[0].V, (EXAMPLES, D)).astype(float)
    loader = mg.DataLoader(X, T, batch_size or case.batch_size, shuffle=True, seed=5, classes=K)
    return M, create_loss(case.loss), case.clip_norm, loader.to(backend, dtype=dtype)


def train(
    name: str, backend: str, epochs: int = 3, dtype: str = "float64", *, batch_size: int | None = None
) -> dict[str, np.ndarray]:
    """The state of a case after some epochs."""
    M, loss, clip_norm, loader = model(name, backend, dtype, batch_size=batch_size)
    mg.stochastic_gradient_descent(M, epochs, loss, mg.ConstantScheduler(RATE), loader, clip_norm=clip_norm)
    return numbers(M)


def numbers(M: mg.MultilayerPerceptron) -> dict[str, np.ndarray]:
    """Copies of the matrices of M's state, as NumPy's."""
    return {name: np.array(M.backend.to_numpy(X)) for name, X in M.state().items() if not hasattr(X, "nnz")}


def _made(case: Case) -> mg.MultilayerPerceptron:
    if isinstance(case.layers, str):
        given = {"optimizers": case.optimizers, "dropouts": case.dropouts, "densities": case.densities}
        return create_model(case.layers, case.sizes, **{name: value for name, value in given.items() if value})
    D, H, L, K = map(int, case.sizes.split(";"))
    M = mg.MultilayerPerceptron([mg.LinearLayer(D, H), case.layers(H, L), mg.LinearLayer(L, K)])
    M.set_optimizer(case.optimizers)
    return M
