"""Verdicts on code of PyTorch: right gradients are proved, wrong ones refuted with what is missing and a witness."""

from __future__ import annotations

import inspect
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_cases
from mutants import SUBJECTS, is_right, mutants
from torch_cases import RIGHT, WRONG

import matgrad as mg
from matgrad.index_notation.expressions import Entry, is_equal
from matgrad.index_notation.indices import index
from matgrad.index_notation.values import evaluate
from matgrad.writers.hypotheses import SumIs, Symmetric
from matgrad.writers.specifications import argument, specification

MISSING = {  # of each wrong function, a part of what the verdict says
    "SoftCrossEntropyMissingFactor": "∂/∂z_ij: true − returned = ((Σ_k t_ik) - 1) · g·p_ij / N",
    "MSEForgottenN": "∂/∂x_ij: true = returned · 1 / D",
    "LabelCrossEntropyForgottenN": "∂/∂z_ij: true = returned · 1 / N",
    "SoftmaxKeepdim": "shapes (N, N2) and (N) do not match unless N2 = N",
    "LayerNormMissingTerm": "∂/∂x_ij: true − returned = -rstd_i·(Σ_k g_ik·w_k) / D",
    "RMSNormWrongSumDim": "the gradient has shape (N), and the argument (D)",
    "LinearNoTranspose": "matmul of (N, K) and (D, K) fails unless K = D",
    "CosineWrongSign": "true − returned = -2·c_i·g_i·x_ij / (Σ_k x_ik^2)",
    "RMSNormWNotSummed": "∂/∂w_i: true = returned · B",
    "RMSNormEpsOutside": "∂/∂x_ij: true − returned = ",
    "TanhOverwrittenInput": "∂/∂x_ij: true − returned = ",
    "SavedThenOverwritten": "∂/∂x_ij: true − returned = ",
    "BatchNormWrongMean": "∂/∂x_ij: true − returned = ",
    "LayerNormUnbiased": "∂/∂x_ij: true − returned = ",
    "AttentionNoScale": "∂/∂q_ijk: true = returned · 1 / D^(1/2)",
    "HardCodedScale": "∂/∂q_ij: true = returned · 2 / D^(1/2)",
    "SwiGLUSwapped": "∂/∂x.0_ijk: true − returned = ",
    "SiLUMissingTerm": "∂/∂x_ij: true − returned = -g_ij·x_ij / (1 + exp(x_ij))^2",
    "RoPENotTransposed": "∂/∂x.0_ijk: true − returned = 2·g.1_ijk·sin_jk",
    "RMSNormWOutside": "(w_j·(Σ_k g_ik·x_ik) - (Σ_k g_ik·w_k·x_ik)) · ",
    "HuberHalf": "∂/∂x_ij: true − returned = ",
    "GateOverwritten": "∂/∂x_ij: true − returned = (z_ij - 1/2) · 2·g_ij",
    "LinearOtherOrder": "the gradient has shape (K), and the argument (K, D)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_are_proved(name: str):
    function, shapes = RIGHT[name]
    verdict = mg.prove(function, shapes)
    assert verdict.verdict == "proved", verdict
    assert verdict.check().gradients, verdict


@pytest.mark.parametrize("name", WRONG)
def test_wrong_functions_are_refuted(name: str):
    function, shapes = WRONG[name]
    verdict = mg.prove(function, shapes)
    assert verdict.verdict == "refuted", verdict
    assert MISSING[name] in str(verdict)
    assert "in torch_cases.py:" in str(verdict) or "shape" in str(verdict)
    with pytest.raises(AssertionError, match="REFUTED"):
        verdict.check()


REPAIRED = {  # the right line that is found, for those for which there is one
    "SoftCrossEntropyMissingFactor": "return g * (p * t.sum(-1, keepdim=True) - t) / p.shape[0], None",
    "MSEForgottenN": "return g * 2 * (x - t) / x.shape[0] / x.shape[1], None",
    "LayerNormMissingTerm": "mean(-1, keepdim=True) - gy.mean(-1, keepdim=True)), (g * xhat).sum(0), g.sum(0), None",
    "LinearNoTranspose": "return g @ w, g.t() @ x",
    "SoftmaxKeepdim": "return y * (g - (g * y).sum(-1, keepdim=True))",
    "AttentionNoScale": "ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / q.shape[2] ** 0.5",
    "HardCodedScale": "return ds @ k * 2 / q.shape[1] ** 0.5, ds.t() @ q * 2 / q.shape[1] ** 0.5",
    "SwiGLUSwapped": "return torch.cat([g * b * s * (1 + a * (1 - s)), g * a * s], -1)",
    "HuberHalf": "return g * torch.where(d.abs() < ctx.delta, d, ctx.delta * d.sign()), None, None",
    "LinearOtherOrder": "return gx, gw, gb",
}


@pytest.mark.parametrize("name", REPAIRED)
def test_a_right_line_is_suggested_that_autograd_agrees_with(name: str):
    function, shapes = WRONG[name]
    (suggestion,) = mg.prove(function, shapes).suggestions
    file, number, line = suggestion.split(":", 2)
    assert file == "torch_cases.py"
    assert line.endswith(REPAIRED[name])
    lines, start = inspect.getsourcelines(function)
    old = lines[int(number) - start]
    lines[int(number) - start] = old[: len(old) - len(old.lstrip())] + line.strip() + "\n"
    space = vars(torch_cases) | {"case": lambda *right, **shapes: lambda cls: cls}
    exec("".join(lines), space)
    assert is_right(space[name], shapes)


def test_gradients_are_shown_in_the_names_of_the_code():
    verdict = mg.prove(*RIGHT["LayerNorm"], explain=True)
    assert [str(x) for x in verdict.formulas] == [
        "∂/∂x_ij = g_ij·rstd_i·w_j - rstd_i·xhat_ij·(Σ_k g_ik·w_k·xhat_ik) / D - rstd_i·(Σ_k g_ik·w_k) / D",
        "∂/∂w_i = Σ_k g_ki·xhat_ki",
        "∂/∂b_i = Σ_k g_ki",
    ]
    steps = {str(step.formula): step.rule for step in verdict.steps}
    assert steps["rstd_i = 1 / (eps + var_i)^(1/2)"] == "forward"
    assert steps["Dvar_i = -(1/2)·Drstd_i / (eps + var_i)^(3/2)"] == "chain rule"
    assert "∂/∂x_ij = Dmu_i / D + 2·Dvar_i·x_ij / D + Dxhat_ij·rstd_i - 2·Dvar_i·mu_i / D" in steps
    assert "  1. forward\n         mu_i = (Σ_k x_ik) / D" in str(verdict)


def test_a_derivation_has_the_numbers_of_autograd():
    """Each value and gradient of it in the steps, by torch, with the names as Python variables."""
    function, shapes = RIGHT["LayerNorm"]
    x, w, b = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((4, 3), (3,), (3,)))
    mu = x.mean(1, keepdim=True)
    var = ((x - mu) ** 2).mean(1, keepdim=True)
    rstd = (var + 0.1) ** -0.5
    xhat = (x - mu) * rstd
    g = torch.randn(4, 3, dtype=torch.float64)
    own = torch.autograd.grad((g * (w * xhat + b)).sum(), [mu, var, rstd, xhat, x])
    Dmu, Dvar, Drstd, Dxhat, Dx = own
    D = 3
    assert torch.allclose(Dx, Dmu / D + 2 * Dvar * x / D + Dxhat * rstd - 2 * Dvar * mu / D)
    assert torch.allclose(Drstd, (Dxhat * x).sum(1, keepdim=True) - mu * Dxhat.sum(1, keepdim=True))
    steps = [str(step.formula) for step in mg.prove(function, shapes, explain=True).steps]
    assert "Drstd_i = (Σ_k Dxhat_ik·x_ik) - mu_i·(Σ_k Dxhat_ik)" in steps


