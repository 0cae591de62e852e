"""Learning rate schedulers against torch.optim.lr_scheduler and closed forms, and their specifications."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import matgrad as mg
from matgrad.learning_rate import create_scheduler
from support import AfterEpoch

COUNT = 40

# one scheduler of each kind


def torch_rates(make, lr, count=COUNT) -> list[float]:
    """The rates of the epochs 0, 1, … of a scheduler of torch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler, rates = make(optimizer), []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("milestones", [(10, 15), (10,), (1, 2, 3), (15, 10), (0, 5), (5, 5)], ids=str)
def test_multi_step_is_that_of_torch(milestones):
    """η₀·Γ^(number of milestones ≤ i): it stops decaying after the last one, unlike the paper's sum."""
    scheduler = mg.MultiStepLRScheduler(0.2, milestones, 0.3)
    actual = [scheduler(i) for i in range(COUNT)]
    expected = torch_rates(lambda o: lr_scheduler.MultiStepLR(o, milestones, 0.3), 0.2)
    assert actual == pytest.approx(expected, rel=1e-12)
    assert actual[-1] == actual[20] == pytest.approx(0.2 * 0.3 ** len(milestones), rel=1e-12)


def test_exponential_is_that_of_torch():
    scheduler = mg.ExponentialScheduler(0.2, 0.07)
    expected = torch_rates(lambda o: lr_scheduler.ExponentialLR(o, math.exp(-0.07)), 0.2)
    assert [scheduler(i) for i in range(COUNT)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("drop_rate", [1, 2, 5])
def test_step_based_is_that_of_torch_one_epoch_later(drop_rate):
    scheduler = mg.StepBasedScheduler(0.2, 0.6, drop_rate)
    expected = torch_rates(lambda o: lr_scheduler.StepLR(o, drop_rate, 0.6), 0.2, COUNT + 1)[1:]
    assert [scheduler(i) for i in range(COUNT)] == pytest.approx(expected, rel=1e-12)


def test_step_based_with_a_fraction():
    """⌊(1+i)/2.5⌋ by hand."""
    scheduler = mg.StepBasedScheduler(1.0, 0.5, 2.5)
    assert [scheduler(i) for i in range(8)] == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0])
