"""Topology updates while a model is trained: what stays, what is new, when they happen, and what they cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import matgrad as mg
from matgrad.callbacks.topology import Topology, TopologyCallback
from matgrad.engines import program as engine
from matgrad.layers.state import matrices_of, sized_by_supports
from matgrad.program.computations import sparse_parameters
from matgrad.program.recorder import record_computation
from matgrad.sparse.rules import create_grow
from matgrad.sparse.support import Support
from support import AfterEpoch

ENGINES = ("numpy", "torch", "native")
LOSS = mg.SoftmaxCrossEntropyLoss()


def data(N: int = 60, D: int = 12, K: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D))
    return X, np.argmax(X[:, :K] + 0.1 * rng.normal(size=(N, K)), axis=1)


def model(name: str = "numpy", densities: Any = 0.4, optimizer: str = "Momentum(0.9)", seed: int = 0) -> Any:
    mg.manual_seed(seed)
    M = mg.create_model("ReLU;ReLU;Linear", [12, 9, 8, 4], densities=densities, optimizers=optimizer)
    return M.to(name, dtype="float64")


def supports(M: mg.MultilayerPerceptron) -> list[Support]:
    return [getattr(layer, name).support for _, layer, name in sparse_parameters(M)]


def elements(M: mg.MultilayerPerceptron) -> dict[str, dict[int, float]]:
    """What the state has for each stored element, by its position: the weight, and what the optimizer keeps."""
    state = M.state()
    return {
        name: dict(zip(state[S].flat().tolist(), M.backend.to_numpy(state[name])[0].tolist(), strict=True))
        for name, S in sized_by_supports(state).items()
    }


# -- invariants over many rounds on awkward shapes ----------------------------------------------

MASKS = {
    "one row": np.arange(14)[None] % 3 == 0,
    "one column": np.arange(14)[:, None] % 3 == 0,
    "one element": np.arange(12).reshape(3, 4) == 5,
    "one free position": np.arange(12).reshape(3, 4) != 5,
    "full rows": np.repeat([[True], [False], [True], [False]], 6, axis=1),
    "full columns": np.repeat([[True, False, True, False, False]], 6, axis=0),
    "empty rows": np.arange(35).reshape(7, 5) // 5 == 3,
    "density 1": np.ones((5, 6), dtype=bool),
    "anything": np.random.default_rng(0).random((11, 13)) < 0.3,
}
RULES = [
    ("Magnitude(0.4)", "Random", False),
    ("SET(0.3)", "Gradient", False),
    ("Magnitude(1)", "Random", True),
    ("Threshold(0.5)", "Gradient", True),
    ("SET(0.5)", "Momentum(0.5, 2)", False),
]


@pytest.mark.parametrize("kind", MASKS)
def test_invariants_over_many_rounds(kind: str):
    """nnz is exact; what stays keeps its weight and its state; what is new has neither; all engines choose the same."""
    S, rng = Support.from_mask(MASKS[kind]), np.random.default_rng(5)
    K, D = S.shape
    models = {name: one_layer(S, name) for name in ENGINES}
    X, T = (rng.integers(-2, 3, (8, n)).astype(float) for n in (D, K))  # 8: dividing by it is exact
    for i in range(60):
        prune, grow, regrow = RULES[i % len(RULES)]
        after: dict[str, Any] = {}
        for name, M in models.items():
            refill(M, i)
            before = elements(M)
            backend = M.backend
            run: Any = SimpleNamespace(M=M, loss=mg.SquaredErrorLoss(), compiled=False, epoch=i)
            run.sample = lambda rng, backend=backend: (backend.from_numpy(X), backend.from_numpy(T))
            update = Topology(prune, grow, regrow=regrow, weights="Zero")
            update._epoch = -1
            update.update(run, np.random.default_rng(i), 0.0)
            after[name] = elements(M)
            check_change(M, S.nnz, before, after[name], regrow)
        assert after["numpy"].keys() == after["torch"].keys() == after["native"].keys()
        for key in after["numpy"]:
            assert after["numpy"][key] == after["torch"][key] == after["native"][key]


def one_layer(S: Support, name: str) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = mg.MultilayerPerceptron([mg.LinearLayer(S.shape[1], S.shape[0], support=S)])
    M.set_optimizer("Adam")
    return M.to(name, dtype="float64")


def refill(M: mg.MultilayerPerceptron, seed: int) -> None:
    """Give every element new weights and states that are not 0; they are multiples of 1/4, so that sums are exact."""
    rng, state = np.random.default_rng(seed), M.state()
    for name in sized_by_supports(state):
        A = rng.choice([-1, 1], state[name].shape) * rng.integers(1, 9, state[name].shape) / 4
        state[name] = M.backend.from_numpy(A)
    M.load_state(state)


def check_change(M: Any, nnz: int, before: dict, after: dict, regrow: bool) -> None:
    (S,) = supports(M)
    assert S.nnz == nnz
    assert len(after["1.W"]) == nnz
    assert len(np.unique(S.flat())) == nnz
    assert after.keys() == {"1.W", "1.W.m", "1.W.v"}
    for name, values in after.items():
        for position, value in values.items():
            is_new = value == 0
            assert is_new or value == before[name][position], "it was moved with its position"
            if is_new and not regrow:
                assert position not in before[name], "only new positions have 0"
    old, new = set(before["1.W"]), set(after["1.W"])
    zeros = {position for position, value in after["1.W"].items() if value == 0}
    assert new - old <= zeros
    for name in ("1.W.m", "1.W.v"):
        assert {position for position, value in after[name].items() if value == 0} == zeros


# -- while training -----------------------------------------------------------------------------


@pytest.mark.parametrize("grow", ["Random", "Gradient", "Momentum"])
@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("optimizer", ["GradientDescent", "Nesterov(0.9)", "Adam"])
def test_all_engines_find_the_same_network(grow: str, every: int | None, optimizer: str):
    """Compiled and eager, with a smaller last batch, in random order."""

    def train(name: str, compiled: bool = True) -> mg.MultilayerPerceptron:
        M = model(name, optimizer=optimizer)
        update = Topology("SET(0.3)", grow, every=every, seed=4, decay="cosine")
        options = {"epochs": 4, "batch_size": 25, "seed": 0, "learning_rate": 0.02, "compiled": compiled}
        M.fit(*data(), callbacks=[update], statistics=False, **options)
        assert update.updates == (3 if every is None else 5)
        return M

    expected = train("numpy", compiled=False)
    start = model("numpy", optimizer=optimizer)
    assert not any(S.is_same(R) for S, R in zip(supports(expected), supports(start), strict=True))
    for name in ENGINES:
        found = train(name)
        for S, R in zip(supports(found), supports(expected), strict=True):
            assert S.is_same(R)
        for key, A in matrices_of(expected.state()).items():
            B = found.backend.to_numpy(found.state()[key])
            np.testing.assert_allclose(B, A, rtol=1e-8, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("every", [None, 1, 2])
def test_updates_record_nothing_again(monkeypatch, name: str, every: int | None):
    recordings = []

    def counting(computation, *arguments):
        recordings.append(type(computation).__name__)
        return record_computation(computation, *arguments)

    monkeypatch.setattr(engine, "record_computation", counting)
    M = model(name)
    update = mg.RigL(every=every, until=1.0)
    M.fit(*data(), epochs=4, batch_size=20, callbacks=[update], statistics=False)
    assert update.updates >= 3
    assert recordings == ["Step", "GradientFactors"]


@pytest.mark.parametrize("name", ENGINES)
def test_RigL_chooses_from_the_gradient_of_the_dense_network(name: str):
    """Compared with PyTorch's derivative of a dense network that has the same weights, 0 where none are stored."""
    import torch

    M = model(name)
    for layer in M.layers:  # no z is 0, where the derivative of relu is a matter of taste
        layer.b = M.backend.from_numpy(np.random.default_rng(6).normal(size=layer.b.shape))
    X, t = data()
    run: Any = SimpleNamespace(M=M, loss=LOSS, compiled=True, epoch=0)
    run.sample = lambda rng: next(iter(mg.DataLoader(X, t, 60, classes=4).to(name)))
    dense = [(torch.tensor(W.copy(), requires_grad=True), torch.tensor(b)) for W, b in dense_parameters(M)]
    Y = torch.tensor(X)
    for i, (W, b) in enumerate(dense):
        Y = Y @ W.T + b
        Y = torch.relu(Y) if i < 2 else Y
    torch.nn.functional.cross_entropy(Y, torch.tensor(t)).backward()

    before = supports(M)
    update = Topology("Magnitude(0.3)", "Gradient")
    update._epoch = -1
    values = [M.backend.to_numpy(layer.W.values)[0] for layer in M.layers]
    update.update(run, np.random.default_rng(0), 0.0)
    for old, new, w, (W, _) in zip(before, supports(M), values, dense, strict=True):
        count = round(0.3 * old.nnz)
        kept = np.sort(old.flat()[np.argsort(np.abs(w), kind="stable")[count:]])
        scores = np.abs(W.grad.numpy()).reshape(-1)
        scores[old.flat()] = -1
        grown = np.argsort(-scores, kind="stable")[:count]
        assert new.flat().tolist() == sorted([*kept, *grown])