def test_a_notebook_shows_mathematics():
    page = mg.prove(*RIGHT["LayerNorm"])._repr_html_()
    assert page.count("<math") == 3
    wrong = mg.prove(*WRONG["LayerNormMissingTerm"])._repr_html_()
    assert "returned" in wrong
    assert "<mfrac>" in wrong


@pytest.mark.parametrize("name", ["SavedThenOverwritten", "GateOverwritten"])
def test_no_line_is_suggested_that_is_not_proved_or_spoils_another_gradient(name: str):
    assert mg.prove(*WRONG[name]).suggestions == []


@pytest.mark.parametrize("name", ["SoftCrossEntropyMissingFactor", "CosineWrongSign", "HuberHalf", "RMSNormWOutside"])
def test_a_witness_can_be_run(name: str):
    """By autograd, which has no part in the verdict."""
    function, shapes = WRONG[name]
    witness = mg.prove(function, shapes).witness
    arguments = [
        torch.tensor(x).requires_grad_(n == witness.name) if isinstance(x, np.ndarray) else x
        for n, x in witness.arguments.items()
    ]
    g = torch.tensor(witness.gradients[0])
    x = arguments[list(witness.arguments).index(witness.name)]
    returned = torch.autograd.grad(function.apply(*arguments), x, g)[0][witness.place]
    true = torch.autograd.grad(function.forward(torch_cases_context(), *arguments), x, g)[0][witness.place]
    np.testing.assert_allclose([returned.item(), true.item()], [witness.returned, witness.true], rtol=1e-6)
    assert abs(returned - true) > 1e-4


