"""Mutants that are wrong only at a size, in a range, in the initial state, in the second step or by default.

`mutants.py` has those that are wrong everywhere. A mutant here is told from the original by running both on NumPy, at
the sizes and in the ranges for which it was made; `matgrad verify` must notice every one that differs.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
from mutants import Mutant, Target, _expressions, _replaced, _tree, targets
from oracles import Values

import matgrad as mg
from matgrad import activation_functions as activations
from matgrad import layers, loss_functions, optimizers, softmax_functions
from matgrad.inspection.verdicts import Check
from matgrad.judges.numbers_judge import SIZES as POINTS
from matgrad.judges.numbers_judge import NumbersAlgebra
from matgrad.judges.suite import NUMBERS, SYMPY, cases
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.normalization import NormalizationLayer
from matgrad.layers.weights import WeightedLayer

# a condition on the shape of a matrix, under which an expression is doubled
SIZES = ("{}.shape[0] == 1", "{}.shape[0] == 2", "{}.shape[0] >= 100", "{}.shape[1] == 1", "{}.shape[1] == 2")
RANGES = (20, -20, 300)  # beyond these, an expression is a thousandth off


def beyond(limit: int, X: str) -> str:
    """The expression that is 1 where an element of X is above a positive limit or below a negative one, else 0."""
    return f"step({'' if limit > 0 else '-'}{X} - {abs(limit)} * ones(*{X}.shape, like={X}))"


BN, ADAM = layers.BatchNormalizationLayer, optimizers.AdamOptimizer
LN = layers.LayerNormalizationLayer
_SOFTPLUS = "-log_sigmoid(-X)"
# kind, class, method, what is replaced and by what; the first four are those that passed all tests of version 0.2
LISTED = (
    ("size", BN, "update_statistics", "N / (N - 1)", "(N / (N - 1) if N != 2 else 1)"),
    ("size", BN, "feedforward", "(hadamard(R, R)) / N", "(hadamard(R, R)) / (N - 1 if X.shape[1] == 1 else N)"),
    ("size", BN, "feedforward", "self.epsilon)", "self.epsilon if N < 100 else 0)"),
    (
        *("range", activations.SoftplusActivation, "__call__", _SOFTPLUS),
        f"hadamard({beyond(20, 'X')}, X) + hadamard(ones(*X.shape, like=X) - {beyond(20, 'X')}, {_SOFTPLUS})",
    ),
    ("size", BN, "update_statistics", "N == 1", "N <= 2"),
    ("size", BN, "update_statistics", "m * mu", "m * mu * (N if N >= 100 else 1)"),
    ("size", BN, "backpropagate", "inv_sqrt_Sigma / N", "inv_sqrt_Sigma / (N if N < 100 else N - 1)"),
    ("state", BN, "__init__", "self.running_mean = np.zeros", "self.running_mean = np.ones"),
    ("state", BN, "__init__", "self.running_variance = np.ones", "self.running_variance = np.zeros"),
    ("size", LN, "feedforward", "self.epsilon)", "self.epsilon if D > 2 else 0)"),
    ("state", NormalizationLayer, "__init__", "self.gamma = np.ones", "self.gamma = np.zeros"),
    ("state", NormalizationLayer, "__init__", "self.beta = np.zeros", "self.beta = np.ones"),
    *(("default", cls, "__init__", "epsilon: float=1e-05", "epsilon: float=1e-06") for cls in (NormalizationLayer,)),
    ("state", WeightedLayer, "set_weights", "np.zeros((1, K))", "np.ones((1, K))"),
    ("state", LayerWithDropout, "start_dropout", "np.array(0,", "np.array(1,"),
    ("state", optimizers.AdagradOptimizer, "__init__", "self.v = zeros", "self.v = ones"),
    ("state", optimizers.MomentumOptimizer, "__init__", "zeros(*x.shape, like=x)", "zeros(*x.shape, like=x) + 1"),
    *(("state", ADAM, "__init__", f"self.{name} = zeros", f"self.{name} = ones") for name in "mv"),
    *(
        ("state", ADAM, "__init__", f"self.c{i} = backend_of(x).scalar(0", f"self.c{i} = backend_of(x).scalar(1")
        for i in (1, 2)
    ),
    ("default", BN, "__init__", "epsilon: float=1e-05", "epsilon: float=0.0001"),
    ("default", BN, "__init__", "momentum: float=0.1", "momentum: float=0.9"),
    ("default", layers.SReLULayer, "__init__", "tr: float=1.0", "tr: float=0.0"),
    ("default", layers.SReLULayer, "__init__", "al: float=0.0", "al: float=0.1"),
    ("default", layers.SReLULayer, "__init__", "shared: bool=False", "shared: bool=True"),
    ("default", LayerWithDropout, "__init__", "dropout: float=0.5", "dropout: float=0.4"),
    ("default", layers.DropoutLayer, "__init__", "dropout: float=0.5", "dropout: float=0.1"),
    ("default", loss_functions.HuberLoss, "__init__", "delta: float=1.0", "delta: float=0.5"),
    ("default", loss_functions.MultiMarginLoss, "__init__", "margin: float=1.0", "margin: float=0.5"),
    ("default", optimizers.AdagradOptimizer, "__init__", "epsilon: float=1e-10", "epsilon: float=1e-07"),
    ("default", optimizers.RMSPropOptimizer, "__init__", "alpha: float=0.99", "alpha: float=0.9"),
    ("default", optimizers.RMSPropOptimizer, "__init__", "epsilon: float=1e-08", "epsilon: float=1e-07"),
    ("default", activations.LeakyReLUActivation, "__init__", "0.01", "0.1"),
    ("default", activations.AllReLUActivation, "__init__", "0.01", "0.1"),
    ("default", activations.TReLUActivation, "__init__", "0.01", "0.1"),
    ("default", activations.ELUActivation, "__init__", "1.0", "0.5"),
    ("default", loss_functions._SmoothedLoss, "__init__", "float=0.0", "float=0.1"),
    ("default", optimizers.Optimizer, "__init__", "weight_decay: float=0.0", "weight_decay: float=0.001"),
    ("default", optimizers.Optimizer, "__init__", "l1: float=0.0", "l1: float=0.001"),
    ("default", optimizers.MomentumOptimizer, "__init__", "mu: float=0.9", "mu: float=0.99"),
    ("default", ADAM, "__init__", "beta1: float=0.9", "beta1: float=0.99"),
    ("default", ADAM, "__init__", "beta2: float=0.999", "beta2: float=0.99"),
    ("default", ADAM, "__init__", "epsilon: float=1e-08", "epsilon: float=1e-07"),
    ("default", optimizers.AdamWOptimizer, "__init__", "weight_decay: float=0.01", "weight_decay: float=0.0"),
    ("second step", BN, "update_statistics", "(1 - m) * self.running_mean", "0 * self.running_mean"),
    ("second step", optimizers.MomentumOptimizer, "accumulate", "self.mu * self.delta", "0 * self.delta"),
    ("second step", optimizers.NesterovOptimizer, "update", "self.mu * self.delta", "self.delta"),
    ("second step", optimizers.Optimizer, "apply", "Dx + decay * x", "Dx - decay * x"),
    ("second step", optimizers.Optimizer, "apply", "Dx + l1 * sign(x)", "Dx - l1 * sign(x)"),
    ("second step", optimizers.Optimizer, "apply", "l1 * sign(x)", "l1 * (2 * step(x) - ones(*x.shape, like=x))"),
    ("second step", optimizers.Optimizer, "apply", "l1 * sign(x)", "l1 * sign(Dx)"),
    ("second step", optimizers.AdagradOptimizer, "accumulate", "self.v + ", "0 * self.v + "),
    (
        "second step",
        optimizers.AdagradOptimizer,
        "update",
        "sqrt(self.v) + self.epsilon",
        "sqrt(self.v) - self.epsilon",
    ),
    ("second step", optimizers.AdagradOptimizer, "update", "self.x - eta", "self.x + eta"),
    ("second step", optimizers.RMSPropOptimizer, "accumulate", "self.alpha * self.v", "0 * self.v"),
    ("second step", optimizers.RMSPropOptimizer, "accumulate", "(1 - self.alpha) * ", ""),
    (
        "second step",
        ADAM,
        "update",
        "beta1 * self.c1 + (1 - beta1)",
        "(beta1 * self.c1 + (1 - beta1) if self.c1 != 0 else 1)",
    ),
    ("second step", ADAM, "update", "beta2 * self.c2 + (1 - beta2)", "1 - beta2"),
    ("second step", optimizers.AdamWOptimizer, "update", "self.x - eta", "self.x + eta"),
    ("second step", LayerWithDropout, "optimize", "self.renewals + 1", "self.renewals"),
    ("second step", LayerWithDropout, "optimize", "self.renew == 'step'", "self.renew == 'epoch'"),
    ("second step", LayerWithDropout, "end_epoch", "self.renew == 'epoch'", "True"),
)
# class attributes: flags and constants
ATTRIBUTES = (
    (activations.GELUActivation, "sqrt_2", 1.41421),
    (activations.GELUActivation, "sqrt_2", 1.4142135623),
    (activations.GELUActivation, "sqrt_2_pi", 2.50663),
    (loss_functions.SquaredErrorLoss, "is_mean", True),
    (loss_functions.MeanSquaredErrorLoss, "is_mean", False),
    (optimizers.AdamOptimizer, "decoupled", True),
    (optimizers.AdamWOptimizer, "decoupled", False),
)


@cache
def special_mutants() -> tuple[Mutant, ...]:
    """All of them: those of the list, and for each method with equations one per condition."""
    return (*_listed(), *(mutant for target in targets() for mutant in _generated(target)))


def _listed() -> Iterator[Mutant]:
    for kind, cls, method, old, new in LISTED:
        target = Target(cls, method)
        original = ast.unparse(_tree(target.function))
        assert old in original, f"{target} has no {old!r}"
        yield Mutant(target, kind, 0, old, new, original.replace(old, new))


def _generated(target: Target) -> Iterator[Mutant]:
    """The last expression of a method, wrong at a size or in a range of its first matrix."""
    tree = _tree(target.function)
    names = [argument.arg for argument in tree.args.args if argument.arg in ("X", "x", "DY", "Y", "T", "A", "gradient")]
    roots = [root for _, root in _expressions(tree)]
    if not names or not roots:
        return
    matrix = "DY" if "DY" in names else names[0]
    i = next(i for i, node in enumerate(ast.walk(tree)) if node is roots[-1])
    expression = ast.unparse(roots[-1])
    changes = [("size", f"(2 if {condition.format(matrix)} else 1) * ({expression})") for condition in SIZES]
    if _is_of(target, activations.ActivationFunction, loss_functions.LossFunction):
        is_value = target.name == "__call__" and not _is_of(target, activations.ActivationFunction)
        for limit in RANGES:
            off = f"0.001 * {beyond(limit, matrix)}"
            off = f"elements_sum({off})" if is_value else off
            changes.append(("range", f"({expression}) + {off}"))
    for kind, new in changes:
        source = _replaced(tree, i, ast.parse(new, mode="eval").body)
        yield Mutant(target, kind, 0, expression, new, source)


def _is_of(target: Target, *classes: type) -> bool:
    return isinstance(target.owner, type) and issubclass(target.owner, classes)


LAYERS = {
    "Linear": mg.LinearLayer,
    "SReLU": mg.SReLULayer,
    "Softmax": mg.SoftmaxLayer,
    "LogSoftmax": mg.LogSoftmaxLayer,
    "BatchNormalization": lambda D, K: mg.BatchNormalizationLayer(D),
    "LayerNormalization": lambda D, K: mg.LayerNormalizationLayer(D),
    "RMSNormalization": lambda D, K: mg.RMSNormalizationLayer(D),
    "Dropout": lambda D, K: mg.DropoutLayer(D, D, 0.3),
}


# -- what it computes ----------------------------------------------------------------------------


def values(target: Target) -> Values:
    """What the package computes with the target, at all points, by name."""
    found: Values = {}
    for point in POINTS:
        for name, run in _runs(target):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    result = run(*point)
                except Exception as error:  # whatever a wrong equation leads to
                    result = {"error": np.array([hash(str(error))])}
            found |= {f"{name} {key} {point}": np.array(value) for key, value in result.items()}
    return found


def differs_from(original: Values, target: Target) -> bool:
    """Whether the target computes something else than the original did."""
    for name, A in values(target).items():
        E = original[name]
        if A.shape != E.shape or not np.allclose(A, E, rtol=1e-9, atol=1e-13, equal_nan=True):
            return True
    return False


def _runs(target: Target) -> Iterator[tuple[str, Callable[..., Values]]]:
    owner = target.owner
    if owner is softmax_functions:
        for name in names_of(target):
            yield name, partial(_softmax, name) if "softmax" in name else partial(_loss, loss_functions.LOSSES[name])
    elif issubclass(owner, mg.Layer | activations.SReLUActivation):
        for name in names_of(target):
            for training in (True, False):
                yield f"{name} {training}", partial(_layer, name, training)
    elif issubclass(owner, loss_functions.LossFunction):
        for name in names_of(target):
            yield name, partial(_loss, loss_functions.LOSSES[name])
    elif issubclass(owner, activations.ActivationFunction):
        for name in names_of(target):
            yield name, partial(_activation, name)


def _layer(name: str, training: bool, N: int, D: int, K: int, scale: float) -> Values:
    rng = np.random.default_rng(N)
    layer = mg.ActivationLayer(D, K, name) if name in activations.ACTIVATIONS else LAYERS[name](D, K)
    layer.training = training
    for parameter in layer.parameters:
        setattr(layer, parameter, rng.normal(size=getattr(layer, parameter).shape))
    found: Values = {}
    for batch in range(2):
        X, G = scale * rng.normal(size=(N, D)), rng.normal(size=(N, layer.output_size))
        Y = layer.feedforward(X)
        layer.backpropagate(Y, G)
        names = ["DX", *(f"D{p}" for p in layer.parameters), *(b for b in layer.buffers if b.startswith("running"))]
        found |= {f"{key} {batch}": getattr(layer, key) for key in names} | {f"Y {batch}": Y}
    return found


def _loss(cls: type[mg.LossFunction], N: int, D: int, K: int, scale: float) -> Values:
    a, loss = NumbersAlgebra({"N": N, "K": K}, scale=scale), cls()
    Y, T, s = a.output(loss, N, K), a.targets(N, K), a.weights(N)
    plain = {"value": loss(Y, T), "gradient": loss.gradient(Y, T), "mean_gradient": loss.mean_gradient(Y, T)}
    return plain | {"weighted value": loss(Y, T, s), "weighted gradient": loss.mean_gradient(Y, T, s)}


def _activation(name: str, N: int, D: int, K: int, scale: float) -> Values:
    rng = np.random.default_rng(N)
    act, X = activations.ACTIVATIONS[name](), scale * rng.normal(size=(N, K))
    return {"value": act(X), "gradient": act.gradient(X)}


def _softmax(name: str, N: int, D: int, K: int, scale: float) -> Values:
    X = scale * np.random.default_rng(N).normal(size=(N, K))
    jacobian = getattr(softmax_functions, f"{name}_jacobian")
    return {"value": getattr(softmax_functions, name)(X), "jacobian": jacobian(X[:1])}


# -- what `matgrad verify` says ------------------------------------------------------------------


def names_of(target: Target) -> tuple[str, ...]:
    """What `matgrad verify --layer` calls the classes that use the target."""
    owner = target.owner
    if owner is softmax_functions:
        name = target.name.removesuffix("_jacobian")
        users = {
            "_minus_rows_max": ("stable_softmax", "stable_log_softmax"),
            "half_log_softmax": ("SoftmaxCrossEntropy",),
        }
        return users.get(name, (name,))
    special: dict[type, tuple[str, ...]] = {
        WeightedLayer: ("Linear",),
        LayerWithDropout: ("Dropout", "Linear"),
        layers.LinearDropoutLayer: ("Linear",),
        NormalizationLayer: ("BatchNormalization", "LayerNormalization", "RMSNormalization"),
        layers.ActivationLayer: ("HyperbolicTangent",),
        loss_functions.LossFunction: ("SquaredError", "MeanSquaredError"),
        loss_functions._SmoothedLoss: ("CrossEntropy",),
        activations._PiecewiseLinear: ("LeakyReLU", "ReLU"),
        activations.SReLUActivation: ("SReLU",),
        optimizers.Optimizer: ("GradientDescent", "Momentum", "AdamW"),
        optimizers.AdagradOptimizer: ("Adagrad", "RMSProp"),
    }
    endings = ("Layer", "Loss", "Activation", "Optimizer")
    if owner in special:
        return special[owner]
    return next((owner.__name__.removesuffix(end),) for end in endings if owner.__name__.endswith(end))


def verdict_of_verify(target: Target) -> Check | None:
    """The first failed check by SymPy or in numbers, which is quicker; None if there is none."""
    chosen = sorted(cases(names_of(target), judges=[NUMBERS, SYMPY]), key=lambda case: case.judge)
    return next((check for case in chosen[::-1] for check in case.run() if not check.ok), None)