def dense_parameters(M: mg.MultilayerPerceptron) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(M.backend.to_numpy(layer.W.to_dense()), M.backend.to_numpy(layer.b)) for layer in M.layers]


@pytest.mark.parametrize("regrow", [False, True])
def test_just_pruned_positions_are_excluded_unless_they_may_grow_again(regrow: bool):
    M = model(densities=0.9)
    before = [set(S.flat().tolist()) for S in supports(M)]
    update = Topology("Magnitude(0.5)", "Random", regrow=regrow, seed=0)
    M.fit(*data(), epochs=2, learning_rate=0.0, callbacks=[update])
    for old, S in zip(before, supports(M), strict=True):
        free, new = S.shape[0] * S.shape[1] - len(old), set(S.flat().tolist()) - old
        assert S.nnz == len(old)
        if regrow:
            assert len(new) < free, "some of the pruned ones are back"
        else:
            assert len(new) == min(free, round(0.5 * len(old))), "as many as are free"


def test_new_weights_have_a_distribution():
    M = model(densities=0.3)
    before = [set(S.flat().tolist()) for S in supports(M)]
    update = Topology("Magnitude(0.5)", "Random", weights="Uniform(2, 3)", seed=0)
    M.fit(*data(), epochs=2, learning_rate=0.0, callbacks=[update])
    for old, layer in zip(before, M.layers, strict=True):
        values = dict(zip(layer.W.support.flat().tolist(), layer.W.values[0], strict=True))
        new = [value for position, value in values.items() if position not in old]
        assert len(new) == round(0.5 * len(old))
        assert all(2 <= value <= 3 for value in new)