def torch_cases_context():
    class Context:
        def save_for_backward(self, *tensors):
            pass

    return Context()


def sampled_mutants(number: int):
    rng = random.Random(5)
    return [(n, rng.choice([*mutants(RIGHT[n][0]), ("itself", RIGHT[n][0])])) for n in rng.sample([*RIGHT], number)]


@pytest.mark.parametrize(("name", "mutant"), sampled_mutants(12), ids=lambda x: x if isinstance(x, str) else x[0][:30])
def test_some_mutants(name: str, mutant):
    verdict = mg.prove(mutant[1], RIGHT[name][1])
    assert verdict.verdict == ("proved" if is_right(mutant[1], RIGHT[name][1]) else "refuted"), (
        f"{mutant[0]}: {verdict}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_all_mutants(name: str):
    function, shapes = SUBJECTS[name]
    verdicts = [(mg.prove(m, shapes, seconds=60), is_right(m, shapes), what) for what, m in mutants(function)]
    assert [f"{what}: {v}" for v, right, what in verdicts if v.verdict == "proved" and not right] == []
    assert [f"{what}: {v}" for v, right, what in verdicts if v.verdict == "refuted" and right] == []
    wrong = [v.verdict for v, right, _ in verdicts if not right]
    assert wrong.count("refuted") >= 0.97 * len(wrong), verdicts


# -- what code can be, and what can be said of it -------------------------------------------------


class Scaled(torch.autograd.Function):
    """In the newer style, with outputs that have no gradient."""

    @staticmethod
    def forward(x, scale, power=2):
        return x**power * scale, x.exp(), x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale, ctx.power = inputs
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, *_):
        (x,) = ctx.saved_tensors
        return ctx.power * x ** (ctx.power - 1) * ctx.scale * g, None, None


def test_setup_context_and_numbers():
    assert mg.prove(Scaled, x="N D", scale=0.5).verdict == "proved"
    assert mg.prove(Scaled, x="N D", scale="> 0", power=3).verdict == "proved"


