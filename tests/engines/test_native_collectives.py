"""Collectives in the C++ core: what its callback is given, what later values read, and what is refused."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from engine_support import POOL
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import matgrad._native as _native
from matgrad.engines import native
from matgrad.engines.native import NativeExecutor
from matgrad.program import Program, Value, optimized
from matgrad.program.buffers import exchanged
from matgrad.program.description import as_dictionary
from matgrad.program.rules import with_separate_exchange
from matgrad.sparse.support import Support
from program_support import MEANING, STATE, numbers, programs
from support import PATIENCE

Arrays = dict[str, np.ndarray]

# -- two ranks that have the same, but for the sign in a gather: what collectives and sparse products mean -----------

COLLECTIVES: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda shape, X: X + X,
    "all_max": lambda shape, X: np.maximum(X, 1),
    "all_gather_rows": lambda shape, X: np.vstack([X, -X]),
    "all_gather_columns": lambda shape, X: np.hstack([X, -X]),
    "reduce_scatter_rows": lambda shape, X: (X + X)[: shape[0]],
    "reduce_scatter_columns": lambda shape, X: (X + X)[:, : shape[1]],
    "take_rows": lambda shape, X: X[: shape[0]],
    "take_columns": lambda shape, X: X[:, : shape[1]],
    "send": lambda shape, X: X,
    "receive": lambda shape, X: X + X,
}


def dense(S: Support, w: np.ndarray) -> np.ndarray:
    W = np.zeros(S.shape)
    W[np.repeat(np.arange(S.shape[0]), np.diff(S.starts)), S.columns] = w[0]
    return W


SPARSE: dict[str, Callable[..., Any]] = {
    "sparse_product": lambda shape, S, w, B: dense(S, w) @ B,
    "sparse_transposed_product": lambda shape, S, w, B: dense(S, w).T @ B,
    "sampled_product": lambda shape, S, A, B: (A @ B.T)[dense(S, np.ones((1, S.nnz))) > 0].reshape(shape),
}


def meanings(program: Program, inputs: Arrays) -> dict[Value, Any]:
    """Every value of the program, by its definition."""
    known: dict[Value, Any] = {}
    for value in program.values:
        if value.kind == "source":
            known[value] = {"input": inputs.get(value.name), "number": value.number}.get(value.operation, value.support)
        else:
            meaning = (MEANING | SPARSE | COLLECTIVES)[value.operation]
            known[value] = np.array(meaning(value.shape, *(known[x] for x in value.operands)))
    return known


class Alike:
    """Stands for an `Exchange`: keeps what it is given, and does what collectives mean."""

    def __init__(self, program: Program) -> None:
        self.names = exchanged(program)
        self.arrays = {name: np.full(value.shape, np.nan) for value, name in self.names.items()}
        self.seen: list[tuple[Value, np.ndarray]] = []

    def perform(self, value: Value) -> None:
        X = self.arrays[self.names[value.operands[0]]].copy()
        self.seen.append((value, X))
        self.arrays[self.names[value]][...] = COLLECTIVES[value.operation](value.shape, X)


def check(program: Program, state: Arrays, given: Arrays, *, times: int, rtol: float) -> None:
    """Run the program several times: all operands are complete, the results are read, and the order is that of it."""
    found, exchange = {name: X.copy() for name, X in state.items()}, Alike(program)
    executor = NativeExecutor(program, None, found, exchange)
    collectives = [value for value in program.values if value.kind == "collective"]
    for run in range(times):
        known = meanings(program, state | given)
        outputs = found | executor.execute(**given)
        assert [value for value, _ in exchange.seen] == collectives
        for value, X in exchange.seen:
            np.testing.assert_allclose(X, known[value.operands[0]], rtol, rtol, err_msg=f"{value.operation}, run {run}")
        for name, value in program.outputs.items():
            np.testing.assert_allclose(outputs[name], known[value], rtol, rtol, err_msg=f"{name}, run {run}")
        state = {name: known[program.outputs[name]] if name in program.outputs else X for name, X in state.items()}
        exchange.seen.clear()


# -- large matrices, which threads share --------------------------------------------------------------------

N, D, K = 300, 150, 120


class Line:
    """Values one after another."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.inputs = {name: Value("input", (), shape, name=name) for name, shape in inputs.items()}
        self.order = 0

    def __call__(self, operation: str, shape: tuple[int, ...], *operands: Value, **details: Any) -> Value:
        self.order += 1
        return Value(operation, operands, shape, order=self.order, **details)

    def program(self, **outputs: Value) -> Program:
        return with_separate_exchange(optimized(Program(self.inputs, outputs)))


