"""500 random exchanges: what goes out computes the same and comes back; what strangers made is exact or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import torch
from exchange_support import TOOLS, Tool, assert_near, assert_same, normalized
from hostile_mutants import in_keras, in_onnx, mutant
from keras import layers
from torch import nn
from torch.nn.utils import prune

import matgrad as mg
from matgrad.exchange import save_keras
from matgrad.exchange.keras_models import own_warnings_ignored
from support import TOLERANCE

FEW, SLOW = 2, pytest.mark.slow  # of each kind in `make test`
UNRUNNABLE = tuple(
    vars(onnxruntime.capi.onnxruntime_pybind11_state)[x]
    for x in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "InvalidProtobuf")
)
PER_TOOL, PER_STRANGER = 50, {"torch": 80, "keras": 40, "onnx": 80}  # 500 in all
REFUSALS = {  # what tools lack, by the start of their names
    "torch": "is max",
    "keras": "is max|Keras has positive ones only",
    "onnx": "is max|ONNX has the number|ONNX normalizes rows in float32 only",
    "sparse onnx": "is max|ONNX has the number|ONNX normalizes rows in float32 only",
}


def few_or(count: int, names: tuple[str, ...] = ()) -> list:
    """Parameters: a name, and how many exchanges of it; most of them are slow."""
    return [pytest.param(name, n, marks=marks) for name in names for n, marks in ((FEW, ()), (count, SLOW))]


def number(rng: np.random.Generator, low: float, high: float) -> float:
    return float(f"{rng.uniform(low, high):.3g}")


def attempted(read: Callable[[], mg.MultilayerPerceptron]) -> tuple[mg.MultilayerPerceptron | None, str]:
    """The model, or None and why it was refused."""
    try:
        return read(), ""
    except ValueError as error:
        return None, str(error)


# -- models of matgrad ----------------------------------------------------------------------------


def random_model(rng: np.random.Generator) -> mg.MultilayerPerceptron:
    """Any layers that other tools have, with any settings, and weights of any size."""
    items, sizes = [], [int(rng.integers(1, 9))]
    for _ in range(rng.integers(1, 6)):
        kinds = {
            "": ["ReLU", "HyperbolicTangent", "Sigmoid", "GELU", "SiLU", "Softplus", "Linear"],
            "rows": ["Softmax", "LogSoftmax"] if sizes[-1] > 1 else ["Linear"],
            "number": [f"{kind}({number(rng, -1, 1.5)})" for kind in ("LeakyReLU", "AllReLU", "TReLU", "ELU")],
            "kept": [f"BatchNormalization(epsilon={number(rng, 1e-6, 0.1)}, momentum={number(rng, 0, 1)})"],
        }
        kinds["kept"] += [
            f"{kind}(epsilon={number(rng, 1e-6, 0.1)})" for kind in ("LayerNormalization", "RMSNormalization")
        ]
        kinds["kept"].append(f"Dropout({number(rng, 0, 0.9)})")
        group = str(rng.choice([*kinds]))
        items.append(str(rng.choice(kinds[group])))
        if group != "kept":
            sizes.append(int(rng.integers(2, 9)))
    if len(sizes) == 1:
        items.append("Linear")
        sizes.append(3)
    densities = ";".join(str(rng.choice(["0.5", "1"])) for _ in sizes[1:])
    M = mg.create_model(";".join(items), sizes, densities=densities).to("numpy", dtype=str(rng.choice([*TOLERANCE])))
    state = M.state()
    for name in [name for name, A in state.items() if name.count(".") == 1 and A.dtype.kind == "f"]:
        A = 10 ** rng.uniform(-1.5, 1) * rng.normal(size=state[name].shape)
        state[name] = (np.abs(A) + 0.01 if "variance" in name else A).astype(M.dtype)
    M.load_state(state)
    return normalized(M) if rng.random() < 0.3 else M


@pytest.mark.parametrize(("name", "count"), few_or(PER_TOOL, TOOLS))
def test_models_go_out_and_come_back(tmp_path: Path, name: str, count: int):
    tool, done = Tool(name, tmp_path), 0
    for seed in range(10 * count):
        rng = np.random.default_rng((seed, TOOLS.index(name)))
        M = random_model(rng)
        if name == "sparse onnx":  # whose float64 operators onnxruntime lacks
            M.to(dtype="float32")
        where = f"{name}, seed {seed}: {M.information} {[layer.specification() for layer in M.layers]} {M.dtype}"
        X = (10 ** rng.uniform(-2, 1) * rng.normal(size=(17, M.layers[0].input_size))).astype(M.dtype)
        if M.normalization is not None:
            X = X * M.normalization.scale + M.normalization.offset
        expected = M.predict(X := X.astype(M.dtype))
        back, problem = attempted(partial(tool.round_trip, M))
        if back is None:
            lacks = REFUSALS.get(name) or REFUSALS[name.split()[0]]
            assert re.match(f"layer .*({lacks})", problem), f"{where}: {problem}"
            continue
        exact = M.clone().to(dtype="float64").predict(X)
        rounding = 100 * np.abs(exact - expected).max() / max(np.abs(expected).max(), 1e-3)
        slack = 30 + rounding / TOLERANCE[M.dtype]
        assert_near(tool.outputs(M, X), expected, tool.precision(M.dtype), where, slack)
        assert_near(back.predict(X), expected, M.dtype, where, slack)
        if "onnx" not in name and "keras" not in name:
            assert_same(back, M)
        done += 1
        if done == count:
            return
    pytest.fail(f"only {done} models were exchanged")


# -- what strangers made --------------------------------------------------------------------------


def random_module(rng: np.random.Generator) -> nn.Module:
    """A chain of modules, some of which do something odd."""
    sizes = rng.integers(2, 7, size=8).tolist()
    parts: list[nn.Module] = []
    for k in range(rng.integers(1, 6)):
        D = sizes[k]
        kinds: list[Callable[[], list[nn.Module]]] = [
            lambda D=D: [nn.BatchNorm1d(D, momentum=rng.choice([0.1, 0.3]), affine=bool(rng.integers(2)))],
            lambda D=D: [nn.LayerNorm(D, elementwise_affine=bool(rng.integers(2)))],
            lambda D=D: [nn.RMSNorm(D), nn.Dropout(0.2)],
            lambda: [nn.Flatten(int(rng.integers(2)))],
            lambda: [nn.Sequential(nn.Identity())],
        ]
        if rng.random() < 0.4:
            parts += kinds[rng.integers(len(kinds))]()
        functions = [
            nn.ReLU(), nn.Softmax(dim=int(rng.integers(2))), nn.GELU(str(rng.choice(["none", "tanh"]))), nn.ReLU6(),
            nn.Softplus(float(rng.choice([1, 2]))), nn.Threshold(0.1, float(rng.choice([0, 0, 0.5]))), nn.SiLU(),
            nn.LeakyReLU(rng.normal()), nn.ELU(rng.normal()), nn.LogSoftmax(dim=-1), nn.Tanh(), nn.Identity(),
        ]  # fmt: skip
        parts += [nn.Linear(D, sizes[k + 1], bias=bool(rng.integers(2))), functions[rng.integers(len(functions))]]
    module = nn.Sequential(*parts)
    with torch.no_grad():
        for name, A in (*module.named_parameters(), *module.named_buffers()):
            if A.is_floating_point():
                B = torch.tensor(10 ** rng.uniform(-1, 1) * rng.normal(size=A.shape))
                A.copy_(B.abs() + 0.01 if "running_var" in name else B)
    linear = [part for part in module if isinstance(part, nn.Linear)]
    odd = rng.integers(12)
    part = linear[rng.integers(len(linear))]
    if odd == 0:
        part.register_forward_hook(lambda module, X, Y: Y + 1)
    elif odd == 1:
        prune.random_unstructured(part, "weight", 0.5)
        part.weight_orig.data.add_(1)
    elif odd == 2 and any(isinstance(other, nn.LayerNorm) and other.elementwise_affine for other in module):
        other = next(other for other in module if isinstance(other, nn.LayerNorm) and other.elementwise_affine)
        prune.random_unstructured(other, "weight", 0.5)
        other.weight_orig.data.add_(1)
    elif odd == 3:
        part.weight = linear[0].weight
    elif odd == 4:
        part.forward = lambda X: 2 * nn.Linear.forward(part, X)
    return module.eval() if rng.integers(2) else module


def random_keras(rng: np.random.Generator) -> keras.Model:
    """A model of Keras, some of whose layers or calls are odd."""
    X = Y = keras.Input((int(rng.integers(2, 7)),))
    for _ in range(rng.integers(1, 5)):
        pool = [
            layers.BatchNormalization(scale=bool(rng.integers(2))), layers.RMSNormalization(), layers.ReLU(6.0),
            layers.LayerNormalization(center=bool(rng.integers(2))), layers.Dropout(0.3), layers.GaussianNoise(0.1),
            layers.Flatten(),
        ]  # fmt: skip
        if rng.random() < 0.4:
            Y = pool[rng.integers(len(pool))](Y, **({"training": True} if rng.random() < 0.2 else {}))
        kinds = [
            "relu",
            "gelu",
            "softmax",
            "tanh",
            "elu",
            "selu",
            "silu",
            "leaky_relu",
            "softplus",
            "log_softmax",
            None,
        ]
        act = kinds[rng.integers(len(kinds))]
        Y = layers.Dense(int(rng.integers(2, 7)), act, use_bias=bool(rng.integers(2)))(Y)
        functions = [
            layers.ReLU(threshold=0.2),
            layers.ReLU(negative_slope=0.3),
            layers.ELU(0.5),
            layers.Softmax(axis=0),
        ]
        if act is None and rng.random() < 0.5:
            Y = functions[rng.integers(len(functions))](Y)
    model = keras.Model(X, Y)
    weights = [10 ** rng.uniform(-1, 1) * rng.normal(size=v.shape) for v in model.weights]
    pairs = zip(model.weights, weights, strict=True)
    model.set_weights([np.abs(A) + 0.01 if "variance" in v.path else A for v, A in pairs])
    return model


def outputs_on_fresh_batches(
    M: mg.MultilayerPerceptron, rng: np.random.Generator, run: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """What another tool and M compute for batches of other sizes and scales, and the slack of rounding."""
    for N, scale in ((3, 1.0), (29, 3.0), (1, 30.0), (2, 0.1)):
        X = scale * rng.normal(size=(N, M.layers[0].input_size))
        if M.normalization is not None:
            X = X * M.normalization.scale + M.normalization.offset
        Y = M.predict(X := X.astype(M.dtype))
        rounding = np.abs(M.clone().to(dtype="float64").predict(X) - Y).max() / max(np.abs(Y).max(), 1e-3)
        yield run(X), Y, 30 + 100 * rounding / TOLERANCE[M.dtype]


def stranger(
    kind: str, rng: np.random.Generator, folder: Path
) -> tuple[Callable[[], mg.MultilayerPerceptron], Callable]:
    """How a random thing of another tool is read, and how that tool runs it."""
    if kind == "torch":
        module = random_module(rng)

        def run_torch(X: np.ndarray) -> np.ndarray:
            mode = module.training
            with torch.no_grad():
                Y = module.eval()(torch.tensor(X)).numpy()
            module.train(mode)
            return Y

        return lambda: mg.from_torch(module), run_torch
    if kind == "keras":
        model = random_keras(rng)
        return lambda: mg.from_keras(model), lambda X: keras.ops.convert_to_numpy(model(X, training=False))
    path = folder / "m.onnx"
    while not path.exists():
        with suppress(ValueError):  # what ONNX lacks
            mg.to_onnx(random_model(rng).to(dtype="float32").eval(), path)
    path.write_bytes(in_onnx(path.read_bytes(), rng))

    def run_onnx(X: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: X})[0]

    return lambda: mg.from_onnx(path), run_onnx


@pytest.mark.parametrize(("kind", "count"), [x for kind, count in PER_STRANGER.items() for x in few_or(count, (kind,))])
def test_what_strangers_made_is_exact_or_refused(tmp_path: Path, kind: str, count: int):
    read_count = 0
    for seed in range(count):
        rng = np.random.default_rng((seed, [*PER_STRANGER].index(kind)))
        (folder := tmp_path / str(seed)).mkdir()
        read, run = stranger(kind, rng, folder)
        with own_warnings_ignored():
            M, problem = attempted(read)
            assert "\n" not in problem, f"{kind}, seed {seed}: {problem}"
            if M is None:
                continue
            try:
                pairs = [*outputs_on_fresh_batches(M, rng, run)]
            except UNRUNNABLE:  # by onnxruntime; ONNX's own evaluator was less strict
                continue
        for found, expected, slack in pairs:
            assert_near(found, expected, M.dtype, f"{kind}, seed {seed}: {M!r}", slack)
        read_count += 1
    assert read_count >= count // 10


@pytest.mark.parametrize("count", [FEW, pytest.param(100, marks=SLOW)])
def test_mutants_of_keras_files_are_read_or_refused_where_keras_is_installed(tmp_path: Path, count: int):
    """`tests/hostile` reads others without Keras."""
    path, read_count = tmp_path / "a.keras", 0
    kinds = "ReLU;BatchNormalization;Dropout(0.2);LayerNormalization;LeakyReLU(0.2);TReLU(0.1);Softmax"
    save_keras(normalized(mg.create_model(kinds, "3;4;4;4;2")), path)
    good = path.read_bytes()
    for seed in range(count):
        path.write_bytes(mutant(good, np.random.default_rng(seed), in_keras))
        M, problem = attempted(partial(mg.from_keras, path))
        assert "\n" not in problem, f"seed {seed}: {problem}"
        read_count += M is not None
    assert read_count < count
    assert count == FEW or read_count > 0