@torch.library.custom_op("matgrad_tests::gated", mutates_args=())
def gated(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    return x * torch.sigmoid(y) * factor


def gated_backward(ctx, g):
    x, y = ctx.saved_tensors
    s = torch.sigmoid(y)
    return g * s * ctx.factor, g * x * s * (1 - s) * ctx.factor, None


def gated_context(ctx, inputs, output):
    x, y, ctx.factor = inputs
    ctx.save_for_backward(x, y)


gated.register_autograd(gated_backward, setup_context=gated_context)


def test_custom_operators():
    assert mg.prove(gated, x="N D", y="N D", factor="> 0").verdict == "proved"
    with pytest.raises(ValueError, match="has no argument 'z'"):
        mg.prove(gated, z="N")


def test_functions_and_modules_with_a_backward():
    module = torch.nn.Linear(2, 3)
    verdict = mg.prove(
        module,
        backward=lambda input, weight, g: (g @ weight, g.T @ input, g.sum(0)),
        input="N D",
        weight="K D",
        bias="K",
    )
    assert verdict.verdict == "proved", verdict
    assert verdict.gradients == ["input", "weight", "bias"]
    module = torch.nn.Linear(2, 3, bias=False)
    verdict = mg.prove(module, backward=lambda input, weight, g: (g @ weight, g.T @ input), input="N D", weight="K D")
    assert verdict.verdict == "proved", verdict

    def softmax(x):
        return F.softmax(x, -1)

    assert mg.prove(softmax, backward=lambda y, g: y * (g - (g * y).sum(-1, keepdim=True)), x="N D").verdict == "proved"
    assert mg.prove(softmax, backward=lambda y, g: y * (g - (g * y).sum(0)), x="N D").verdict == "refuted"


def test_hypotheses():
    function, _ = WRONG["SoftCrossEntropyMissingFactor"]
    without = mg.prove(function, z="N K", t="N K")
    assert 'say t="N K, Σ_K = 1"' in str(without)
    verdict = mg.prove(function, z="N K", t="N K, Σ_K = 1")
    assert verdict.verdict == "proved"
    assert verdict.assumptions == ["Σ_K t = 1"]
    assert mg.prove(function, z="N K", t="N K, sum_K = 2").verdict == "refuted"


class Projected(torch.autograd.Function):
    """x·Q·Qᵀ and ½·xᵀ·S·x, with gradients that are right only for what is said of Q and S."""

    @staticmethod
    def forward(ctx, x, q, s):
        ctx.save_for_backward(x, q, s)
        return (x @ q) @ q.t() @ q, ((x @ s) * x).sum(1) / 2

    @staticmethod
    def backward(ctx, g, h):
        x, q, s = ctx.saved_tensors
        return g @ q.t() + h[:, None] * (x @ s), None, None


def test_what_obeys_a_hypothesis_has_a_form():
    """Of any u and A, in numbers: u / Σ u sums to 1, and (A + Aᵀ) / 2 is symmetric."""
    d = Entry("t", [index("i", "N"), index("k", "K")]), Entry("s", [index("i", "N"), index("j", "N")])
    values, sizes = {"t'": np.random.rand(3, 4), "s'": np.random.rand(3, 3)}, {"N": 3, "K": 4}
    t, s = (
        evaluate(rule.free(x), x.indices, values, sizes)
        for rule, x in zip((SumIs("t", "K", Fraction(2)), Symmetric("s")), d, strict=True)
    )
    np.testing.assert_allclose(t.sum(1), 2)
    np.testing.assert_allclose(t / t.max(1, keepdims=True), values["t'"] / values["t'"].max(1, keepdims=True))
    np.testing.assert_allclose(s, (values["s'"] + values["s'"].T) / 2)
    function, _ = WRONG["SoftCrossEntropyMissingFactor"]
    (found,) = mg.prove(function, z="N K", t="N K, Σ_K = 1").entries()
    own = [Entry("z", found.entry.indices)]
    assert is_equal(found.value.derivative(own[0]), found.returned)  # without the hypothesis


def test_orthogonal_and_symmetric_matrices():
    said = {"x": "N D", "q": "D K, QᵀQ = 1", "s": "D D, S = Sᵀ"}
    verdict = mg.prove(Projected, said)
    assert verdict.verdict == "proved", verdict
    assert verdict.assumptions == ["qᵀq = 1", "s = sᵀ"]
    for name, shape in {"q": "D K", "s": "D D"}.items():
        assert mg.prove(Projected, said | {name: shape}).verdict == "refuted"
    assert mg.prove(Projected, said | {"q": "D K, QQᵀ = 1"}).verdict == "proved"
    assert mg.prove(Projected, x="N D", q="D D, orthogonal", s="D D, symmetric").verdict == "proved"


def test_positive_arguments_whose_rows_sum_to_1():
    function, _ = WRONG["SoftCrossEntropyMissingFactor"]
    assert mg.prove(function, z="N K", t="N K, > 0, Σ_K = 1").verdict == "proved"


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)

    @staticmethod
    def backward(ctx, g):
        return g


