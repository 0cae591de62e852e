"""Profiles: every second of training belongs to a part that exists, and the products cost what they cost on paper."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.profiling import REST, Row, profile_of, table
from matgrad.matrix_operations import elements_sum
from matgrad.specifications.models import create_model
from sparse_support import some_support
from support import AfterEpoch, Framework

BACKENDS = ("numpy", "torch", "native")
N, D, H, K = 16, 4, 5, 3  # examples, features, hidden units, classes
BATCH = 10  # a batch of 10 and one of 6


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)).astype(np.float32), np.arange(N) % K


def model(backend: str, layers: str = "ReLU;Linear", optimizers: str = "GradientDescent", **options):
    mg.manual_seed(3)
    sizes = f"{D};{H};{K}"
    return create_model(layers, sizes, optimizers=optimizers, **options).to(backend)


def trained(M: mg.MultilayerPerceptron, **options) -> mg.Profile:
    """The profile of two epochs, four batches."""
    with mg.profile(M) as p:
        M.fit(*data(), epochs=2, batch_size=BATCH, seed=0, **options)
    return p


def by_name(p: mg.Profile, kind: str = "full") -> dict[str, Row]:
    return {row.name: row for row in p.rows(kind)}


# -- all backends ------------------------------------------------------------------------------


@pytest.mark.parametrize(("compiled", "kind"), [(True, "full"), (False, "brief"), (False, "full")])
def test_the_rows_cover_all_of_training(backend: Framework, compiled: bool, kind: str):
    p = trained(model(backend.name, optimizers="Momentum(0.9)"), compiled=compiled, clip_norm=1.0)
    rows = p.rows(kind)

    context = f"{backend} compiled={compiled} {kind}"
    assert sum(row.share for row in rows) == pytest.approx(1), context
    assert sum(row.seconds for row in rows) == pytest.approx(p.seconds), context
    assert all(row.seconds >= 0 for row in rows), context
    assert all(row.seconds > 0 for row in rows if row.flops), context
    assert rows[-1].name == REST
    assert p.batches == rows[-1].calls == 4, context
    assert all(row.calls == (2 if row.name == "compilation" else 4) for row in rows), context
    assert ("compilation" in by_name(p)) == compiled, context


@pytest.mark.parametrize("compiled", [True, False])
def test_the_names_are_those_of_equations_losses_and_optimizers(backend: Framework, compiled: bool):
    M = model(backend.name, "BatchNormalization;ReLU;Softmax", "Adam")
    p = trained(M, compiled=compiled)
    known = {("CrossEntropyLoss.gradient", None), ("compilation", None), (REST, None)}
    for i, layer in enumerate(M.layers, start=1):
        for method in METHODS:
            known |= {(str(e), str(i)) for e in equations(type(layer), method)}
        known |= {(f"{type(layer).__name__}.{method}", str(i)) for method in (*METHODS, "optimize")}
        known |= {(f"AdamOptimizer.{name}", str(i)) for name in layer.parameters}

    found = {(row.equation, row.layer) for row in p.rows()}
    assert found <= known, f"{backend} compiled={compiled}"
    needed = {("ActivationLayer.Z", "2"), ("ActivationLayer.DW", "2"), ("SoftmaxLayer.DX", "3")}
    needed |= {("CrossEntropyLoss.gradient", None), ("BatchNormalizationLayer.Dgamma", "1"), ("AdamOptimizer.b", "3")}
    assert needed <= found


def test_the_products_cost_what_they_cost_on_paper(backend: Framework):
    M = model(backend.name)
    compiled, eager = trained(M), trained(M, compiled=False)
    n = 2 * N  # examples in two epochs
    flops = {
        "layer 1 ActivationLayer.Z": 2 * n * D * H,
        "layer 1 ActivationLayer.DW": 2 * n * D * H,
        "layer 2 LinearLayer.Y": 2 * n * H * K,
        "layer 2 LinearLayer.DW": 2 * n * H * K,
        "layer 2 LinearLayer.DX": 2 * n * H * K,
    }
    dead = {"layer 1 ActivationLayer.DX": 2 * n * D * H}  # which programs leave out

    assert {r.name: r.flops for r in compiled.rows() if r.flops} == flops, f"{backend}"
    assert {r.name: r.flops for r in eager.rows() if r.flops} == flops | dead, f"{backend}"
    # X, W and Z for both; programs add the bias, and the update of W, in the same pass
    Z, DW = (by_name(eager)[f"layer 1 ActivationLayer.{x}"].bytes for x in ("Z", "DW"))
    assert Z == 4 * (n * D + n * H + 4 * H * D)
    assert DW == Z
    assert by_name(compiled)["layer 1 ActivationLayer.Z"].bytes == Z + 4 * 4 * H
    assert by_name(compiled)["layer 1 ActivationLayer.DW"].bytes == DW + 4 * 4 * H * D
    assert by_name(compiled)["layer 1 ActivationLayer.Y"].flops is None


def test_a_profile_changes_no_result(backend: Framework):
    plain, timed = model(backend.name, dropouts="0.3"), model(backend.name, dropouts="0.3")
    plain.fit(*data(), epochs=2, batch_size=BATCH, seed=0)
    trained(timed)
    for name, X in plain.state().items():
        A, B = (backend.backend.to_numpy(x) for x in (X, timed.state()[name]))
        np.testing.assert_array_equal(A, B, err_msg=f"{backend} {name}")
    assert not any(method in vars(layer) for layer in timed.layers for method in METHODS)


# -- sparse layers -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("compiled", [True, False])
def test_sparse_products_cost_by_their_elements(name: str, compiled: bool):
    M = model("numpy")
    support = some_support(H, D, 0.4)
    M.layers[0].set_support(support)
    p = trained(M.to(name), compiled=compiled)
    rows, n = by_name(p), 2 * N

    assert 0 < support.nnz < H * D
    for equation in ("Z", "DW") if compiled else ("Z", "DW", "DX"):
        assert rows[f"layer 1 ActivationLayer.{equation}"].flops == 2 * support.nnz * n, f"{name} {equation}"
    index = 4 * (8 * (H + 1) + 4 * support.nnz)  # read in four batches
    Z = rows["layer 1 ActivationLayer.Z"]
    assert Z.bytes == index + 4 * (n * D + n * H + 4 * support.nnz), name
    assert rows["layer 2 LinearLayer.DW"].flops == 2 * n * H * K, name


def test_the_core_counts_for_the_values_that_take_the_time():
    from matgrad.backends import get_backend
    from matgrad.engines.native import NativeExecutor
    from matgrad.engines.numpy_kernels import NumpyKernels
    from matgrad.program import optimized, record

    signature = ((200, 200), "float32")
    program = optimized(
        record(lambda _, x: {"B": x["B"] @ x["C"]}, dict.fromkeys(("unread", "A", "B", "C"), signature))
    )
    X = np.eye(200, dtype="float32")
    executor = NativeExecutor(program, NumpyKernels(get_backend("native")), {"B": X.copy()})
    executor.time()
    for _ in range(3):
        executor.execute(unread=X, A=X, C=X)
    assert executor.runs == 3
    assert [value.operation for value, seconds in executor.seconds.items() if seconds] == ["matmul"]


# -- what is counted, with a clock that only the test moves ------------------------------------------


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in ("inspection.profiling", "foundation.machine", "engines.kernels"):
        monkeypatch.setattr(f"matgrad.{module}.time", clock)
    return clock


def batches(clock: Clock, seconds: float, count: int = 4):
    """Batches that take so many seconds each to come."""
    X, T = data()
    for _ in range(count):
        clock.now += seconds
        yield X, np.eye(K, dtype=X.dtype)[T]


@pytest.mark.parametrize("compiled", [True, False])
def test_seconds_belong_to_who_takes_them(clock: Clock, monkeypatch, compiled: bool):
    from matgrad.backends.numpy_backend import NumpyBackend
    from matgrad.engines.numpy_kernels import NumpyKernels

    def slow(seconds, function):
        def slowed(*arguments, **options):
            clock.now += seconds
            return function(*arguments, **options)

        return slowed

    M, loss = model("numpy", "HyperbolicTangent;Linear"), mg.SquaredErrorLoss()
    tanh = vars(NumpyKernels)["tanh"].__func__  # programs compute tanh(Z) once
    monkeypatch.setattr(NumpyKernels, "tanh", staticmethod(slow(3, tanh)))
    monkeypatch.setattr(NumpyBackend, "tanh", slow(3, NumpyBackend.tanh))
    with mg.profile(M) as p:
        mg.stochastic_gradient_descent(
            M, 1, loss, mg.ConstantScheduler(0.1), batches(clock, 5), compiled=compiled,
            callbacks=[AfterEpoch(slow(1000, bool))],
        )  # fmt: skip
    found = {row.name: row.seconds for row in p.rows() if row.seconds}
    expected = {"layer 1 ActivationLayer.Y": 12.0, REST: 20.0}
    if not compiled:
        expected["layer 1 ActivationLayer.DZ"] = 12.0
    assert found == expected
    assert p.seconds == sum(expected.values())


# -- around it ---------------------------------------------------------------------------------------


def test_a_model_is_profiled_inside_the_context_only():
    M, other = model("numpy"), model("numpy")
    with mg.profile(M) as outer:
        with mg.profile(M) as inner:
            assert profile_of(M) is inner
        assert profile_of(M) is outer
        assert profile_of(other) is None
    assert profile_of(M) is None
    assert outer.rows() == []
    assert str(outer) == ""


class Branching(mg.LinearLayer):
    """A layer that cannot be recorded."""

    def feedforward(self, X):
        Y = super().feedforward(X)
        return Y if float(elements_sum(X)) > -1e9 else -Y


def test_a_layer_that_cannot_be_compiled_is_timed_without_costs():
    M = mg.MultilayerPerceptron([Branching(D, K)])
    with pytest.warns(UserWarning, match="uncompiled"):
        p = trained(M)
    row = by_name(p)["layer 1 Branching.Y"]
    assert row.calls == 4
    assert row.seconds > 0
    assert row.flops is None


@pytest.mark.parametrize(("compiled", "quantity"), [(True, "Y"), (False, "feedforward")])
def test_a_layer_without_source_is_timed_by_its_variables_or_as_a_whole(compiled: bool, quantity: str):
    names: dict = {"LinearLayer": mg.LinearLayer}
    exec("class Typed(LinearLayer):\n  def feedforward(self, X): return super().feedforward(X)", names)
    p = trained(mg.MultilayerPerceptron([names["Typed"](D, K)]), compiled=compiled)
    row = by_name(p)[f"layer 1 Typed.{quantity}"]
    assert row.seconds > 0
    assert row.flops == (2 * 2 * N * D * K if compiled else None)
    assert p.phases()[row.name] == "feedforward"


def test_variables_without_an_equation_of_their_own_have_a_phase():
    p = trained(model("numpy", "SReLU;Linear"))
    assert {"layer 1 SReLULayer.L", "layer 1 SReLULayer.R"} <= by_name(p).keys()
    assert p.phases()["layer 1 SReLULayer.L"] == "backpropagate"


# -- the table ---------------------------------------------------------------------------------------


def some_rows() -> list[Row]:
    return [
        Row("ActivationLayer.DW", 1, 0.5, 0.5, 10, 2_000_000_000, 40_300_000),
        Row("ActivationLayer.Y", 1, 0.0, 0.0, 10),
        Row(REST, None, 0.25, 0.25, 10),
    ]


def test_the_table_has_a_line_a_row_with_rates_and_bars():
    head, first, second, last = table(some_rows(), width=110)
    assert head.split() == ["seconds", "share", "calls", "FLOP", "GFLOP/s", "bytes", "GB/s"]
    values = ["0.5000", "50.0", "%", "10", "2", "G", "4.0", "40.3", "M", "0.1"]
    assert first.split()[:-1] == ["layer", "1", "ActivationLayer.DW", *values]
    assert len(first) == 110
    assert second.split()[3:] == ["–", "0.0", "%", "10"]
    assert first.count("█") == pytest.approx(2 * last.count("█"), abs=1)


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_table_leaves_columns_out(width: int):
    lines = table(some_rows(), width)
    least = 26 + 9 + 8 + 2 + 10  # name, seconds, share, and a short bar
    assert max(map(len, lines)) <= max(width, least)
    assert "share" in lines[0]
