"""PyTorch: gradients, training mode and state dictionaries are those of its modules, and odd modules are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exchange_support import D, K, N, assert_near, assert_same, examples, trained
from safetensors.torch import load_file
from torch import nn
from torch.nn import utils
from torch.nn.utils import parametrizations, parametrize, prune

import matgrad as mg
from matgrad.exchange import load_torch, save_torch

LAYERS = ("HyperbolicTangent;BatchNormalization;ELU(0.7);Softmax", f"{D};6;4;{K}")
NAMES = {"weight": "W", "weight_orig": "W", "bias": "b"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("densities", [1, "0.5;1;0.7"])
def test_gradients_and_statistics_in_training_mode(dtype: str, densities):
    """Two batches forward and backward: autograd and the equations agree, and so do the running statistics."""
    M = trained(*LAYERS, dtype=dtype, densities=densities).to("numpy").train()
    module = mg.to_torch(M)
    assert module.training
    rng = np.random.default_rng(5)
    for _ in range(2):
        X, DY = rng.normal(size=(N, D)).astype(dtype), rng.normal(size=(N, K)).astype(dtype)
        Y = M.feedforward(X)
        M.backpropagate(Y, DY)
        module.zero_grad()
        Y2 = module(torch.tensor(X))
        Y2.backward(torch.tensor(DY))
        assert_near(Y2.detach().numpy(), Y, dtype)
    linear = {"0": 0, "3": 2, "5": 3}
    for name, parameter in module.named_parameters():
        place, kind = name.split(".")
        layer = M.layers[linear.get(place, 1)]
        ours = f"D{NAMES[kind]}" if place in linear else {"weight": "Dgamma", "bias": "Dbeta"}[kind]
        G = getattr(layer, ours)
        G = G.to_dense() if isinstance(G, mg.SparseMatrix) else G
        assert_near(parameter.grad.numpy(), G.reshape(parameter.shape), dtype, name, slack=100)
    for name, A in (("running_mean", "running_mean"), ("running_var", "running_variance")):
        assert_near(getattr(module[2], name).numpy(), getattr(M.layers[1], A)[0], dtype, name)


def test_trained_on_by_torch_it_comes_back():
    """The masks of pruning keep the support while PyTorch trains."""
    M = trained("ReLU;Linear", f"{D};8;{K}", densities="0.4;1")
    module = mg.to_torch(M)
    X, T = examples()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    nn.functional.cross_entropy(module(torch.tensor(X)), torch.tensor(T)).backward()
    optimizer.step()
    back = mg.from_torch(module)

    assert back.layers[0].W.support.is_same(M.layers[0].W.support)
    assert not np.array_equal(back.layers[0].W.values, M.layers[0].W.values)
    assert_near(back.predict(X), module(torch.tensor(X)).detach().numpy(), "float32")


def test_a_module_of_a_user():
    """Nested, with pruning of PyTorch's own, without a bias, and with modules that do nothing."""
    torch.manual_seed(0)
    first, last = nn.Linear(D, 8), nn.Linear(8, K, bias=False)
    prune.random_unstructured(first, "weight", amount=0.5)
    body = nn.Sequential(first, nn.LeakyReLU(0.2))
    normalization = nn.BatchNorm1d(8, affine=False)
    parts = (nn.Flatten(), nn.Dropout(0.1), body, normalization, nn.Identity(), last, nn.Softmax(dim=-1))
    module = nn.Sequential(*parts)
    X, _ = examples()
    module(torch.tensor(X))
    M = mg.from_torch(module.eval())

    assert not M.training
    assert [layer.specification() for layer in M.layers] == [
        "Dropout(0.1)", "LeakyReLU(alpha=0.2)", "BatchNormalization(epsilon=1e-05, momentum=0.1)", "Softmax"
    ]  # fmt: skip
    assert M.layers[1].nnz == 20
    assert_near(M.predict(X), module(torch.tensor(X)).detach().numpy(), "float32")
    before = M.predict(X)
    with torch.no_grad():
        last.weight.zero_()
    np.testing.assert_array_equal(M.predict(X), before, err_msg="the model has weights of its own")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalizations_of_rows_with_missing_parts(dtype: str):
    """Without γ or β, and without an ε, which is then that of the dtype."""
    torch.manual_seed(0)
    parts = (nn.LayerNorm(D, elementwise_affine=False), nn.Linear(D, 4), nn.LayerNorm(4, 0.01, bias=False))
    module = nn.Sequential(*parts, nn.RMSNorm(4, elementwise_affine=False), nn.Linear(4, K), nn.RMSNorm([K]))
    module.to(getattr(torch, dtype))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    X, _ = examples(dtype)
    M = mg.from_torch(module)
    assert [getattr(M.layers[i], "epsilon", None) for i in (0, 2, 3)] == [1e-5, 0.01, np.finfo(dtype).eps]
    assert_near(M.predict(X), module(torch.tensor(X)).detach().numpy(), dtype)
    assert_same(mg.from_torch(mg.to_torch(M)), M)


