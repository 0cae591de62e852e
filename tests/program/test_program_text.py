"""Programs as text: two of them word for word, and the parentheses of random ones, by evaluating what is printed."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import matgrad as mg
from matgrad.program import Program, Value, optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.description import as_dictionary, from_dictionary
from program_support import MEANING, block_diagonal, numbers, outputs, programs

MOMENTUM = """\
given W1 4×3, b1 1×4, W1.delta 4×3, b1.delta 1×4, W2 2×4, b2 1×2, W2.delta 2×4, b2.delta 1×2, X N×3, T N×2, η

Z1        = X W1ᵀ + 1_N b1
Y1        = relu(Z1)
Y2        = Y1 W2ᵀ + 1_N b2
DY        = 2·(Y2 - T) / N
Db2       = columns_sum(DY)
DX2       = DY W2
DZ1       = DX2 ⊙ [Z1 ≥ 0]
Db1       = columns_sum(DZ1)
W1.delta' = 0.9·W1.delta - η·DZ1ᵀ X
W1'       = W1 + W1.delta'
b1.delta' = 0.9·b1.delta - η·Db1
b1'       = b1 + b1.delta'
W2.delta' = 0.9·W2.delta - η·DYᵀ Y1
W2'       = W2 + W2.delta'
b2.delta' = 0.9·b2.delta - η·Db2
b2'       = b2 + b2.delta'"""

SOFTMAX = """\
given W1 4×3, b1 1×4, X N×3, T N×4, η

Z1  = X W1ᵀ + 1_N b1
Y1  = softmax(Z1)
DY  = -(T ⊙ 1/(Y1 + tiny)) / N
DZ1 = Y1 ⊙ (DY - rows_sum(DY ⊙ Y1) 1_4ᵀ)
DW1 = DZ1ᵀ X
Db1 = columns_sum(DZ1)
W1' = W1 - η·DW1
b1' = b1 - η·Db1"""


def text(layers: list[mg.Layer], loss: mg.LossFunction, optimizer: str, rules=lambda program: program) -> str:
    M = mg.MultilayerPerceptron(layers).to(dtype="float64")
    M.set_optimizer(optimizer)
    D, K = layers[0].input_size, layers[-1].output_size
    return str(rules(record_computation(make_step(M, loss), M.state(), np.zeros((5, D)), np.zeros((5, K)))))


def test_a_step_with_momentum_as_it_is_executed():
    layers = [mg.ActivationLayer(3, 4, "ReLU"), mg.LinearLayer(4, 2)]
    assert text(layers, mg.SquaredErrorLoss(), "Momentum(0.9)", optimized) == MOMENTUM


def test_a_step_as_it_is_recorded():
    assert text([mg.SoftmaxLayer(3, 4)], mg.CrossEntropyLoss(), "GradientDescent") == SOFTMAX


# -- parentheses: a translator for what is printed ---------------------------------------------

TOKEN = re.compile(r"\s*(1_\d+ᵀ?|1/(?! )|\d[\d.]*(?:e-?\d+)?|[A-Za-zη_][A-Za-z0-9_.]*'?|[()\[\]+\-⊙·^ᵀ,/≥])")