@pytest.mark.parametrize(("decay", "factor"), [("constant", 1.0), ("cosine", 0.5), ("linear", 0.5)])
def test_the_drop_fraction_decays(decay: str, factor: float):
    counts: list[int] = []

    class Counting(mg.Prune):
        def __call__(self, values: np.ndarray, scale: float = 1.0) -> np.ndarray:
            counts.append(scale)
            return np.zeros(len(values), dtype=bool)

    update = Topology(Counting(), "Random", decay=decay, until=0.5)
    model(densities=[0.5, 1, 1]).fit(*data(), epochs=8, callbacks=[update])
    assert len(counts) == 3, "after epochs 1, 2 and 3 of 8; epoch 4 is the end of updates"
    assert counts[1] == pytest.approx(factor), "half of the time is over"
    assert update.updates == 3


def test_there_is_no_update_after_the_last_step():
    M, seen = model(), []
    record = AfterEpoch(lambda run: seen.append(supports(run.M)))
    update = Topology("SET(0.3)", "Random", every=3)
    M.fit(*data(), epochs=3, batch_size=20, callbacks=[record, update])  # 9 steps
    assert update.updates == 2
    assert all(S is R for S, R in zip(seen[-1], supports(M), strict=True))


def test_pruning_without_growing_shrinks_and_never_empties_a_layer():
    M = model(densities=[0.5, 0.02, 1])
    update = Topology("Magnitude(0.5)")
    M.fit(*data(), epochs=12, callbacks=[update])
    first, second = supports(M)
    assert first.nnz == second.nnz == 1
    assert M.predict(data()[0]).shape == (60, 4)