def test_surrogates():
    assert mg.prove(StraightThrough, x="N").verdict == "refuted"
    verdict = mg.prove(StraightThrough, x="N", surrogate=True).check()
    assert verdict.verdict == "surrogate"
    assert "∂/∂x_i: true − returned = -g_i" in str(verdict)


class Asking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.shape[1] <= 64
        if x.shape[0] == x.shape[1]:
            x = x * 2
        return x.sum(1) / math.sqrt(x.shape[1])

    @staticmethod
    def backward(ctx, g):
        return g[:, None] / math.sqrt(3)


def test_questions_are_in_the_verdict():
    verdict = mg.prove(Asking, x="N D")
    assert verdict.verdict == "refuted"
    assert verdict.assumptions == ["D ≤ 64: yes, as was answered to the code", "N = D: no, as was answered to the code"]


class NamedLikeGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return (x * g).sum()

    @staticmethod
    def backward(ctx, dg):
        x, g = ctx.saved_tensors
        return dg.to(g.dtype) * g, dg * x


class TakenForItsGradient(NamedLikeGradients):
    @staticmethod
    def backward(ctx, dg):
        x, g = ctx.saved_tensors
        return g * g, dg * x


def test_an_argument_may_be_called_like_a_gradient():
    assert mg.prove(NamedLikeGradients, x="N D", g="N D").verdict == "proved"
    assert mg.prove(TakenForItsGradient, x="N", g="N").verdict == "refuted"


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sort(-1)[0]

    @staticmethod
    def backward(ctx, g):
        return g


class SortedGradient(Sorted):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.sort(-1)[0]


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.from_numpy(np.random.default_rng().normal(size=()))

    @staticmethod
    def backward(ctx, g):
        return g.sort(-1)[0]


def test_random_numbers_refute_nothing():
    assert mg.prove(Noisy, x="N D").verdict == "refused"


def test_what_is_not_supported_is_refused_with_its_line():
    line = inspect.getsourcelines(Sorted)[1] + 3
    verdict = mg.prove(Sorted, x="N D")
    assert verdict.verdict == "refused"
    assert f"Tensor.sort is not supported, in test_prove.py:{line}: return x.sort(-1)[0]" in str(verdict)
    verdict = mg.prove(SortedGradient, x="N D")  # of which numbers tell enough
    assert verdict.verdict == "refuted"
    assert "by finite differences" in str(verdict)


class Constant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
        return g * (0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t))


def test_rounded_constants_are_named():
    verdict = mg.prove(Constant, x="N D")
    assert verdict.verdict == "proved"
    assert "equal up to the rounding of a constant" in str(verdict)