class Reader:
    """Sums of products of scaled, unary and atomic expressions, in the order that `text` says they bind."""

    def __init__(self, line: str, names: dict[str, np.ndarray]) -> None:
        self.tokens = TOKEN.findall(line.strip())
        assert "".join(self.tokens).replace(" ", "") == line.replace(" ", ""), line
        self.names, self.place = names, 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.place + ahead] if self.place + ahead < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        assert not expected or token == expected, f"{expected!r} expected at {self.place} in {self.tokens}"
        self.place += 1
        return token

    def sum(self):
        result = self.product()
        while self.peek() in ("+", "-"):
            result = result + self.product() if self.take() == "+" else result - self.product()
        return result

    def product(self):
        result = self.scaled()
        while self.peek() and self.peek() not in ("+", "-", ")", "]", ",", "≥"):
            if self.peek() == "⊙":
                self.take()
                result = result * self.unary()
            elif self.peek() == "/":
                self.take()
                result = result / self.atom()
            else:
                result = result @ self.unary()
        return result

    def scaled(self):
        if self.peek() == "-":
            self.take()
            return -self.scaled()
        result = self.unary()
        while self.peek() == "·":
            self.take()
            result = result * self.unary()
        return result

    def unary(self):
        if self.peek() == "1/":
            self.take()
            return 1 / self.atom()
        if re.fullmatch(r"1_\d+", self.peek()):
            rows = int(self.take()[2:])
            return np.ones((rows, 1)) @ self.atom()
        result = self.atom()
        if self.peek() == "^":
            self.take()
            return result ** (-self.atom() if self.peek() == "-" and self.take() else self.atom())
        if re.fullmatch(r"1_\d+ᵀ", self.peek()):
            columns = int(self.take()[2:-1])
            return result @ np.ones((1, columns))
        return result

    def atom(self):
        token = self.take()
        if token == "-":  # of a number
            result = -float(self.take())
        elif token == "(":
            result = self.sum()
            self.take(")")
        elif token == "[":
            result = np.where(self.sum() >= 0, 1.0, 0.0)
            self.take("≥"), self.take("0"), self.take("]")
        elif token[0].isdigit():
            result = float(token)
        elif self.peek() == "(" and (token in BLOCKS or token in MEANING):
            self.take()
            result = self.sum()
            if self.peek() == ",":
                self.take()
                result = BLOCKS[token](result, int(self.take()))
            else:
                result = MEANING[token]((), result)
            self.take(")")
        else:
            result = np.eye(int(token[2:])) if token.startswith("I_") else self.names[token]
        while self.peek() == "ᵀ":
            self.take()
            result = np.transpose(result)
        return result


