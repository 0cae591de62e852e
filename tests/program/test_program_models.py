"""M.program: the training step of a model, and feedforward, as programs."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.specifications.models import create_model
from program_support import outputs
from support import Framework

LAYERS, SIZES = "ReLU;BatchNormalization;Softmax", "4;6;3"


def model() -> mg.MultilayerPerceptron:
    mg.manual_seed(3)
    return create_model(LAYERS, SIZES, optimizers="Adam", dropouts="0.2;0")


def test_a_model_has_the_program_of_its_training_step():
    M = model()
    step = make_step(M, mg.CrossEntropyLoss(), clip_norm=2.0)
    recorded = record_computation(step, M.state(), np.zeros((7, 4), "float32"), np.zeros((7, 3), "float32"))
    assert str(M.program(batch_size=7, clip_norm=2.0)) == str(optimized(recorded))
    assert str(M.program(batch_size=7, clip_norm=2.0, fused=False)) == str(recorded)
    assert str(M.program(loss="CrossEntropy")) == str(M.program())
    assert str(M.program(loss=mg.MeanSquaredErrorLoss())) != str(M.program())
    assert tuple(M.program().inputs["X"].shape) == (100, 4)


@pytest.mark.parametrize("fused", [True, False])
def test_feedforward_is_what_the_model_predicts(fused: bool):
    M, X = model(), np.random.default_rng(4).normal(size=(9, 4)).astype("float32")
    M.fit(X, np.arange(9) % 3, epochs=1, batch_size=3, seed=0)
    program = M.program(feedforward=True, batch_size=9, fused=fused)
    found = outputs(program, {name: A for name, A in M.state().items() if name in program.inputs} | {"X": X})
    assert found.keys() == {"Y"}
    np.testing.assert_allclose(found["Y"], M.predict(X), rtol=1e-5)


def test_what_feedforward_computes_has_no_prime():
    """x' is x after the step: an output that replaces no input is not one."""
    text = str(create_model("ReLU;Linear", "4;5;3").program(feedforward=True))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "given W1 5×4, b1 1×5, W2 3×5, b2 1×3, X N×4",
        "",
        "Z1 = X W1ᵀ + 1_N b1",
        "Y1 = relu(Z1)",
        "Y = Y1 W2ᵀ + 1_N b2",
    ]


def test_programs_are_the_same_on_every_backend(backend: Framework):
    M = model()
    expected = str(M.program(feedforward=True)), str(M.program())
    M.to(backend.name)
    assert (str(M.program(feedforward=True)), str(M.program())) == expected


@pytest.mark.parametrize("options", [{"loss": "CrossEntropy"}, {"clip_norm": 1.0}])
def test_feedforward_has_no_loss_and_no_gradients(options):
    with pytest.raises(ValueError, match="belong to the training step"):
        model().program(feedforward=True, **options)


def test_a_batch_has_examples():
    with pytest.raises(ValueError, match="batch_size: expected 1 or more, found 0"):
        model().program(batch_size=0)
