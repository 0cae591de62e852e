"""What a mutant is judged by: torch at random points, and the symbolic checks of its class."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from mutants import Target

import matgrad as mg
from architectures import TORCH_ACTIVATIONS, torch_loss
from matgrad import activation_functions as activations
from matgrad import loss_functions, softmax_functions
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import Subject, attempts
from matgrad.judges.claims import of_layer, of_loss, of_softmax
from matgrad.judges.equality import symbols
from matgrad.judges.sympy_judge import SymPyAlgebra, check_activation
from matgrad.layers.dropout import LayerWithDropout

N, D, K = 3, 2, 4
POINTS = 5
TOLERANCE = 1e-6
Values = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Case:
    """An object of the package: its values at random points, those of torch, and its symbolic checks."""

    name: str
    values: Callable[[int], Values]  # by the package, at the point with this number
    expected: Callable[[int], Values]  # by torch
    checks: Callable[[], Iterator[Check]]  # one by one, as the first wrong one is enough


def symbolic_checks(claims: Callable, thing: object, *options: dict) -> Iterator[Check]:
    """The verdicts of SymPy, those of one claim after the other."""
    for each in options:
        try:
            yield from claims(SymPyAlgebra(**each), thing)
        except Exception:  # it may decide something by numbers: the judge says whether that is the reason
            new = partial(lambda each, keep_numbers: SymPyAlgebra(**each, keep_numbers=keep_numbers), each)
            yield from attempts(Subject("mutant", claims, thing), new)


def differs_from_torch(case: Case) -> bool:
    """Whether a value has another size or another element, or cannot be computed, at one of the points."""
    for point in range(POINTS):
        expected = _expected(case, point)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                values = case.values(point)
        except Exception:  # whatever a wrong equation leads to
            return True
        for name, E in expected.items():
            A = np.asarray(values[name])
            if A.shape != E.shape or not np.max(np.abs(A - E)) <= TOLERANCE * max(np.max(np.abs(E)), 1e-3):
                return True
    return False


@cache
def _expected(case: Case, point: int) -> Values:
    return case.expected(point)


@cache
def cases(target: Target) -> tuple[Case, ...]:
    """The cases that concern a target."""
    owner, name = target.owner, target.name
    if owner is softmax_functions:
        if name == "_minus_rows_max":
            return _softmax_case("stable_softmax"), _softmax_case("stable_log_softmax")
        if name == "half_log_softmax":
            return tuple(_loss_cases(mg.SoftmaxCrossEntropyLoss))
        return (_softmax_case(name.removesuffix("_jacobian")),)
    if issubclass(owner, mg.Layer):
        return tuple(_layer_cases(owner))
    if issubclass(owner, loss_functions.LossFunction):
        return tuple(_loss_cases(owner))
    return tuple(_activation_cases(owner))


# -- layers ------------------------------------------------------------------------------------


def _layer_cases(cls: type[mg.Layer]) -> Iterator[Case]:
    makers: dict[str, Callable[[], mg.Layer]] = {
        "LayerWithDropout": lambda: mg.LinearDropoutLayer(D, K, dropout=0.3),
        "LinearDropoutLayer": lambda: mg.LinearDropoutLayer(D, K, dropout=0.3),
        "LinearLayer": lambda: mg.LinearLayer(D, K),
        "ActivationLayer": lambda: mg.ActivationLayer(D, K, "HyperbolicTangent"),
        "SReLULayer": lambda: mg.SReLULayer(D, K),
        "SoftmaxLayer": lambda: mg.SoftmaxLayer(D, K),
        "LogSoftmaxLayer": lambda: mg.LogSoftmaxLayer(D, K),
        "BatchNormalizationLayer": lambda: mg.BatchNormalizationLayer(D),
        "LayerNormalizationLayer": lambda: mg.LayerNormalizationLayer(K),
        "RMSNormalizationLayer": lambda: mg.RMSNormalizationLayer(D),
        "DropoutLayer": lambda: mg.DropoutLayer(K, K, 0.3),
    }
    makers_of = [makers[cls.__name__]]
    if cls is LayerWithDropout:
        makers_of.append(makers["DropoutLayer"])
    if cls is mg.SReLULayer:
        makers_of.append(lambda: mg.SReLULayer(D, K, shared=True))
    for make in makers_of:
        for training in (True, False):
            made = partial(_made, make, training)
            yield Case(
                f"{cls.__name__} training={training}",
                partial(_layer_values, made),
                partial(_torch_layer, made),
                partial(_layer_checks, made),
            )


def _layer_checks(made: Callable[[], mg.Layer]) -> Iterator[Check]:
    sizes = [{"N": n, "D": D, "K": K} for n in (N, 1)]
    return symbolic_checks(of_layer, lambda D, K: made(), *({"sizes": x} for x in sizes))


def _made(make: Callable[[], mg.Layer], training: bool) -> mg.Layer:
    mg.manual_seed(3)  # with which some weights are dropped, and some are not
    layer = make()
    layer.training = training
    return layer


def _layer_at(made: Callable[[], mg.Layer], point: int) -> tuple[mg.Layer, np.ndarray, np.ndarray]:
    """The layer with random parameters, an input and an upstream gradient."""
    layer, rng = made(), np.random.default_rng(point)
    for name in (*layer.parameters, *(b for b in layer.buffers if b.startswith("running"))):
        shape = getattr(layer, name).shape
        setattr(layer, name, rng.uniform(0.5, 2, shape) if "variance" in name else rng.normal(size=shape))
    X, G = rng.normal(size=(N, layer.input_size)), rng.normal(size=(N, layer.output_size))
    return layer, X, G


def _layer_values(made: Callable[[], mg.Layer], point: int) -> Values:
    layer, X, G = _layer_at(made, point)
    Y = layer.feedforward(X)
    layer.backpropagate(Y, G)
    names = ["DX", *(f"D{name}" for name in layer.parameters)]
    names += ["DZ"] if "DZ" in layer.intermediates else []
    names += [name for name in layer.buffers if name.startswith("running")]
    return {"Y": Y} | {name: getattr(layer, name) for name in names}


def _torch_layer(made: Callable[[], mg.Layer], point: int) -> Values:
    layer, X, G = _layer_at(made, point)
    X = torch.tensor(X, requires_grad=True)
    theta = {name: torch.tensor(getattr(layer, name), requires_grad=True) for name in layer.parameters}
    if isinstance(layer, mg.BatchNormalizationLayer):
        mean, variance = torch.tensor(layer.running_mean[0]), torch.tensor(layer.running_variance[0])
        Z = F.batch_norm(X, mean, variance, training=layer.training, momentum=layer.momentum, eps=layer.epsilon)
        Y = theta["gamma"] * Z + theta["beta"]
        values = {"running_mean": mean.numpy()[None], "running_variance": variance.numpy()[None]}
    elif isinstance(layer, mg.LayerNormalizationLayer):
        Z = F.layer_norm(X, X.shape[1:], eps=layer.epsilon)
        Y, values = theta["gamma"] * Z + theta["beta"], {}
    elif isinstance(layer, mg.RMSNormalizationLayer):
        Z = F.rms_norm(X, X.shape[1:], eps=layer.epsilon)
        Y, values = theta["gamma"] * Z, {}
    elif isinstance(layer, mg.DropoutLayer):
        Z = Y = _torch_dropout(layer, X) if layer.training else 1 * X
        values = {}
    else:
        W, values = theta["W"], {}
        W = _torch_dropout(layer, W) if isinstance(layer, LayerWithDropout) and layer.training else W
        Z = F.linear(X, W, theta["b"][0])
        Y = _torch_output(layer, theta, Z)
    Z.retain_grad()
    Y.backward(torch.tensor(G))
    values |= {"Y": Y.detach().numpy(), "DX": X.grad.numpy()}
    values |= {f"D{name}": parameter.grad.numpy() for name, parameter in theta.items()}
    return values | ({"DZ": Z.grad.numpy()} if "DZ" in layer.intermediates else {})


def _torch_dropout(layer: LayerWithDropout, A: torch.Tensor) -> torch.Tensor:
    """A ⊙ R, with the random numbers of the layer."""
    U = NumpyBackend().uniform(*A.shape, layer.seed, layer.renewals, like=np.zeros((1, 1)))
    kept = torch.tensor(U >= layer.dropout)
    assert 0 < kept.sum() < A.numel()
    return torch.where(kept, A / (1 - layer.dropout), 0.0)


def _torch_output(layer: mg.Layer, theta: dict[str, torch.Tensor], Z: torch.Tensor) -> torch.Tensor:
    match layer:
        case mg.SReLULayer():
            return _torch_srelu(Z, *(theta[name] for name in ("al", "tl", "ar", "tr")))
        case mg.ActivationLayer():
            return TORCH_ACTIVATIONS[type(layer.act).__name__.removesuffix("Activation")](layer.act, Z)
        case mg.SoftmaxLayer():
            return F.softmax(Z, dim=1)
        case mg.LogSoftmaxLayer():
            return F.log_softmax(Z, dim=1)
    return 1 * Z


def _torch_srelu(Z, al, tl, ar, tr):
    return torch.where(Z <= tl, al * (Z - tl) + tl, torch.where(Z >= tr, ar * (Z - tr) + tr, Z))


# -- losses ------------------------------------------------------------------------------------


def _loss_cases(cls: type[mg.LossFunction]) -> Iterator[Case]:
    if cls is loss_functions.LossFunction:
        losses = [mg.SquaredErrorLoss(), mg.MeanSquaredErrorLoss()]
    elif cls is loss_functions._SmoothedLoss:
        losses = [mg.CrossEntropyLoss(), mg.CrossEntropyLoss(0.2)]
    elif issubclass(cls, loss_functions._SmoothedLoss):
        losses = [cls(), cls(0.2)]
    else:
        numbers = {mg.HuberLoss: (0.6,), mg.MultiMarginLoss: (0.4,)}
        losses = [cls(), *(cls(x) for x in numbers.get(cls, ()))]
    for loss in losses:
        for one_hot in (False, True):
            targets = SympyMatrix(N, K, lambda i, j: int(j == (2 * i + 1) % K))
            options = {"sizes": {"N": N, "K": K}, "given": {"T": targets} if one_hot else {}}
            yield Case(
                f"{loss!r} one_hot={one_hot}",
                partial(_loss_values, loss, one_hot),
                partial(_torch_loss, loss, one_hot),
                partial(symbolic_checks, of_loss, lambda loss=loss: loss, options),
            )


def _loss_at(loss: mg.LossFunction, one_hot: bool, point: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(point)
    is_probability = [*loss.accepts] == ["probability"]
    Y = rng.uniform(0.1, 0.9, (N, K)) if is_probability else rng.normal(size=(N, K))
    T = mg.one_hot(rng.integers(0, K, N), K).astype(float) if one_hot else rng.uniform(0.1, 1.5, (N, K))
    return Y, T


def _loss_values(loss: mg.LossFunction, one_hot: bool, point: int) -> Values:
    Y, T = _loss_at(loss, one_hot, point)
    s = _weights(point)
    plain = {"value": loss(Y, T), "gradient": loss.gradient(Y, T), "mean_gradient": loss.mean_gradient(Y, T)}
    return plain | {"weighted value": loss(Y, T, s), "weighted gradient": loss.mean_gradient(Y, T, s)}


def _weights(point: int) -> np.ndarray:
    return np.random.default_rng(point).uniform(0, 3, (N, 1))


def _torch_loss(loss: mg.LossFunction, one_hot: bool, point: int) -> Values:
    Y, T = map(torch.tensor, _loss_at(loss, one_hot, point))
    Y.requires_grad_()
    mean = torch_loss(loss, Y, T)
    mean.backward()
    scale = 1 if loss.is_mean else N
    gradient = Y.grad.numpy().copy()
    plain = {"value": scale * mean.detach().numpy(), "gradient": scale * gradient, "mean_gradient": gradient}
    Y.grad = None
    rows = torch.stack([torch_loss(loss, Y[i : i + 1], T[i : i + 1]) for i in range(N)])
    weighted = (torch.tensor(_weights(point))[:, 0] * rows).mean()
    weighted.backward()
    return plain | {"weighted value": scale * weighted.detach().numpy(), "weighted gradient": Y.grad.numpy()}


# -- activation functions ----------------------------------------------------------------------

_WITH_NUMBERS = {"LeakyReLU": 0.3, "AllReLU": 0.3, "TReLU": 0.4, "ELU": 0.7}


def _activation_cases(cls: type[mg.ActivationFunction]) -> Iterator[Case]:
    classes = (mg.LeakyReLUActivation, mg.ReLUActivation) if cls is activations._PiecewiseLinear else (cls,)
    for each in classes:
        name = each.__name__.removesuffix("Activation")
        symbolic = (
            activations.SReLUActivation(*(symbols(p, 1, 3) for p in ("al", "tl", "ar", "tr")))
            if name == "SReLU"
            else each()
        )
        yield Case(
            name,
            partial(_activation_values, each, name),
            partial(_torch_activation, each, name),
            lambda symbolic=symbolic: iter(check_activation(symbolic)),
        )


def _activation_at(cls: type, name: str, point: int) -> tuple[mg.ActivationFunction, np.ndarray]:
    rng = np.random.default_rng(point)
    if name == "SReLU":
        return cls(*(rng.normal(size=(1, K)) for _ in range(4))), rng.normal(0, 1.5, (N, K))
    return cls(_WITH_NUMBERS[name]) if name in _WITH_NUMBERS else cls(), rng.normal(0, 1.5, (N, K))


def _activation_values(cls: type, name: str, point: int) -> Values:
    act, X = _activation_at(cls, name, point)
    values = {"value": act(X), "gradient": act.gradient(X)}
    if name == "SReLU":
        values |= {"left": act.left(X), "right": act.right(X), "middle": act.middle(X)}
    return values


def _torch_activation(cls: type, name: str, point: int) -> Values:
    act, X = _activation_at(cls, name, point)
    X = torch.tensor(X, requires_grad=True)
    if name == "SReLU":
        Y = _torch_srelu(X, *(torch.tensor(p) for p in (act.al, act.tl, act.ar, act.tr)))
    else:
        Y = TORCH_ACTIVATIONS[name](act, X)
    Y.sum().backward()
    return {"value": Y.detach().numpy(), "gradient": X.grad.numpy()}


# -- softmax functions -------------------------------------------------------------------------


@cache
def _softmax_case(name: str) -> Case:
    in_torch = partial(F.log_softmax if "log" in name else F.softmax, dim=1)
    return Case(
        name,
        partial(_softmax_values, name),
        partial(_torch_softmax, in_torch),
        partial(symbolic_checks, of_softmax, name, {"sizes": {"N": N, "D": K}}),
    )


def _softmax_values(name: str, point: int) -> Values:
    X = np.random.default_rng(point).normal(size=(N, K))
    jacobian = getattr(softmax_functions, f"{name}_jacobian")
    return {"value": getattr(softmax_functions, name)(X), "jacobian": jacobian(X[:1])}


def _torch_softmax(f: Callable[[torch.Tensor], torch.Tensor], point: int) -> Values:
    X = torch.tensor(np.random.default_rng(point).normal(size=(N, K)))
    jacobian = torch.autograd.functional.jacobian(f, X[:1])
    return {"value": f(X).numpy(), "jacobian": jacobian[0, :, 0, :].numpy()}
