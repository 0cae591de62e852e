"""Random multilayer perceptrons that mix everything the package has, and the same model in torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES

OPTIMIZERS = (
    "GradientDescent",
    "GradientDescent(weight_decay=0.01)",
    "Momentum(0.9)",
    "Nesterov(0.8)",
    "Momentum(0.9, l1=0.01)",
    "Adagrad(1e-3)",  # with a smaller ε, rounding errors of a gradient that is 0 would become steps
    "RMSProp(0.9, 1e-3)",
    "Adam(epsilon=1e-3)",
    "AdamW(epsilon=1e-3, weight_decay=0.1)",
)
NORMALIZATIONS = {
    "BatchNormalization": mg.BatchNormalizationLayer,
    "LayerNormalization": mg.LayerNormalizationLayer,
    "RMSNormalization": mg.RMSNormalizationLayer,
}
DRAWN = ("Linear", "Activation", "Softmax", "LogSoftmax", "SReLU", "Normalization", "Dropout")
LAYERS = (*(kind for kind in DRAWN if kind != "Normalization"), *NORMALIZATIONS)


@dataclass
class Architecture:
    """A model in float64 on NumPy with a loss and one batch for it."""

    seed: int
    M: mg.MultilayerPerceptron
    loss: mg.LossFunction
    X: np.ndarray
    T: np.ndarray
    kinds: set[str]  # what it consists of, to show that the samples cover everything


def random_architecture(seed: int, N: int = 7) -> Architecture:
    """A model of 2 to 5 layers, the loss that can follow it, and a batch of N examples."""
    rng = np.random.default_rng(seed)
    mg.manual_seed(seed)
    losses = [name for name, cls in LOSSES.items() if not cls.has_tokens]
    loss_name = losses[seed % len(losses)]
    smoothing = loss_name in ("CrossEntropy", "SoftmaxCrossEntropy", "LogProbability") and rng.random() < 0.5
    loss = LOSSES[loss_name](label_smoothing=0.1) if smoothing else LOSSES[loss_name]()
    kinds = {loss_name} | ({"label smoothing"} if smoothing else set())
    sizes = [int(n) for n in rng.permutation(np.arange(3, 10))[: rng.integers(3, 7)]]
    layers: list[mg.Layer] = []
    for i, (D, K) in enumerate(pairwise(sizes)):
        is_last = i == len(sizes) - 2
        kind = _last_kind(loss, rng) if is_last else str(rng.choice([*DRAWN, "Activation"]))
        if kind == "Normalization":
            kind = list(NORMALIZATIONS)[(seed + i) % len(NORMALIZATIONS)]
        if kind in NORMALIZATIONS or kind == "Dropout":
            kinds.add(kind)
            layers.append(mg.DropoutLayer(D, D, 0.3) if kind == "Dropout" else NORMALIZATIONS[kind](D))
            kind = "Linear"
        layers.append(_layer(kind, D, K, seed + i, rng, kinds))
    M = mg.MultilayerPerceptron(layers).to(dtype="float64")
    M.set_weights("Normal(0, 0.7)", rng)
    for layer in M.layers:
        for name in layer.parameters:  # no parameter at 0 or 1, where a wrong equation could hide
            if name != "W":
                setattr(layer, name, getattr(layer, name) + rng.normal(0, 0.2, getattr(layer, name).shape))
        optimizer = OPTIMIZERS[rng.integers(len(OPTIMIZERS))]
        kinds.add(optimizer)
        layer.set_optimizer(optimizer)
    X = rng.normal(size=(N, sizes[0]))
    K = sizes[-1]
    if not loss.has_probabilities:
        T = rng.normal(size=(N, K))
    else:
        T = mg.one_hot(rng.integers(0, K, N), K) if rng.random() < 0.5 else rng.dirichlet(np.ones(K), N)
    return Architecture(seed, M, loss, X, T, kinds)


def _last_kind(loss: mg.LossFunction, rng: np.random.Generator) -> str:
    """A layer that the loss can follow."""
    if "real" in loss.accepts:
        return str(rng.choice(["Linear", "SReLU", *(["Activation"] if "probability" in loss.accepts else [])]))
    return "Softmax" if "probability" in loss.accepts else "LogSoftmax"


def _layer(kind: str, D: int, K: int, number: int, rng: np.random.Generator, kinds: set[str]) -> mg.Layer:
    """A linear-type layer, with dropout in one of three cases; `number` goes round the activations."""
    kinds.add(kind)
    options = {"dropout": 0.3} if rng.random() < 1 / 3 else {}
    kinds.update(options)
    if kind == "Activation":
        name = list(ACTIVATIONS)[number % len(ACTIVATIONS)]
        kinds.add(name)
        options["act"] = ACTIVATIONS[name]()
    if kind == "SReLU":
        options |= {"al": 0.2, "tl": -0.5, "ar": 0.3, "tr": 0.5, "shared": bool(rng.random() < 0.5)}
    cls = getattr(mg, f"{kind}Layer")
    return (DROPOUT_LAYERS[cls] if "dropout" in options else cls)(D, K, **options)


# -- the same model, differentiated by torch ---------------------------------------------------

TORCH_ACTIVATIONS = {
    "ReLU": lambda act, Z: F.relu(Z),
    "LeakyReLU": lambda act, Z: F.leaky_relu(Z, act.alpha),
    "AllReLU": lambda act, Z: F.leaky_relu(Z, act.alpha),
    "TReLU": lambda act, Z: F.threshold(Z, act.epsilon, 0.0),
    "HyperbolicTangent": lambda act, Z: torch.tanh(Z),
    "Sigmoid": lambda act, Z: torch.sigmoid(Z),
    "GELU": lambda act, Z: F.gelu(Z),
    "SiLU": lambda act, Z: F.silu(Z),
    "ELU": lambda act, Z: F.elu(Z, act.alpha),
    "Softplus": lambda act, Z: F.softplus(Z),
}


def torch_layer(layer: mg.Layer, theta: dict[str, torch.Tensor], X: torch.Tensor) -> torch.Tensor:
    """The layer's output in training mode, from torch.nn.functional alone; R is taken from the layer."""
    if isinstance(layer, mg.DropoutLayer):
        return X * torch.tensor(layer.R)
    if isinstance(layer, mg.BatchNormalizationLayer):
        return F.batch_norm(X, None, None, theta["gamma"][0], theta["beta"][0], training=True, eps=layer.epsilon)
    if isinstance(layer, mg.LayerNormalizationLayer):
        return F.layer_norm(X, X.shape[1:], theta["gamma"][0], theta["beta"][0], eps=layer.epsilon)
    if isinstance(layer, mg.RMSNormalizationLayer):
        return F.rms_norm(X, X.shape[1:], theta["gamma"][0], eps=layer.epsilon)
    R = getattr(layer, "R", None)
    W = theta["W"] if R is None else theta["W"] * torch.tensor(R)
    Z = F.linear(X, W, theta["b"][0])
    if isinstance(layer, mg.SReLULayer):
        al, tl, ar, tr = (theta[name] for name in ("al", "tl", "ar", "tr"))
        return torch.where(Z <= tl, al * (Z - tl) + tl, torch.where(Z >= tr, ar * (Z - tr) + tr, Z))
    if isinstance(layer, mg.ActivationLayer):
        return TORCH_ACTIVATIONS[type(layer.act).__name__.removesuffix("Activation")](layer.act, Z)
    if isinstance(layer, mg.SoftmaxLayer):
        return F.softmax(Z, dim=1)
    if isinstance(layer, mg.LogSoftmaxLayer):
        return F.log_softmax(Z, dim=1)
    return Z