class OwnSequence(nn.Sequential):
    """A user's own chain, such as torchvision's MLP."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, K))


class OwnForward(OwnSequence):
    """One that does something else while it trains."""

    def forward(self, X):
        return 2 * super().forward(X) if self.training else super().forward(X)


class OwnCall(OwnSequence):
    def __call__(self, X):
        return 2 * super().__call__(X)


class OwnIteration(OwnSequence):
    def __iter__(self):
        return iter(list(super().__iter__())[:1])


def test_a_class_that_only_lists_its_modules_is_read():
    X, _ = examples()
    module = OwnSequence()
    assert_near(mg.from_torch(module).predict(X), module(torch.tensor(X)).detach().numpy(), "float32")


def test_modules_without_weights_may_occur_twice():
    relu, dropout = nn.ReLU(), nn.Dropout(0.2)
    module = nn.Sequential(dropout, nn.Linear(D, 4), relu, dropout, nn.Linear(4, K), relu).eval()
    M, (X, _) = mg.from_torch(module), examples()
    assert [layer.specification() for layer in M.layers] == ["Dropout(0.2)", "ReLU", "Dropout(0.2)", "ReLU"]
    assert_near(M.predict(X), module(torch.tensor(X)).detach().numpy(), "float32")


def test_what_pruning_has_masked_is_read_though_the_weights_are_stale():
    module = nn.Sequential(nn.Linear(D, 4), nn.ReLU())
    prune.l1_unstructured(module[0], "weight", 0.5)
    with torch.no_grad():
        module[0].weight_orig.add_(1000)  # of which `weight` learns in the next call
    M, (X, _) = mg.from_torch(module), examples()
    assert M.layers[0].nnz == 10
    assert_near(M.predict(X), module(torch.tensor(X)).detach().numpy(), "float32")


class Own(nn.Linear):
    """A user's own module."""


class Square(nn.Module):
    def forward(self, X):
        return X * X


def twice() -> nn.Sequential:
    linear = nn.Linear(D, D)
    return nn.Sequential(linear, nn.ReLU(), linear)


def changed(change, *parts: nn.Module) -> nn.Sequential:
    """A chain, by default of a linear module and relu, to which something was done."""
    module = nn.Sequential(*(parts or (nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D))))
    change(module)
    return module


def pruned(normalization: nn.Module, name: str = "weight") -> nn.Sequential:
    """A normalization whose rows are stale, and far from those that it computes with."""
    prune.random_unstructured(normalization, name, 0.5)
    getattr(normalization, f"{name}_orig").data.add_(1000)
    return nn.Sequential(nn.Linear(D, 4), normalization, nn.Linear(4, K))


def tied(module: nn.Sequential) -> None:
    module[2].weight = module[0].weight


def tied_to_the_transpose(module: nn.Sequential) -> None:
    module[2].weight = nn.Parameter(module[0].weight.T)


def tied_in_part(module: nn.Sequential) -> None:
    A = torch.randn(D + 1, D)
    module[0].weight.data, module[2].weight.data = A[:D], A[1:]


def own_method(module: nn.Sequential) -> None:
    module[0].forward = lambda X: 2 * nn.Linear.forward(module[0], X)


def squared(module: nn.Sequential) -> None:
    parametrize.register_parametrization(module[1], "weight", Square())


def half_a_mask(module: nn.Sequential) -> None:
    prune.random_unstructured(module[0], "weight", 0.5)
    module[0].weight_mask.mul_(0.5)


def sparse_tensor(module: nn.Sequential) -> None:
    module[0].weight = nn.Parameter(module[0].weight.detach().to_sparse())