def diagonal_blocks(C: np.ndarray, p: int) -> np.ndarray:
    """diag(C, p)"""
    r = len(C.T) * p // len(C)
    return np.concatenate([C[i : i + p, i // p * r : i // p * r + r] for i in range(0, len(C), p)])


# what is printed with a number
BLOCKS = {
    "stack": lambda X, p: X.reshape(len(X) * p, -1),
    "unstack": lambda U, p: U.reshape(len(U) // p, -1),
    "Diag": lambda A, p: block_diagonal(A, len(A) // p),
    "diag": diagonal_blocks,
    "one_hot": lambda x, n: (x == np.arange(n)).astype(float),
}


def read(text: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All that the printed program computes, by name."""
    given, *lines = text.splitlines()
    names = {
        name: inputs["eta" if name == "η" else name] for name in re.findall(r"(\S+?)(?: \d+×\d+)?(?:, |$)", given[6:])
    }
    for line in lines[1:]:
        name, _, expression = line.partition(" = ")
        assert name.strip() not in names, f"{name.strip()} stands for two things in\n{text}"
        reader = Reader(expression, names)
        names[name.strip()] = reader.sum()
        assert reader.place == len(reader.tokens), f"{expression}: read up to {reader.place} of {reader.tokens}"
    return names


def has_no_bare_constant(program: Program) -> bool:
    """A constant matrix is printed as its number, from which a product or a sum could not tell its size."""
    return not any(
        value.operation not in ("add", "subtract", "hadamard", "scale", "divide", "add_scaled", "gate", "copy")
        and any(x.operation == "full" for x in value.operands)
        for value in program.values
    )


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(program=programs(exact=True, size=10), seed=st.integers(0, 9), fused=st.booleans())
def test_what_is_printed_is_what_is_computed(program: Program, seed: int, fused: bool):
    program = optimized(program) if fused else program
    assume(has_no_bare_constant(program))
    state, given = numbers(seed, exact=True)
    with warnings.catch_warnings():
        expected = outputs(program, state | given)
        assume(all(np.abs(A).max() < 2.0**40 for A in expected.values()))
        actual = read(str(program), state | given)
    for name, A in expected.items():
        if f"{name}'" in actual:
            np.testing.assert_allclose(
                np.broadcast_to(actual[f"{name}'"], A.shape), A, rtol=1e-12, err_msg=str(program)
            )
        else:
            assert program.outputs[name] is program.inputs[name], f"{name} is not shown in\n{program}"


def printed(value: Value) -> str:
    return str(Program({}, {"y": value})).splitlines()[-1].removeprefix("y = ")


A, B, C = (Value("input", (), (2, 2), name=name) for name in "ABC")
S = Value("input", (), (), name="s")


def of(operation: str, *operands: Value, shape=(2, 2)) -> Value:
    return Value(operation, operands, shape, order=max((x.order for x in operands), default=0) + 1)


def number(x: float) -> Value:
    return Value("number", number=x)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (of("subtract", A, of("subtract", B, C)), "A - (B - C)"),
        (of("matmul", A, of("matmul", B, C)), "A (B C)"),
        (of("matmul", of("add", A, B), C), "(A + B) C"),
        (of("hadamard", A, of("matmul", B, C)), "A ⊙ (B C)"),
        (of("transpose", of("matmul", A, B)), "(A B)ᵀ"),
        (of("scale", of("negative", S, shape=()), A), "(-s)·A"),
        (of("reciprocal", of("matmul", A, B)), "1/(A B)"),
        (of("power", of("negative", A), number(2)), "(-A)^2"),
        (of("power", of("full", number(-2)), number(2)), "(-2)^2"),
        (of("transpose", of("row_repeat", Value("input", (), (1, 2), name="b"))), "(1_2 b)ᵀ"),
        (of("add_scaled", A, number(-1), B), "A - B"),
        (of("add_scaled", A, number(-0.5), B), "A - 0.5·B"),
        (of("add_scaled", A, of("negative", S, shape=()), B), "A - s·B"),
        (of("product_sum", number(1), A, number(-1), B, C), "A - B C"),
        (of("product_sum", number(0.9), A, S, B, of("add", B, C)), "0.9·A + s·B (B + C)"),
    ],
)
def test_parentheses(value: Value, expected: str):
    assert printed(value) == expected


def test_a_temporary_name_is_not_that_of_a_matrix_that_is_kept_transposed():
    """U1ᵀ is not the transpose of a temporary U1."""
    kept = Value("exp", (A,), (2, 2), name="U1ᵀ", order=1)
    twice = of("tanh", kept)
    text = str(Program({"A": A}, {"y": of("matmul", of("transpose", twice), twice)}))
    assert text.splitlines()[2:] == ["U1ᵀ = exp(A)", "V1  = tanh(U1ᵀ)", "y   = V1ᵀ V1"]


def test_a_temporary_name_is_no_name_of_the_state():
    """A layer may have a parameter u, which is u1 in layer 1: U1 would read like it."""
    u = Value("input", (), (2, 2), name="1.u")
    twice = of("exp", u)
    text = str(Program({"1.u": u}, {"1.u": of("add", twice, twice)}))
    assert text.splitlines()[2:] == ["V1  = exp(u1)", "u1' = V1 + V1"]


def test_functions_have_names_and_can_be_opened():
    """The steps are softmax(Y2), the derivative of gelu, and the mean of the columns; opened, they are all there."""
    program = mg.create_model("BatchNormalization;GELU;Linear", "3;4;2").program()
    lines = dict(line.split(" = ", 1) for line in str(program).splitlines()[2:])
    named = {name.strip(): line.strip() for name, line in lines.items()}
    assert named["mu1"] == "columns_mean(X)"
    assert named["Y2"] == "gelu(Z2)"
    assert named["DY"] == "(softmax(Y3) - T) / N"
    assert named["DZ2"] == "DX3 ⊙ gelu'(Z2)"
    assert "rows_sum(T) = 1_N" in str(program).splitlines()[0]
    opened = program.text(is_opened=True)
    assert "exp(Y3 - rows_max(Y3) 1_2ᵀ)" in opened
    assert "rows_sum(T) 1_2ᵀ" in opened
    assert "softmax" not in opened
    assert not re.search(r"\bt\d", opened)


def test_a_program_of_a_file_has_the_steps_alone():
    program = mg.create_model("Sigmoid;Linear", "3;4;2").program()
    assert from_dictionary(as_dictionary(program)).text() == program.text(is_opened=True)
