"""Programs in LaTeX: known equations word for word, and that every program is sound LaTeX as far as braces show it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import matgrad as mg
from matgrad.loss_functions import create_loss
from matgrad.program import Program, Value, optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.text import program_latex
from matgrad.specifications.models import create_model
from program_support import programs


def equations(program: Program) -> list[str]:
    body = re.search(r"\\begin\{align\*\}\n(.*)\n\\end\{align\*\}", program_latex(program), re.DOTALL)
    return body[1].split(" \\\\\n")


def check_groups(text: str) -> None:
    """Braces, \\left( and \\right) close in order, and no index or exponent follows another one."""
    opened: list[str] = []
    for token in re.findall(r"\\left\(|\\right\)|[{}]", text):
        if token in ("{", r"\left("):
            opened.append(token)
        else:
            assert opened, text
            assert opened.pop() == {"}": "{", r"\right)": r"\left("}[token], text
    assert not opened, text
    group = r"(?:\w|\\[a-z]+|\{(?:[^{}]|\{[^{}]*\})*\})"
    assert not re.search(rf"\^{group}(?:_{group})?\^|_{group}(?:\^{group})?_", text), text


def step(layers: str, loss: str = "SoftmaxCrossEntropy", **options) -> Program:
    mg.manual_seed(0)
    M = create_model(layers, "4;5;5;3", **options).to(dtype="float64")
    return optimized(
        record_computation(
            make_step(M, create_loss(loss), clip_norm=1.0), M.state(), np.zeros((7, 4)), np.zeros((7, 3))
        )
    )


def test_a_step_with_momentum():
    program = step("ReLU;ReLU;Linear", "MeanSquaredError", optimizers="Momentum(0.9)")
    found = equations(program)
    for line in (
        r"Z_1 &= X \cdot W_1^\top + 1_N \cdot b_1",
        r"Y_1 &= \mathrm{relu}(Z_1)",
        r"\mathsf{D}Z_2 &= \mathsf{D}X_3 \odot [Z_2 \geq 0]",
        r"\mathsf{D}b_3 &= 1_N^\top \cdot \mathsf{D}Y",
        r"W_1' &= W_1 + \Delta_{W_1}'",
    ):
        assert line in found, "\n".join(found)
    assert len(found) == len(str(program).splitlines()) - 2
    given = program_latex(program).partition(r"\begin")[0]
    assert r"$\Delta_{W_1} \in \mathbb{R}^{5 \times 4}$" in given
    assert r"$X \in \mathbb{R}^{N \times 4}$" in given
    assert r"$\eta \in \mathbb{R}$" in given


@pytest.mark.parametrize(
    "options",
    [
        {"layers": "ReLU;SReLU;Linear", "optimizers": "Adam", "dropouts": "0.5"},
        {"layers": "GELU;BatchNormalization;SReLU;Linear", "densities": "0.5;0.5;1", "optimizers": "Nesterov(0.9)"},
        {"layers": "Softplus;Sigmoid;LogSoftmax", "loss": "LogProbability", "densities": "0.5"},
    ],
)
def test_groups_of_training_steps_close(options):
    program = step(**options)
    for line in equations(program):
        check_groups(line)
    check_groups(program_latex(program))


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(program=programs(exact=True, size=10))
def test_groups_of_random_programs_close(program: Program):
    check_groups(program_latex(optimized(program)))


A, B, C = (Value("input", (), (2, 2), name=name) for name in "ABC")
S = Value("input", (), (), name="s")


def of(operation: str, *operands: Value, shape=(2, 2)) -> Value:
    return Value(operation, operands, shape, order=max((x.order for x in operands), default=0) + 1)


def number(x: float) -> Value:
    return Value("number", number=x)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (of("add", A, of("negative", B)), "A + (-B)"),
        (of("matmul", A, of("matmul", B, C)), r"A \cdot B \cdot C"),
        (of("hadamard", A, of("matmul", B, C)), r"A \odot (B \cdot C)"),
        (of("transpose", of("transpose", A)), r"(A^\top)^\top"),
        (of("transpose", of("exp", A)), r"(e^{A})^\top"),
        (of("scale", number(-2), A), r"(-2) \cdot A"),
        (of("scale", number(2.5e-8), A), r"2.5 \cdot 10^{-8} \cdot A"),
        (of("power", of("negative", A), number(2)), "(-A)^{2}"),
        (of("add", A, of("full", number(-2))), "A + (-2)"),
        (of("divide", of("add", A, B), S), r"\frac{A + B}{s}"),
        (of("log1p", of("negative", A)), r"\log(1 + (-A))"),
        (of("add_scaled", A, number(-0.5), of("add", B, C)), r"A - 0.5 \cdot (B + C)"),
        (of("product_sum", number(0.9), A, S, B, C), r"0.9 \cdot A + s \cdot B \cdot C"),
        (of("product_sum", number(1), A, number(1), B, C), r"B \cdot C + A"),
        (of("identity", shape=(12, 12)), r"\mathbb{I}_{12}"),
        (of("elements_sum", A, shape=()), r"1_2^\top \cdot A \cdot 1_2"),
    ],
)
def test_parentheses(value: Value, expected: str):
    assert equations(Program({}, {"y": value})) == [f"y &= {expected}"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("12.W.delta", r"\Delta_{W_{12}}"),
        ("1.W.c1", r"{c_1}_{W_1}"),
        ("2.running_mean", r"\mathrm{running\ mean}_{2}"),
        ("3.tl", "t_{l,3}"),
        ("3.1.W.delta", r"\Delta_{W_{3.1}}"),
        ("eta", r"\eta"),
        ("3.2.1.gamma", r"\gamma_{3.2.1}"),
    ],
)
def test_names(name: str, expected: str):
    X = Value("input", (), (2, 2), name=name)
    assert equations(Program({name: X}, {name: of("exp", X)})) == [f"{expected}' &= e^{{{expected}}}"]


def test_names_of_matrices_that_are_kept_transposed():
    kept = Value("exp", (A,), (2, 2), name="inv_sqrt_Sigma2ᵀ", order=1)
    lines = equations(Program({"A": A}, {"y": of("transpose", kept)}))
    assert lines[0] == r"(\Sigma_2^{-\frac12})^\top &= e^{A}"
    assert lines[1] == r"y &= ((\Sigma_2^{-\frac12})^\top)^\top"
