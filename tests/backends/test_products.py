"""How products are computed: in float32 unless something else was asked for, whatever the framework's settings."""

import json

import numpy as np
import pytest

from cli_support import run, succeed
from matgrad.backends.base import MATMULS
from matgrad.engines.fallback import TrainingStep, evaluation_of
from matgrad.loss_functions import SquaredErrorLoss, create_loss
from matgrad.program.computations import Evaluation, GradientFactors, make_step, train_batch
from matgrad.specifications.models import create_model
from support import Framework

BACKENDS = ("torch", "jax")
RNG = np.random.default_rng(3)
X, T = RNG.normal(size=(8, 6)).astype(np.float32), np.eye(3, dtype=np.float32)[RNG.integers(0, 3, 8)]
LOSS = create_loss("SoftmaxCrossEntropy")


class ProductLoss(SquaredErrorLoss):
    """A loss of a user, with products."""

    def gradient(self, Y, T):
        return (Y @ Y.T) @ (Y - T)


def model(backend, matmul=None, densities=None):
    M = create_model(
        "ReLU;BatchNormalization;Sigmoid;Linear", "6;5;4;3", optimizers="Momentum(0.9)", densities=densities
    )
    return M.to(backend.name, dtype="float32", matmul=matmul)


@pytest.fixture
def has_all(monkeypatch, backend):
    """The backend has all products on the processor, too."""
    if backend.name not in ("torch", "jax"):
        pytest.skip("torch and jax alone have several")
    monkeypatch.setattr(type(backend.backend), "matmuls", lambda self, device: MATMULS)


@pytest.fixture
def torch_backend():
    return Framework("torch")


@pytest.fixture
def has_all_on_torch(monkeypatch, torch_backend):
    """PyTorch has all products on the processor, too."""
    monkeypatch.setattr(type(torch_backend.backend), "matmuls", lambda self, device: MATMULS)


# -- asked for ------------------------------------------------------------------------------------------


def test_the_choice_stays_with_the_model(backend, has_all):
    M = model(backend)
    assert M.matmul == "float32"
    assert "products" not in repr(M)
    before = M.state()
    assert M.to(matmul="tf32").matmul == M.clone().matmul == make_step(M, LOSS).template.matmul == "tf32"
    assert all(X is before[name] for name, X in M.state().items())  # nothing was moved
    assert repr(M).splitlines()[0] == f"MultilayerPerceptron on {backend.name}, float32, products in tf32"
    assert M.to(device="cpu").matmul == "tf32"
    assert M.to("numpy").matmul == "float32"
    assert M.to(backend.name, matmul="bf16").to(dtype="float64").matmul == "float32"


def test_only_float32_can_be_rounded(backend, has_all):
    M = model(backend).to(dtype="float64", matmul="float32")
    with pytest.raises(ValueError, match="matmul 'tf32': expected a model in float32, found float64"):
        M.to(matmul="tf32")
    with pytest.raises(ValueError, match="matmul 'bf16': expected a model in float32, found float64"):
        model(backend).to(dtype="float64", matmul="bf16")
    with pytest.raises(ValueError, match="matmul: expected one of float32, tf32, bf16, found 'fp8'"):
        M.to(matmul="fp8")


def test_processors_have_float32_alone(backend):
    M = model(backend)
    if M.device is not None and "cpu" not in M.device.lower():
        pytest.skip("it is on a GPU")
    expected = f"matmul 'tf32': {backend.name} on .*cpu.* has float32 alone; torch and jax have tf32 and bf16 on GPUs"
    with pytest.raises(ValueError, match=f"(?i){expected}"):
        M.to(matmul="tf32")
    with pytest.raises(ValueError, match="matmul 'bf16': numpy on cpu has float32 alone"):
        M.to("numpy", matmul="bf16")


def test_another_choice_is_another_compilation(backend, has_all):
    M = model(backend)
    step = TrainingStep(M, LOSS)
    step.load(M.state())
    before = step.compiled
    M.to(matmul="bf16")
    step.load(M.state())
    assert step.compiled is not before
    first = evaluation_of(M)
    assert evaluation_of(M) is first
    M.to(matmul="float32")
    assert evaluation_of(M) is not first


# -- computed -------------------------------------------------------------------------------------------


def everything(M, backend, loss):
    """Run all that has products: eager, compiled, and evaluations of both kinds."""
    Xb, Tb = backend.matrix(X, "float32"), backend.matrix(T, "float32")
    train_batch(M, loss, Xb, Tb, M.scalar(0.1))
    for compiled in (False, True):
        step = TrainingStep(M, loss, compiled=compiled)
        step.load(M.state())
        step(Xb, Tb, M.scalar(0.1))
        M.load_state(step.state())
        evaluation_of(M, compiled=compiled)(M.state(), Xb)
        evaluation_of(M, loss, compiled=compiled)(M.state(), Xb, Tb)
    M.feedforward(Xb)


@pytest.mark.parametrize("loss", [LOSS, ProductLoss()], ids=["own", "user's"])
def test_pytorch_does_not_follow_its_settings(torch_backend, loss):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    switches = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
                found.append({switch.fp32_precision for switch in switches})
            return function(*args, **(kwargs or {}))

    M = model(torch_backend)
    torch.set_float32_matmul_precision("medium")
    try:
        with Watch():
            torch.ones(2, 2) @ torch.ones(2, 2)
            assert found.pop() == {"tf32", "bf16"}
            everything(M, torch_backend, loss)
            assert len(found) > 40
            assert all(precisions == {"ieee"} for precisions in found)
        assert torch.get_float32_matmul_precision() == "medium"
        assert [switch.fp32_precision for switch in switches] == ["tf32", "bf16"]
    finally:
        torch.set_float32_matmul_precision("highest")