def torch_loss(loss: mg.LossFunction, Y: torch.Tensor, T: torch.Tensor) -> torch.Tensor:
    """The mean loss of the batch, from torch.nn.functional where it has the loss."""
    N, K = Y.shape
    smoothing = getattr(loss, "label_smoothing", 0.0)
    smooth = (1 - smoothing) * T + smoothing / K
    return {
        "SquaredErrorLoss": lambda: F.mse_loss(Y, T, reduction="sum") / N,
        "MeanSquaredErrorLoss": lambda: F.mse_loss(Y, T),
        "HuberLoss": lambda: F.huber_loss(Y, T, reduction="sum", delta=loss.delta) / N,
        "CrossEntropyLoss": lambda: -(smooth * torch.log(Y)).sum() / N,
        "SoftmaxCrossEntropyLoss": lambda: F.cross_entropy(Y, T, label_smoothing=smoothing),
        "LogProbabilityLoss": lambda: -(smooth * Y).sum() / N,
        "NegativeLogLikelihoodLoss": lambda: -torch.log((Y * T).sum(dim=1)).mean(),
        "LogisticCrossEntropyLoss": lambda: -(T * F.logsigmoid(Y)).sum() / N,
        "BinaryCrossEntropyLoss": lambda: F.binary_cross_entropy_with_logits(Y, T, reduction="sum") / N,
        "HingeLoss": lambda: F.relu(1 - (2 * T - 1) * Y).sum() / N,
        "MultiMarginLoss": lambda: (
            ((1 - T) * F.relu(loss.margin + Y - (T * Y).sum(dim=1, keepdim=True))).sum() / (N * K)
        ),
    }[type(loss).__name__]()


def torch_gradients(a: Architecture) -> dict[str, np.ndarray]:
    """The gradients of the mean loss by torch autograd: 'X' and, for layer i, 'i.W' and so on."""
    X = torch.tensor(a.X, requires_grad=True)
    leaves = {"X": X}
    for i, layer in enumerate(a.M.layers, start=1):
        theta = {name: torch.tensor(getattr(layer, name), requires_grad=True) for name in layer.parameters}
        leaves |= {f"{i}.{name}": parameter for name, parameter in theta.items()}
        X = torch_layer(layer, theta, X)
    torch_loss(a.loss, X, torch.tensor(a.T)).backward()
    return {name: leaf.grad.numpy() for name, leaf in leaves.items()}