def test_time_based_is_the_papers_recursion(decay):
    """η_{i+1} = η_i / (1 + d·i), computed step by step by torch."""
    scheduler = mg.TimeBasedScheduler(0.4, decay)
    expected = torch_rates(lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 1 / (1 + decay * (i - 1))), 0.4)
    assert [scheduler(i) for i in range(COUNT)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("minimum", [0.0, 0.05])
@pytest.mark.parametrize("steps", [1, 7, COUNT - 1])
def test_cosine_is_that_of_torch_up_to_the_minimum(steps, minimum):
    """Then torch rises again, but this schedule stays there."""
    scheduler = mg.CosineScheduler(0.2, steps, minimum)
    actual = [scheduler(i) for i in range(COUNT)]
    expected = torch_rates(lambda o: lr_scheduler.CosineAnnealingLR(o, steps, minimum), 0.2)
    assert actual[: steps + 1] == pytest.approx(expected[: steps + 1], rel=1e-9, abs=1e-12)
    assert actual[steps:] == [minimum] * (COUNT - steps)


FOLLOWING = {
    "0.2": lambda o: lr_scheduler.LambdaLR(o, lambda i: 1.0),
    "Cosine(0.2; 20; 0.01)": lambda o: lr_scheduler.CosineAnnealingLR(o, 20, 0.01),
    "MultiStepLR(0.2; 10, 15; 0.1)": lambda o: lr_scheduler.MultiStepLR(o, (10, 15), 0.1),
}


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("schedule", FOLLOWING)
def test_warm_up_is_that_of_torch(schedule, steps):
    """A line up to the first rate of the schedule that follows, which begins after it."""
    scheduler, count = create_scheduler(f"WarmUp({steps}; {schedule})"), steps + 20

    def make(optimizer):
        parts = [lr_scheduler.LinearLR(optimizer, 1 / (steps + 1), 1.0, steps), FOLLOWING[schedule](optimizer)]
        return lr_scheduler.SequentialLR(optimizer, parts, [steps])

    expected = torch_rates(make, 0.2, count)
    assert [scheduler(i) for i in range(count)] == pytest.approx(expected, rel=1e-9)
    assert scheduler(steps) == create_scheduler(schedule)(0)


# -- per epoch or per step ---------------------------------------------------------------------


class RecordingLayer(mg.LinearLayer):
    """Writes down every learning rate that it is given."""

    def optimize(self, eta):
        self.rates.append(float(eta))


@pytest.mark.parametrize(
    ("per_step", "indices"), [(False, [0, 0, 0, 1, 1, 1, 2, 2, 2]), (True, [0, 1, 2, 3, 4, 5, 6, 7, 8])]
)
def test_index_is_the_epoch_or_the_step(per_step, indices):
    """Three epochs of three batches: the index counts epochs unless `per_step` is given."""
    layer = RecordingLayer(2, 2)
    layer.rates = []
    loader = [(np.ones((4, 2), dtype="float32"), np.ones((4, 2), dtype="float32"))] * 3
    schedule, used = mg.ExponentialScheduler(1.0, 0.5), []
    mg.stochastic_gradient_descent(
        mg.MultilayerPerceptron([layer]),
        3,
        mg.SquaredErrorLoss(),
        schedule,
        loader,
        per_step=per_step,
        compiled=False,  # so that the rates can be seen
        callbacks=[AfterEpoch(lambda run: used.append(run.row["learning_rate"]))],
    )
    assert layer.rates == pytest.approx([math.exp(-0.5 * i) for i in indices], rel=1e-6)
    assert used == pytest.approx([math.exp(-0.5 * i) for i in indices[2::3]], rel=1e-12)


# -- specifications ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specification", "expected"),
    [
        ("0.01", mg.ConstantScheduler(0.01)),
        (0.01, mg.ConstantScheduler(0.01)),
        ("TimeBased(0.1, 0.05)", mg.TimeBasedScheduler(0.1, 0.05)),
        ("StepBased(0.1, 0.5, 4)", mg.StepBasedScheduler(0.1, 0.5, 4)),
        ("Exponential(0.1; 3e-2)", mg.ExponentialScheduler(0.1, 0.03)),
        ("MultiStepLR(0.1; 10, 15; 0.1)", mg.MultiStepLRScheduler(0.1, [10, 15], 0.1)),
        ("MultiStepLR(0.1; 10; 0.1)", mg.MultiStepLRScheduler(0.1, 10, 0.1)),
        ("Cosine(0.1; 50)", mg.CosineScheduler(0.1, 50)),
        ("Cosine(0.1, 50, minimum=0.001)", mg.CosineScheduler(0.1, 50, 0.001)),
        ("WarmUp(5; 0.1)", mg.WarmUpScheduler(5, 0.1)),
        ("WarmUp(5; Cosine(0.1; 50))", mg.WarmUpScheduler(5, mg.CosineScheduler(0.1, 50))),
        ("WarmUp(schedule=Cosine(0.1; 50); steps=5)", mg.WarmUpScheduler(5, mg.CosineScheduler(0.1, 50))),
        ("WarmUp(2; WarmUp(3; 0.1))", mg.WarmUpScheduler(2, mg.WarmUpScheduler(3, 0.1))),
    ],
)
def test_specifications(specification, expected):
    scheduler = create_scheduler(specification)
    assert scheduler == expected
    assert [scheduler(i) for i in range(COUNT)] == [expected(i) for i in range(COUNT)]


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("Multistep(0.1; 10; 0.1)", r"unknown learning rate scheduler 'Multistep'; did you mean 'MultiStepLR'\?"),
        ("Cosine(0.1)", r"'steps'; usage: Cosine\(lr, steps, minimum=0.0\)"),
        ("WarmUp(5; Cosin(0.1; 3))", r"unknown learning rate scheduler 'Cosin'; did you mean 'Cosine'\?"),
        ("WarmUp(5; Cosine(0.1))", r"learning rate scheduler 'Cosine\(0.1\)': .*usage: Cosine"),
        ("MultiStepLR(0.1, 10, 15, 0.1)", r"usage: MultiStepLR\(lr, milestones, gamma\)"),
        ("0.1.2", r"cannot read '0\.1\.2'"),
    ],
)
def test_bad_specifications_are_refused(specification, message):
    with pytest.raises(ValueError, match=message):
        create_scheduler(specification)


@pytest.mark.parametrize(
    "specification",
    [
        "Constant(fast)",
        "MultiStepLR(0.1; 10, x; 0.1)",
        "Exponential(0.1; 1, 2)",
        "MultiStepLR(0.1; 10, -5; 0.1)",
        "StepBased(0.1, 0.5, 0)",
        "Cosine(0.1; 0)",
        "Cosine(0.1; 5; 0.2)",
        "WarmUp(0; 0.1)",
        "nan",
    ],
)
def test_bad_values_are_refused(specification):
    """A word, a list, a zero divisor or NaN is named where it is read, not found in the middle of training."""
    with pytest.raises(ValueError, match=specification.partition("(")[0]):
        create_scheduler(specification)


@pytest.mark.parametrize("eta", [math.nan, math.inf, -0.1])
def test_the_rates_of_a_function_are_checked(eta):
    M = mg.create_model("Linear", [2, 2])
    with pytest.raises(ValueError, match=r"learning rate, found .* for number 1, counted from 0"):
        M.fit(np.eye(2), [0, 1], epochs=3, learning_rate=lambda i: eta if i == 1 else 0.1)