def test_pytorch_has_its_settings_back_where_they_are_general(torch_backend):
    """A switch that follows a more general one goes on following it."""
    import torch

    switch = torch.backends.cuda.matmul
    known = switch.fp32_precision
    switch.fp32_precision, torch.backends.fp32_precision = "none", "tf32"
    try:
        with torch_backend.backend.products("float32"):
            assert switch.fp32_precision == "ieee"
        with pytest.raises(KeyError), torch_backend.backend.products("float32"):
            raise KeyError
        assert switch.fp32_precision == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert switch.fp32_precision == "ieee"
    finally:
        torch.backends.fp32_precision, switch.fp32_precision = "none", known


def dots(jaxpr):
    """The precision and the sizes of every product in a program of JAX, those in its parts too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"], equation.params["preferred_element_type"]
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else [value]:
                inner = getattr(part, "jaxpr", part)
                yield from dots(inner) if hasattr(inner, "eqns") else ()


@pytest.mark.parametrize("matmul", MATMULS)
@pytest.mark.parametrize("loss", [LOSS, ProductLoss()], ids=["own", "user's"])
def test_jax_has_no_default_precision_in_any_product(backend, has_all, loss, matmul):
    if backend.name != "jax":
        pytest.skip("of JAX")
    import jax

    M = model(backend, matmul)
    Xb, Tb, eta, state = backend.matrix(X, "float32"), backend.matrix(T, "float32"), M.scalar(0.1), M.state()

    def eager(X, T):
        copy = M.clone()
        train_batch(copy, loss, X, T, eta)
        return copy.feedforward(X)

    traced = {
        "step": jax.make_jaxpr(make_step(M, loss))(state, Xb, Tb, eta),
        "evaluation": jax.make_jaxpr(Evaluation(M, loss))(state, Xb, Tb),
        "factors": jax.make_jaxpr(GradientFactors(M, loss))(state, Xb, Tb),
        "eager": jax.make_jaxpr(eager)(Xb, Tb),
        "feedforward": jax.make_jaxpr(lambda X: M.clone().feedforward(X))(Xb),
    }
    expected = {
        "float32": (jax.lax.Precision.HIGHEST,) * 2,
        "tf32": jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
        "bf16": jax.lax.DotAlgorithmPreset.BF16_BF16_F32,
    }[matmul]
    counts = {}
    for name, closed in traced.items():
        found = list(dots(closed.jaxpr))
        counts[name] = len(found)
        assert {precision for precision, _ in found} == {expected}, name
    own = 2 if isinstance(loss, ProductLoss) else 0
    assert counts["feedforward"] == 3
    assert counts["evaluation"] == 3
    assert counts["step"] == 9 + own


def test_factors_of_bfloat16(torch_backend, has_all_on_torch):
    """Eager and compiled products round their factors, and nothing else."""
    import torch

    A, B = RNG.normal(size=(40, 300)).astype(np.float32), RNG.normal(size=(300, 30)).astype(np.float32)
    A, B, C = torch.from_numpy(A), torch.from_numpy(B), torch.ones(40, 30)
    exact = A.bfloat16().double() @ B.bfloat16().double()
    with torch_backend.backend.products("bf16"):
        found = {
            "@": A @ B,
            "mm": torch.mm(A, B, out=torch.empty(40, 30)),
            "addmm": (torch.addmm(C, A, B, beta=0.5, alpha=2) - 0.5 * C) / 2,
            "transposed": (B.T @ A.T).T,
        }
        assert torch.linalg.norm(A.double() @ B.double() - exact) > 1e-3 * torch.linalg.norm(exact)  # only float32 is
    for name, product in found.items():
        assert product.dtype == torch.float32
        assert torch.linalg.norm(product - exact) < 1e-5 * torch.linalg.norm(exact), name
    assert torch.linalg.norm((A @ B) - exact) > 1e-3 * torch.linalg.norm(exact)


def test_compiled_products_of_bfloat16_are_the_eager_ones(torch_backend, has_all_on_torch):
    M, X = model(torch_backend).eval(), torch_backend.matrix(RNG.normal(size=(8, 6)), "float32")
    exact = torch_backend.backend.to_numpy(M.feedforward(X))
    M.to(matmul="bf16")
    eager, compiled = M.feedforward(X), evaluation_of(M)(M.state(), X)["Y"]
    eager, compiled = torch_backend.backend.to_numpy(eager), torch_backend.backend.to_numpy(compiled)
    np.testing.assert_allclose(compiled, eager, rtol=0, atol=1e-6)
    assert np.linalg.norm(eager - exact) > 1e-4 * np.linalg.norm(exact)


# -- said -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")  # which the command line shows
def test_the_record_says_how_products_were_computed(torch_backend, has_all_on_torch, tmp_path):
    options = ("--backend", "torch", "--matmul", "bf16", "--json")
    first = json.loads(succeed("train", "--epochs", 1, *options, "--checkpoint", tmp_path))
    assert first["matmul"] == first["configuration"]["matmul"] == "bf16"
    again = run("train", "--epochs", 2, "--resume", tmp_path)
    assert "on torch, float32, products in bf16" in again.output
    other = run("train", "--epochs", 3, "--matmul", "float32", "--resume", tmp_path)
    assert "had products in bf16, and is resumed with float32" in other.output