def test_the_explored_rate_is_the_union_of_all_supports():
    M, seen = model(), set()

    def look(run: Any) -> None:
        seen.update((i, p) for i, S in enumerate(supports(run.M)) for p in S.flat().tolist())

    update = Topology("SET(0.5)", "Random", every=1, seed=2)
    M.fit(*data(), epochs=5, batch_size=30, callbacks=[BeforeAndAfter(look), update, BeforeAndAfter(look)])
    positions = sum(S.shape[0] * S.shape[1] for S in supports(M))
    assert update.explored == len(seen) / positions
    assert update.explored > sum(S.nnz for S in supports(M)) / positions


class BeforeAndAfter(mg.Callback):
    wants_batches = True

    def __init__(self, function: Any) -> None:
        self.start = self.batch = function


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_is_repeated_by_its_seeds(name: str):
    def train(seed: int | None) -> list[Support]:
        M = model(name)
        mg.manual_seed(5)
        M.fit(*data(), epochs=3, seed=0, callbacks=[mg.SET(seed=seed)])
        return supports(M)

    for seed in (None, 3):
        assert all(S.is_same(R) for S, R in zip(train(seed), train(seed), strict=True))
    assert not all(S.is_same(R) for S, R in zip(train(1), train(2), strict=True))


def test_data_that_is_no_loader_is_trained_on_with_updates():
    """The gradient is then that on the last batch."""
    M = model()
    X, t = data()
    batches = list(mg.DataLoader(X, t, 20, classes=4))
    update = mg.RigL(every=2, until=1.0)
    mg.stochastic_gradient_descent(M, 3, LOSS, lambda i: 0.05, batches, callbacks=[update])
    assert update.updates == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda positions, site: positions[1:],
        lambda positions, site: positions[::-1],
        lambda positions, site: np.sort([*positions[1:], site.taken.flat()[0]]),
        lambda positions, site: np.append(positions[1:], 12 * 9),
        lambda positions, site: np.append(-1, positions[1:]),
        lambda positions, site: positions.astype(float),
    ],
    ids=["few", "backwards", "taken", "too large", "negative", "floating"],
)
def test_a_rule_that_grows_something_else_is_refused(change: Any):
    class WrongGrow(mg.Grow):
        def __call__(self, site: Any, count: int) -> np.ndarray:
            return change(create_grow("Random")(site, count), site)

    M = model()
    with pytest.raises(ValueError, match="Wrong: expected the numbers of 13 free positions of 9 × 12"):
        M.fit(*data(), epochs=2, callbacks=[Topology("Magnitude(0.3)", WrongGrow())])
    assert supports(M)[0].is_same(supports(model())[0]), "nothing has changed"


@pytest.mark.parametrize(
    ("method", "density", "how"),
    [
        (mg.SET(), 0.3, "after every epoch in the first 100 %"),
        (mg.RigL(), 0.3, "every 100 steps in the first 75 %"),
        (mg.GMP(0.1, every=100), 1, "every 100 steps"),
    ],
)
def test_a_run_that_is_too_short_for_updates_says_so(method: TopologyCallback, density: float, how: str):
    with pytest.warns(UserWarning, match=f"{type(method).__name__}: the run of .* too short .* {how}"):
        model(densities=density).fit(*data(), epochs=1, callbacks=[method])


@pytest.mark.parametrize("regrow", [False, True])
@pytest.mark.parametrize("grow", ["Random", "Gradient"])
def test_a_convolution_grows_within_its_groups(grow: str, regrow: bool):
    mg.manual_seed(0)
    layers = "Conv(4, 3, groups=2, act=ReLU);Conv(4, 2, groups=2);Linear"
    M = mg.create_model(layers, ["5x5x4", 3], densities="0.3;0.5;1")  # and with 0.5 the groups are full
    before = supports(M)
    rng = np.random.default_rng(1)
    X, t = rng.normal(size=(40, 100)), rng.integers(3, size=40)
    topology = Topology("Magnitude(0.5)", grow, every=2, regrow=regrow)
    M.fit(X, t, epochs=2, batch_size=10, callbacks=[topology])
    assert topology.updates > 0
    for old, new, layer in zip(before, supports(M), M.layers, strict=False):
        (inner,) = layer.layers
        assert old.nnz == new.nnz
        assert np.isin(new.flat(), inner.within.flat()).all()
    assert not before[0].is_same(supports(M)[0])