HOOK, SHARES, MASKS = (
    "has a hook, which",
    "module 2, .*: shares weights with module 0",
    "masks of the weights of linear",
)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Own(D, D), r"^Own\(.*: expected an nn.Sequential of modules of these types"),
        (nn.Sequential(nn.Linear(D, D), nn.Sequential(nn.Tanh(), nn.Conv1d(1, 1, 1))), r"^module 1.1, Conv1d\("),
        (nn.Sequential(nn.Linear(D, 4), nn.Linear(5, 2)), "^module 1, .*: takes 5 columns, but .* has 4"),
        (nn.Sequential(nn.Linear(D, 4), nn.Softmax(dim=0)), r"^module 1, Softmax\(dim=0\): found dim=0, expected 1 or"),
        (nn.Sequential(nn.Linear(D, 1), nn.Softmax(dim=1)), "softmax over one class is constant"),
        (nn.Sequential(nn.Linear(D, 4), nn.GELU(approximate="tanh")), "found approximate='tanh', expected 'none'"),
        (nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4, momentum=None)), "found momentum=None, expected a number"),
        (nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4, track_running_stats=False)), "track_running_stats=False"),
        (nn.Sequential(nn.Linear(D, 4), nn.LayerNorm([2, 4])), r"^module 1, .*: gamma: found shape \(2, 4\)"),
        (nn.Sequential(nn.Linear(D, 4, dtype=torch.float16)), "found float16"),
        (nn.Sequential(nn.Linear(D, 4), nn.Linear(4, 4).double()), "found float32, float64"),
        (nn.Sequential(nn.ReLU()), "found no parameters"),
        (twice(), SHARES),
        (changed(tied), SHARES),
        (changed(tied_to_the_transpose), SHARES),
        (changed(tied_in_part), SHARES),
        (changed(lambda m: m[0].register_forward_hook(lambda module, X, Y: Y.clamp(-1e9, 1e9))), f"^module 0.*{HOOK}"),
        (changed(lambda m: m[1].register_forward_pre_hook(lambda module, X: None)), f"^module 1.*{HOOK}"),
        (changed(lambda m: m.register_forward_hook(lambda module, X, Y: 2 * Y)), rf"^Sequential\(.*{HOOK}"),
        (changed(lambda m: m[0].register_full_backward_hook(lambda module, DX, DY: DX)), f"^module 0.*{HOOK}"),
        (changed(lambda m: utils.spectral_norm(m[0])), f"^module 0.*{HOOK}"),
        (changed(lambda m: parametrizations.weight_norm(m[0])), "^module 0, ParametrizedLinear.* not of derived ones"),
        (changed(squared, nn.Linear(D, 4), nn.BatchNorm1d(4)), "^module 1, ParametrizedBatchNorm1d.* not of derived"),
        (changed(own_method), "^module 0, .* has a method forward of its own"),
        (OwnForward(), "has a method forward of its own"),
        (OwnCall(), "has a method __call__ of its own"),
        (nn.Sequential(OwnIteration()), "^module 0, .* has a method __iter__ of its own"),
        (pruned(nn.BatchNorm1d(4)), f"^module 1, .*{MASKS}"),
        (pruned(nn.LayerNorm(4), "bias"), f"^module 1, .*{MASKS}"),
        (pruned(nn.RMSNorm(4)), f"^module 1, .*{MASKS}"),
        (changed(lambda m: prune.random_unstructured(m[0], "bias", 0.5)), f"^module 0, .*{MASKS}"),
        (changed(half_a_mask), "^module 0, .*: for a random batch of 16, its outputs"),
        (changed(sparse_tensor), "^module 0, .*: has a sparse tensor"),
        (nn.Sequential(nn.Linear(D, 4, device="meta")), "^module 0, .* without values"),
        (nn.Sequential(nn.LazyLinear(4)), "^module 0, LazyLinear.* not of derived ones"),
        (nn.Sequential(nn.Linear(D, 4), nn.LeakyReLU(float("nan"))), "^module 1, .* expected finite numbers"),
        (nn.Sequential(nn.Linear(D, 4), nn.Softplus(beta=2.0)), "^module 1, .*: found beta=2.0, expected 1.0"),
        (nn.Sequential(nn.Linear(D, 4), nn.Threshold(0.1, 1e-4)), "^module 1, .*: found value=0.0001, expected 0"),
        (nn.Sequential(nn.Linear(D, 4), nn.Flatten(0)), "^module 1, .*: found start_dim=0, expected 1"),
        (nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4).eval()), "some modules are in training mode"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_by_its_name(module: nn.Module, message: str):
    with pytest.raises(ValueError, match=message):
        mg.from_torch(module)


def test_weights_that_are_not_finite_are_refused():
    module = nn.Sequential(nn.Linear(D, 2))
    with torch.no_grad():
        module[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"module 0, .*: weights: found elements that are not finite numbers"):
        mg.from_torch(module)
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, found int"):
        mg.from_torch(3)


# -- files ----------------------------------------------------------------------------------------


def test_pytorch_reads_the_file_under_its_own_names(tmp_path):
    M = trained("ReLU;BatchNormalization;Linear", f"{D};4;{K}")
    path = tmp_path / "model.safetensors"
    save_torch(M, path)
    tensors = load_file(path)

    assert {"0.weight", "0.bias", "2.weight", "2.running_var", "3.weight", "3.bias"} <= tensors.keys()
    module = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Linear(4, K))
    module.load_state_dict(tensors)
    X, _ = examples()
    assert_near(module.eval()(torch.tensor(X)).detach().numpy(), M.predict(X), "float32")


def test_a_file_of_others_says_what_to_do(tmp_path):
    from safetensors.torch import save_file

    save_file(nn.Sequential(nn.Linear(2, 2)).state_dict(), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"without the description of a model; make the module, .* mg.from_torch"):
        load_torch(tmp_path / "m.safetensors")
