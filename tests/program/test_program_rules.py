"""The rules that make a program shorter: each alone, with numbers, and where it must not be applied."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import matgrad as mg
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, ones, product_on, row_repeat, step
from matgrad.program import Program, Value, optimized, record, record_computation
from matgrad.program.computations import make_step
from matgrad.program.rules import (
    FUSIONS,
    SIMPLIFICATIONS,
    added_scaled,
    gated,
    rewritten,
    scaled_constant,
    summed_into_product,
    times_one,
    transposed_twice,
    with_separate_outputs,
)
from matgrad.program.shapes import BoundSize
from program_support import executed, outputs

SHAPES = {"A": (3, 4), "B": (4, 5), "C": (3, 5), "D": (3, 5), "b": (1, 5), "c": (), "Z": (3, 5)}


def recorded(f, shapes=SHAPES) -> Program:
    """The program of a function of recorded matrices, whose results replace C, D, …, or are called y, z."""
    return record(lambda recording, inputs: f(**inputs), {name: (shape, "float64") for name, shape in shapes.items()})


def operations(program: Program) -> Counter[str]:
    return Counter(value.operation for value in program.instructions)


def numbers(shapes=SHAPES) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(12)
    return {name: np.array(rng.normal(size=shape)) for name, shape in shapes.items()}


def check_equal(before: Program, after: Program, context: str) -> None:
    """Both programs give the same outputs, by their meaning."""
    given = numbers()
    expected, actual = outputs(before, given), outputs(after, given)
    assert actual.keys() == expected.keys(), context
    for name, X in expected.items():
        np.testing.assert_allclose(actual[name], X, rtol=1e-12, atol=1e-13, err_msg=f"{context}, {name}")


# rule, what it is applied to, operations that must be there afterwards, and operations that must be gone
FIRES = {
    "(Xᵀ)ᵀ": (transposed_twice, lambda C, **_: {"C": C.T.T + C}, ["add"], ["transpose"]),
    "1·X": (times_one, lambda C, **_: {"C": 1 * C + 1.0 * C}, ["add"], ["scale"]),
    "c·1": (scaled_constant, lambda C, **_: {"C": C - 3 * ones(3, 5, like=C)}, ["full"], ["scale"]),
    "A ⊙ [Z ≥ 0]": (gated, lambda C, Z, **_: {"C": hadamard(C, step(Z))}, ["gate"], ["hadamard", "step"]),
    "relu": (gated, lambda Z, **_: {"Z": hadamard(Z, step(Z))}, ["gate"], ["hadamard", "step"]),
    "A B + C": (summed_into_product, lambda A, B, C, **_: {"C": A @ B + C}, ["product_sum"], ["matmul", "add"]),
    "-C - A B": (summed_into_product, lambda A, B, C, **_: {"C": -C - A @ B}, ["product_sum"], ["matmul", "subtract"]),
    "C + -(A B)": (summed_into_product, lambda A, B, C, **_: {"C": C + -(A @ B)}, ["product_sum"], ["matmul"]),
    "μC - η(A B)": (
        summed_into_product,
        lambda A, B, C, c, **_: {"C": 0.9 * C - c * product_on(C, A, B)},
        ["product_sum"],
        ["matmul", "subtract", "scale"],
    ),
    "A B + 1 b": (
        summed_into_product,
        lambda A, B, b, **_: {"C": A @ B + row_repeat(b, 3)},
        ["product_sum"],
        ["matmul"],
    ),
    "Y + cX": (added_scaled, lambda C, D, c, **_: {"C": C + c * D}, ["add_scaled"], ["add", "scale"]),
    "Y - 2X": (added_scaled, lambda C, D, **_: {"C": C - 2 * D}, ["add_scaled"], ["subtract", "scale"]),
    "Y - -X": (added_scaled, lambda C, D, **_: {"C": C - -D}, ["add_scaled"], ["subtract", "negative"]),
}


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_alone_keeps_the_numbers(name: str):
    rule, f, present, gone = FIRES[name]
    before = recorded(f)
    after = rewritten(before, [rule])

    check_equal(before, after, name)
    for operation in present:
        assert operations(after)[operation], f"{name}: no {operation} in\n{after}"
    for operation in gone:
        assert not operations(after)[operation], f"{name}: {operation} in\n{after}"
    state = {key: A for key, A in numbers().items() if key in after.outputs}
    given = {key: A for key, A in numbers().items() if key not in after.outputs}
    for backend in ("numpy", "torch"):
        actual = executed(with_separate_outputs(after), state, given, backend=backend)
        for key, X in outputs(before, numbers()).items():
            np.testing.assert_allclose(actual[key], X, rtol=1e-12, atol=1e-13, err_msg=f"{name} on {backend}, {key}")


def twice(f):
    """The function with its inner product or multiple as a second output."""
    return lambda **inputs: dict(zip(("C", "D"), f(**inputs), strict=True))


# where the rule would compute something twice, or where it does not hold
STAYS = {
    "a product that is used twice": (summed_into_product, twice(lambda A, B, C, **_: (lambda P: (C + P, P))(A @ B))),
    "a multiple of a product, used twice": (
        summed_into_product,
        twice(lambda A, B, C, c, **_: (lambda P: (C + P, P))(c * (A @ B))),
    ),
    "a product of which only a multiple is added": (
        summed_into_product,
        twice(lambda A, B, C, c, **_: (lambda P: (C + c * P, P))(A @ B)),
    ),
    "A B - C": (summed_into_product, lambda A, B, C, **_: {"C": A @ B - C}),
    "a multiple that is used twice": (added_scaled, twice(lambda C, D, c, **_: (lambda P: (C + P, P))(c * D))),
    "cX - Y": (added_scaled, lambda C, D, c, **_: {"C": c * D - C}),
    "2·X": (times_one, lambda C, **_: {"C": 2 * C}),
    "Xᵀ": (transposed_twice, lambda C, **_: {"y": C.T}),
    "c·1 with a scalar c": (scaled_constant, lambda C, c, **_: {"C": c * ones(3, 5, like=C)}),
    "scalars": (added_scaled, lambda C, c, **_: {"c": c + 2 * elements_sum(C)}),
}


@pytest.mark.parametrize("name", STAYS)
def test_a_rule_is_not_applied(name: str):
    rule, f = STAYS[name]
    before = recorded(f)
    after = rewritten(before, [rule])

    assert operations(after) == operations(before), f"{name}:\n{after}"
    check_equal(before, after, name)


@pytest.mark.parametrize("name", [*FIRES, *STAYS])
def test_all_rules_together_keep_the_numbers(name: str):
    before = recorded((FIRES | STAYS)[name][1])
    check_equal(before, rewritten(rewritten(before, SIMPLIFICATIONS), FUSIONS), name)
    check_equal(before, optimized(before), name)


def test_equal_expressions_are_computed_once():
    program = optimized(
        recorded(lambda C, D, **_: {"C": hadamard(C - D, C - D), "D": columns_sum(C - D).T @ ones(1, 1, like=C)})
    )
    assert operations(program)["subtract"] == 1


def test_different_numbers_inputs_and_shapes_are_not_equal():
    shapes = {"x": (1, 1), "y": (1, 1), "p": (2, 3), "q": (3, 2)}
    program = optimized(
        recorded(
            lambda x, y, p, q: {
                "x": 2 * x + 3 * x + 2 * y,
                "p": p + row_repeat(x, 2) @ ones(1, 3, like=x),
                "q": q + row_repeat(x, 3) @ ones(1, 2, like=x),
            },
            shapes,
        )
    )
    given = numbers(shapes)
    x, y, p, q = given.values()
    found = outputs(program, given)
    np.testing.assert_allclose(found["x"], 5 * x + 2 * y)
    np.testing.assert_allclose(found["p"], p + x[0, 0])
    np.testing.assert_allclose(found["q"], q + x[0, 0])


def test_the_batch_size_is_not_the_number_that_it_is():
    """N = 3 and the number 3 are equal, but a program says N where it means N."""
    N = BoundSize(3, "N")
    program = optimized(
        record(lambda _, inputs: {"y": inputs["X"] / N, "z": inputs["X"] / 3}, {"X": ((N, 3), "float64")})
    )
    assert str(program).splitlines()[-2:] == ["y = X / N", "z = X / 3"]


def test_what_no_output_needs_is_gone():
    program = recorded(lambda A, B, C, **_: {"C": (lambda unused: 2 * C)(A @ B)})
    assert operations(program) == {"scale": 1}
    assert set(program.inputs) == set(SHAPES)


def step_program(M: mg.MultilayerPerceptron, N: int = 6) -> Program:
    D, K = M.layers[0].input_size, M.layers[-1].output_size
    return record_computation(make_step(M, mg.SoftmaxCrossEntropyLoss()), M.state(), np.zeros((N, D)), np.zeros((N, K)))


def test_the_gradient_of_the_input_is_dead():
    """DX of the first layer; a network of 3 layers needs 3 products forward, 3 for DW and 2 for DX."""
    layers = [mg.ActivationLayer(5, 4, "ReLU"), mg.ActivationLayer(4, 3, "Sigmoid"), mg.LinearLayer(3, 2)]
    program = step_program(mg.MultilayerPerceptron(layers).to(dtype="float64"))
    assert operations(program)["matmul"] == 8
    names = {value.name for value in program.values}
    assert "DX1" not in names
    assert {"DX2", "DX3"} <= names


@pytest.mark.parametrize("optimizer", ["GradientDescent", "Momentum(0.9)"])
def test_forward_and_update_are_one_product_each(optimizer: str):
    M = mg.MultilayerPerceptron([mg.LinearLayer(5, 2)]).to(dtype="float64")
    M.set_optimizer(optimizer)
    found = operations(optimized(step_program(M)))
    assert found["product_sum"] == 2
    assert not found["matmul"]


def test_every_output_has_memory_of_its_own():
    program = with_separate_outputs(recorded(lambda C, D, A, **_: {"C": D, "D": D, "Z": D, "y": A.T, "A": A}))
    assert [program.outputs[name].operation for name in ("C", "D", "Z", "y", "A")] == [
        *("copy", "input", "copy", "copy", "input")
    ]
    assert len(set(program.outputs.values())) == 5


def test_a_counter_is_not_the_number_that_it_equals():
    """The core takes whole numbers only as counters: 2 must not become the 2.0 that stands elsewhere."""
    half, count = (Value("number", number=x, order=order) for order, x in enumerate((2.0, 2)))
    U, H = Value("uniform", (count, count), (2, 2), order=2), Value("full", (half,), (2, 2), order=2)
    program = Program({}, {"Y": Value("hadamard", (H, U), (2, 2), order=3)})
    kept = rewritten(program, ()).outputs["Y"].operands[1]
    assert [type(x.number) for x in kept.operands] == [int, int]