def dense_program() -> Program:
    """Collectives after a product with operations on its elements, before and after sums, and between two others."""
    line = Line(X=(N, D), W=(K, D), b=(1, K), eta=())
    X, W, b, eta = line.inputs.values()
    A = line("add", (N, K), line("matmul", (N, K), X, line("transpose", (D, K), W)), line("row_repeat", (N, K), b))
    G = line("gate", (N, K), A, A)
    largest = line("all_max", (1, K), line("columns_max", (1, K), G))
    H = line("subtract", (N, K), G, line("row_repeat", (N, K), largest))
    F = line("all_gather_rows", (2 * N, K), H)
    P = line("take_rows", (N, K), line("negative", (2 * N, K), F))
    sent = line("send", (K, D), line("matmul", (K, D), line("transpose", (K, N), P), X))
    total = line("all_reduce", (), line("elements_sum", (), line("exp", (N, K), H)))
    part = line("reduce_scatter_columns", (K, D // 2), line("tanh", (K, D), W))
    received = line("receive", (K, D), sent)
    Y = line("all_gather_columns", (K, 2 * (D // 2)), line("divide", (K, D // 2), part, total))
    updated = line("add_scaled", (K, D), line("add", (K, D), W, Y), eta, line("tanh", (K, D), received))
    sums = line("columns_sum", (1, K), line("reduce_scatter_rows", (N, K), F))
    return line.program(W=updated, b=line("add_scaled", (1, K), b, eta, sums), H=line("transpose", (K, N), H))


def sparse_program() -> Program:
    """Collectives between sparse products, where threads form teams, each with its own examples."""
    S = Support.random(K, D, 900, np.random.default_rng(1))
    line = Line(X=(N, D), w=(1, S.nnz), b=(K, 1), eta=())
    X, w, b, eta = line.inputs.values()
    support = line("support", (K, D, S.nnz), dtype="int32", name="S", support=S)
    x = line("transpose", (D, N), X)
    Z = line("sparse_product", (K, N), support, w, x)
    G = line("gate", (K, N), line("add", (K, N), Z, line("column_repeat", (K, N), b)), Z)
    mean = line("divide", (K, 1), line("all_reduce", (K, 1), line("rows_sum", (K, 1), G)), number(line, 2 * N))
    R = line("subtract", (K, N), G, line("column_repeat", (K, N), mean))
    C = line("all_max", (K, N), R)  # of all examples
    Q = line("sparse_transposed_product", (D, N), support, w, C)
    T = line("take_columns", (D, N), line("all_gather_columns", (D, 2 * N), Q))
    sent = line("send", (1, S.nnz), line("sampled_product", (1, S.nnz), support, C, T))
    b2 = line("add_scaled", (K, 1), b, eta, line("rows_sum", (K, 1), line("tanh", (K, N), R)))
    w2 = line("add_scaled", (1, S.nnz), w, eta, line("tanh", (1, S.nnz), line("receive", (1, S.nnz), sent)))
    return line.program(w=w2, b=b2, Y=line("transpose", (N, K), line("hadamard", (K, N), C, R)))


def number(line: Line, x: float) -> Value:
    return line("number", (), number=x)


def inputs_of(program: Program) -> Arrays:
    rng = np.random.default_rng(2)
    arrays = {name: np.array(rng.normal(size=value.shape)) for name, value in program.inputs.items()}
    return arrays | {"eta": np.array(0.01)}


PROGRAMS = {"dense": dense_program, "sparse": sparse_program}


@pytest.fixture(params=[1, 3], ids="{} threads".format)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(native, "threads", lambda: request.param)
    return request.param


@pytest.mark.parametrize("name", PROGRAMS)
def test_collectives_are_given_complete_operands_and_their_results_are_read(name: str, threads: int):
    program = PROGRAMS[name]()
    assert len([value for value in program.values if value.kind == "collective"]) >= 6
    arrays = inputs_of(program)
    given = {name: arrays.pop(name) for name in ("X", "eta")}
    check(program, arrays, given, times=10, rtol=1e-10)


def with_collectives(program: Program, choices: list[str]) -> Program:
    """The program in which some values are replaced by collectives of them."""
    new: dict[Value, Value] = {}
    for i, value in enumerate(program.values):
        operands = tuple(new[x] for x in value.operands)
        new[value] = value
        if value.kind != "source":
            new[value] = Value(value.operation, operands, value.shape, order=2 * i)
        for operation in choices[i % len(choices)].split():
            new[value] = Value(operation, (new[value],), value.shape, order=2 * i + 1)
    return Program(program.inputs, {name: new[value] for name, value in program.outputs.items()})


@settings(deadline=None, derandomize=True, database=None, max_examples=50)
@given(
    program=programs(exact=True),
    choices=st.lists(st.sampled_from(["", "", "all_reduce", "all_max", "send receive"]), min_size=1, max_size=7),
    seed=st.integers(0, 9),
)
def test_random_programs_with_collectives(program: Program, choices: list[str], seed: int):
    found = with_separate_exchange(optimized(with_collectives(program, choices)))
    state, given = numbers(seed, exact=True)
    known = meanings(found, state | given)
    assume(all(np.abs(X).max() < 2.0**23 for X in known.values()))  # so that the second run is exact, too
    check(found, {name: state[name] for name in STATE}, given, times=2, rtol=0)


# -- the callback -------------------------------------------------------------------------------------------


def small(operation: str = "all_reduce") -> Program:
    """y = 1 + c(2·X) for a collective c of a 2×3 matrix."""
    line = Line(X=(2, 3), eta=())
    one = line("full", (2, 3), number(line, 1))
    doubled = line("scale", (2, 3), number(line, 2), line.inputs["X"])
    return line.program(y=line("add", (2, 3), one, line(operation, (2, 3), doubled)))


X = np.arange(6.0).reshape(2, 3)
ETA = np.array(0.1)


def executor_of(program: Program, perform: Callable[[Value], object] | None = None) -> tuple[NativeExecutor, Alike]:
    exchange = Alike(program)
    if perform:
        exchange.perform = perform  # type: ignore[method-assign, assignment]
    return NativeExecutor(program, None, {}, exchange), exchange


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_an_exception_ends_the_run_and_the_next_one_is_as_ever(kind: type[BaseException], threads: int):
    program = small()
    meaning, failures = Alike(program), [kind("lost"), None, kind("again"), None]

    def perform(value: Value) -> None:
        if failure := failures.pop(0):
            raise failure
        meaning.perform(value)

    executor, exchange = executor_of(program, perform)
    meaning.arrays = exchange.arrays
    for message in ("lost", "again"):
        with pytest.raises(kind, match=message):
            executor.execute(X=X, eta=ETA)
        np.testing.assert_array_equal(executor.execute(X=X, eta=ETA)["y"], 4 * X + 1)
    assert executor.runs == 2


def test_an_exception_is_not_kept():
    class Lost(Exception):
        pass

    def perform(value: Value) -> None:
        raise Lost

    executor, _ = executor_of(small(), perform)
    with pytest.raises(Lost) as raised:
        executor.execute(X=X, eta=ETA)
    kept = weakref.ref(raised.value)
    del raised
    gc.collect()
    assert kept() is None


def test_subnormal_numbers_are_kept_in_the_callback_alone():
    tiny, products = np.full((2, 3), 2.0**-1070), []
    line = Line(X=(2, 3))
    flushed = line.program(y=line("scale", (2, 3), number(line, 3), line("all_reduce", (2, 3), line.inputs["X"])))
    executor, exchange = executor_of(
        flushed, lambda value: (products.append(tiny * 0.5), np.copyto(exchange.arrays["exchange 0"], tiny))
    )
    Y = executor.execute(X=X)["y"]
    assert (products[0] == 2.0**-1071).all()
    assert (Y == 0).all()


def test_without_a_callback_or_its_memory_nothing_runs():
    program = small()
    core = _native.Executor(json.dumps(as_dictionary(program)), POOL)
    assert core.collective is None
    y, own = np.full((2, 3), 7.0), np.zeros((2, 3))
    core.collective = lambda i: None
    with pytest.raises(ValueError, match="the input exchange 0 is not bound"):
        core.run({"X": X, "eta": ETA}, {"y": y})
    with pytest.raises(ValueError, match="exchange 0: expected an array that can be changed"):
        core.bind("exchange 0", np.broadcast_to(0.0, (2, 3)))
    core.bind("exchange 0", own)
    core.collective = None
    with pytest.raises(ValueError, match="the program has collectives: expected a function that exchanges matrices"):
        core.run({"X": X, "eta": ETA}, {"y": y})
    assert core.runs == 0
    assert (y == 7).all()
    assert (own == 0).all()
    core.collective = own.__imul__  # by the index of the value, which is that of the description
    core.run({"X": X, "eta": ETA}, {"y": y})
    (index,) = (i for i, line in enumerate(as_dictionary(program)["values"]) if line["operation"] == "all_reduce")
    np.testing.assert_array_equal(y, index * 2 * X + 1)


@pytest.mark.timeout(PATIENCE)
def test_ranks_can_be_threads_of_one_process(threads: int):
    program, meeting = small(), Barrier(2, timeout=PATIENCE)

    def perform(value: Value) -> None:
        if meeting.wait() == 0:  # one of them adds, when both have come, for both
            first, second = (exchange.arrays["exchange 0"] for _, exchange in ranks)
            first += second
            second[...] = first
        meeting.wait()

    ranks = [executor_of(program, perform) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rank: ranks[rank][0].execute(X=X + rank, eta=ETA)["y"], range(2)))
    for Y in found:
        np.testing.assert_array_equal(Y, 2 * X + 2 * (X + 1) + 1)


# -- epochs -------------------------------------------------------------------------------------------------


def training_program() -> Program:
    """b' = b + η·(the sum over all ranks and rows of X ⊙ T), for batches of two rows."""
    line = Line(unread=(1, 1), X=(2, 3), T=(2, 3), b=(1, 3), eta=())
    _, X, T, b, eta = line.inputs.values()
    own = line("columns_sum", (1, 3), line("hadamard", (2, 3), X, T))
    return line.program(b=line("add_scaled", (1, 3), b, eta, line("receive", (1, 3), line("send", (1, 3), own))))


def epoch(rows: int = 10) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    X, T = rng.normal(size=(rows, 3)), rng.normal(size=(rows, 3))
    order = rng.permutation(rows)
    return {"X": X, "T": T, "rates": np.linspace(0.1, 0.2, rows // 2), "order": order, "labels": None}


def test_epochs_call_collectives_in_every_batch(threads: int):
    program, batches, b = training_program(), epoch(), np.zeros((1, 3))
    exchange = Alike(program)
    executor = NativeExecutor(program, None, {"b": b, "unread": np.zeros((1, 1))}, exchange)
    polled: list[int] = []
    executor.core.train(**batches, poll=polled.append, every_batch=True)
    assert polled == [1, 2, 3, 4, 5]
    assert [value.operation for value, _ in exchange.seen] == ["send", "receive"] * 5
    pairs = batches["order"].reshape(5, 2)
    sums = [(batches["X"][rows] * batches["T"][rows]).sum(axis=0, keepdims=True) for rows in pairs]
    for (_, sent), expected in zip(exchange.seen[::2], sums, strict=True):
        np.testing.assert_allclose(sent, expected, 1e-14)
    expected = sum(rate * 2 * x for rate, x in zip(batches["rates"], sums, strict=True))
    np.testing.assert_allclose(b, expected, 1e-14)


def test_an_exception_ends_an_epoch_between_two_states():
    program, batches, b = training_program(), epoch(), np.zeros((1, 3))
    exchange, polled = Alike(program), list[int]()
    executor = NativeExecutor(program, None, {"b": b, "unread": np.zeros((1, 1))}, exchange)
    perform = exchange.perform

    def failing(value: Value) -> None:
        if len(exchange.seen) == 5:  # the third batch receives
            raise ConnectionError("rank 1 is gone")
        perform(value)

    exchange.perform = failing  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="rank 1 is gone"):
        executor.core.train(**batches, poll=polled.append, every_batch=True)
    assert polled == [1, 2]
    assert executor.runs == 2
    after_two = b.copy()
    exchange.perform = perform  # type: ignore[method-assign]
    b[...] = 0
    executor.core.train(**batches | {"rates": batches["rates"][:2]})
    np.testing.assert_array_equal(b, after_two)


# -- what is refused ----------------------------------------------------------------------------------------


Content = dict[str, Any]


def index(content: Content, operation: str) -> int:
    """The first value with this operation."""
    return next(i for i, line in enumerate(content["values"]) if line["operation"] == operation)


def changed(name: str, **changes: Any) -> Callable[[Content], object]:
    return lambda content: content["values"][index(content, name)].update(changes)


def unnamed(content: Content) -> None:
    content["buffers"][content["values"][index(content, "all_reduce")]["buffer"]]["name"] = ""


def elsewhere(content: Content) -> None:
    content["buffers"].append({"shape": [2, 3], "dtype": "float64", "name": "exchange 1"})
    changed("all_reduce", buffer=len(content["buffers"]) - 1)(content)


def reading(reader: str, position: int, operation: str) -> Callable[[Content], object]:
    """The first `reader` reads the first value with that operation."""

    def change(content: Content) -> None:
        content["values"][index(content, reader)]["operands"][position] = index(content, operation)

    return change


NAMES = "expected its operand and its result in buffers with names"
MALFORMED: dict[str, tuple[Program, Callable[[Content], object], str]] = {
    "an unnamed buffer": (small(), unnamed, NAMES),
    "a view": (small(), reading("all_reduce", 0, "full"), NAMES),
    "another buffer": (small(), elsewhere, "all_reduce: expected its result in the buffer of its operand"),
    "in place": (small(), changed("all_reduce", operation="take_rows"), "it overwrites what it reads"),
    "a reader of what is overwritten": (small(), reading("add", 1, "scale"), "which has been overwritten"),
    "other columns": (
        small(), changed("all_reduce", operation="all_gather_rows", shape=[4, 4]), "all_gather_rows: the shapes do not",
    ),
    "a buffer of another size": (
        small(), changed("all_reduce", operation="all_gather_rows", shape=[4, 3]), "its buffer has a different shape",
    ),
    "counters": (small("send"), changed("send", dtype="int64"), "expected a matrix of float32 or float64"),
    "rows that are not padded": (
        sparse_program(), reading("sparse_transposed_product", 2, "all_max"), "only a copy of it",
    ),
    "rows that are padded": (
        sparse_program(), reading("all_max", 0, "sparse_product"), NAMES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_unsound_collectives_are_refused(case: str):
    program, change, message = MALFORMED[case]
    content = as_dictionary(program)
    _native.Executor(json.dumps(content), POOL)
    change(content)
    with pytest.raises(ValueError, match=message):
        _native.Executor(json.dumps(content), POOL)