class TensorsForNumbers(torch.autograd.Function):
    """A tensor of one number where PyTorch has a number, which its C++ code would take the memory of."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.full_like(x, 1 / x.shape[1]) * x + torch.full_like(x, x.sum())

    @staticmethod
    def backward(ctx, g):
        return g / ctx.saved_tensors[0].shape[1] + g.sum()


class TensorForAlpha(TensorsForNumbers):
    @staticmethod
    def forward(ctx, x):
        return torch.add(x, x, alpha=x.sum())


def test_a_tensor_of_one_number_may_stand_for_a_number():
    assert mg.prove(TensorsForNumbers, x="N D").verdict == "proved"
    verdict = mg.prove(TensorForAlpha, x="N D")
    assert verdict.verdict == "refused"
    assert "a tensor of one number that PyTorch takes for a number is not supported" in str(verdict)


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.half())
        return (x.float() ** 2).to(torch.bfloat16)

    @staticmethod
    def backward(ctx, g):
        return 2 * g.float() * ctx.saved_tensors[0].float()


def test_casts_make_no_difference():
    assert mg.prove(Half, x="N D").verdict == "proved"


class MaximumOfRow(torch.autograd.Function):
    """The gradient goes to all that are not below the maximum: right but for ties; with > it would be 0."""

    @staticmethod
    def forward(ctx, x):
        y = x.amax(1, keepdim=True)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x >= y)


class NoMaximumOfRow(MaximumOfRow):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x > y)


def test_maxima_and_what_is_above_them():
    verdict = mg.prove(MaximumOfRow, x="N D")
    assert verdict.verdict == "proved", verdict
    assert "except where two are the greatest" in str(verdict)
    assert mg.prove(NoMaximumOfRow, x="N D").verdict == "refuted"


def test_what_ties_get():
    def greatest(x):
        return x.amax(1)

    ways = {
        "goes to all of them": lambda x, y, g: g[:, None] * (x == y[:, None]),
        "is shared by them equally": lambda x, y, g: g[:, None] * (m := x == y[:, None]) / m.sum(1, keepdim=True),
        "goes to none of them": lambda x, y, g: g[:, None] * (m := x == y[:, None]) * (2 - m.sum(1, keepdim=True)),
    }
    for said, backward in ways.items():
        verdict = mg.prove(greatest, backward=backward, x="N D", kinks=True)
        assert verdict.verdict == "proved", verdict
        assert f"where two are the greatest: ∂/∂x {said}" in str(verdict)


RELU = "where x_ij = 0: ∂/∂x is the"


@pytest.mark.parametrize(
    ("f", "backward", "said"),
    [
        (torch.relu, lambda x, g: g * (x > 0), f"{RELU} derivative from below 0"),
        (torch.relu, lambda x, g: g * (x >= 0), f"{RELU} derivative from above 0"),
        (torch.abs, lambda x, g: g * torch.sign(x), f"{RELU} mean of the derivatives from below and above 0"),
        (
            torch.relu,
            lambda x, g: g * (2 * (x > 0) - (x >= 0) * 1.0 + (x <= 0) * (x >= 0) * 3),
            "is neither the derivative",
        ),
        (
            lambda x: torch.relu(1 - x) ** 2,
            lambda x, g: -2 * g * torch.relu(1 - x),
            "is the derivative from both sides",
        ),
    ],
    ids=["below", "above", "mean", "neither", "no kink"],
)
def test_kinks_are_named_and_what_is_returned_there(f, backward, said):
    def forward(x):
        return f(x)

    verdict = mg.prove(forward, backward=backward, x="N D", kinks=True)
    assert verdict.verdict == "proved", verdict
    assert "except where" in str(verdict)
    assert said in verdict.conventions[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N D, Σ_K = 1", "K is no size of it"),
        ("N D,", "expected"),
        ("N-D", "expected"),
        ("= N D", "expected one size"),
        ("0", "no size"),
        ("N D, Σ K = 1", "'Σ K = 1' is not known; expected"),
        ("N D, symmetric", "expected a square matrix"),
        ("N D, orthogonal", "expected a square matrix"),
        ("N, QᵀQ = 1", "expected two sizes"),
    ],
)
def test_bad_specifications(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        specification(text)


def test_arguments_of_a_command_line():
    assert [argument(x) for x in ("N D", "0.5", "2", "None", "True", "> 0", "D")] == [
        "N D",
        0.5,
        2,
        None,
        True,
        "> 0",
        "D",
    ]
    with pytest.raises(ValueError, match="what is w"):
        mg.prove(RIGHT["Linear"][0], x="N D")


def test_cases_are_all_named():
    assert set(MISSING) == set(WRONG)
    assert {n for n, x in vars(torch_cases).items() if isinstance(x, type) and x.__module__ == "torch_cases"} == {
        *RIGHT,
        *WRONG,
    }
