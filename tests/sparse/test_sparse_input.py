"""Sparse examples X: training, evaluation and prediction are those of the same examples as a dense matrix."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

import matgrad as mg
from matgrad.callbacks import Callback
from matgrad.datasets import Normalization
from matgrad.inspection.profiling import profile
from matgrad.layers.state import supports_of
from matgrad.optimizers import OPTIMIZERS
from matgrad.sparse.matrix import SparseMatrix
from support import assert_close

BACKENDS = ("numpy", "torch", "native")
N, D, K = 57, 40, 5


def examples(dtype: str = "float64", seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Sparse examples, with an empty first, an empty last and a full row, two empty columns, and stored zeros."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.1)
    A[[0, N - 1]], A[3] = 0, 1.5
    A[:, [0, 7]] = 0
    X = sp.csr_array(A.astype(dtype))
    X.data[5] = 0
    return X, rng.integers(0, K, N)


def model(backend: str, optimizer: str = "Momentum(0.9)", dtype: str = "float64", **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(3)
    layers = options.pop("layers", "ReLU;Linear")
    sizes = options.pop("sizes", f"{D};11;{K}")
    M = mg.create_model(layers, sizes, **options)
    M.set_optimizer(optimizer)
    return M.to(backend, dtype=dtype)


def assert_equal_states(found: mg.MultilayerPerceptron, expected: mg.MultilayerPerceptron, tolerance: float) -> None:
    for name, X in expected.state().items():
        if not name.endswith(".support"):
            scale = float(np.abs(np.asarray(X)).max())
            assert_close(
                found.state()[name],
                np.asarray(X),
                tolerance=tolerance,
                noise=max(tolerance * scale, 1e-12),
                context=name,
            )


def assert_trains_as_dense(backend: str, X, t, tolerance: float = 1e-11, fit: dict | None = None, **options) -> None:
    """Three epochs with shuffled batches of 10, the last of which is smaller."""
    states = []
    for data in (X.toarray(), X):
        M = model(backend, **options)
        mg.manual_seed(1)
        M.fit(data, t, **({"batch_size": 10, "epochs": 3, "learning_rate": 0.1, "seed": 2} | (fit or {})))
        states.append(M)
    dense, sparse = states
    assert_equal_states(sparse, dense, tolerance)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(sparse.history[name], dense.history[name], rtol=max(tolerance, 1e-12))


# -- the same as with dense examples ------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", BACKENDS)
def test_every_optimizer_trains_as_with_dense_examples(name: str, optimizer: str):
    X, t = examples()
    specification = {"Adam": "Adam(epsilon=1e-3)", "AdamW": "AdamW(epsilon=1e-3)"}.get(optimizer, optimizer)
    assert_trains_as_dense(name, X, t, optimizer=specification)


CASES = {
    "float32": ({"dtype": "float32", "tolerance": 2e-5}, {}),
    "weight decay": ({"optimizer": "Momentum(0.9, weight_decay=0.1)"}, {}),
    "dropout": ({"dropouts": "0.3;0.2"}, {}),
    "sparse weights and dropout": ({"densities": "0.3;1", "dropouts": "0.3;0"}, {}),
    "batch normalization": ({"layers": "Linear;BatchNormalization;ReLU;Linear", "sizes": f"{D};9;8;{K}"}, {}),
    "one layer": ({"layers": "Linear", "sizes": f"{D};{K}"}, {}),
    "many outputs": ({"sizes": f"{D};150;{K}"}, {}),
    "batches of one": ({}, {"batch_size": 1, "epochs": 1}),
    "clipped": ({}, {"clip_norm": 0.1}),
    "equations one by one": ({}, {"compiled": False}),
    "validation": ({}, {"validation": 0.2, "early_stopping": 2}),
    "a rate per step": ({}, {"learning_rate": "StepBased(0.1, 0.5, 3)", "per_step": True}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", BACKENDS)
def test_training_is_that_of_dense_examples(name: str, case: str):
    options, fit = CASES[case]
    X, t = examples(options.get("dtype", "float64"))
    assert_trains_as_dense(name, X, t, fit=fit, **options)


@pytest.mark.parametrize("count", [1, 3])
def test_the_core_trains_the_same_with_any_number_of_threads(count: int, monkeypatch):
    monkeypatch.setattr("matgrad.engines.native.threads", lambda: count)
    X, t = examples()
    for options in ({"sizes": f"{D};150;{K}"}, {"densities": "0.3;0.5"}, {"optimizer": "GradientDescent"}):
        assert_trains_as_dense("native", X, t, **options)
    rng = np.random.default_rng(5)
    many = sp.random_array((250, 300), density=0.3, rng=rng, format="csr")  # whose batches the threads gather together
    options = {"sizes": f"300;20;{K}", "fit": {"batch_size": 100, "learning_rate": 0.01}}
    assert_trains_as_dense("native", many, rng.integers(0, K, 250), tolerance=1e-10, **options)


@pytest.mark.parametrize("name", BACKENDS)
def test_duplicates_are_added_up_and_columns_need_no_order(name: str):
    """As SciPy reads them; the user's matrix stays as it is."""
    X, t = examples()
    data, indices, indptr = [], [], [0]
    for i in range(N):
        row = slice(X.indptr[i], X.indptr[i + 1])
        columns = X.indices[row][::-1].tolist()
        indices += columns + columns[:1]
        data += X.data[row][::-1].tolist() + [0.25] * len(columns[:1])
        indptr.append(len(indices))
    A = sp.csr_array((np.array(data), np.array(indices), np.array(indptr)), shape=X.shape)
    before = A.indices.copy()
    assert_trains_as_dense(name, A, t)
    np.testing.assert_array_equal(A.indices, before)


@pytest.mark.parametrize("name", BACKENDS)
def test_predictions_and_scores_are_those_of_dense_examples(name: str):
    X, t = examples()
    M = model(name)
    for A in (X, X[:1], X.tocsc(), sp.coo_matrix(X), sp.vstack([X] * 30).tocsr()):  # the last in several batches
        assert_close(M.predict(A), M.predict(A.toarray()), tolerance=1e-12, context=name)
    assert M.score(X, t) == M.score(X.toarray(), t)
    assert_close(model(name, dtype="float32").predict(X), M.predict(X).astype(np.float32), tolerance=1e-5)


def test_integers_become_floats():
    X, t = examples()
    A = sp.csr_array((X != 0).astype("int64"))
    for backend in BACKENDS:
        assert_trains_as_dense(backend, A, t, tolerance=1e-4, dtype="float32")


def test_one_step_serves_dense_and_sparse_batches(backend_of_sparse: str):
    """Also after each other, though W is stored transposed for sparse ones."""
    X, t = examples()
    loaders = [mg.DataLoader(A, t, 19).to(backend_of_sparse) for A in (X.toarray(), X)]
    M, E = model(backend_of_sparse), model(backend_of_sparse)
    step, expected = (mg.compile_step(m, mg.SoftmaxCrossEntropyLoss()) for m in (M, E))
    step.load(M.state())
    expected.load(E.state())
    for i in (0, 1, 1, 0, 1):
        for j in (0, 19, 38):
            step(*loaders[i].batch(j), 0.1)
            expected(*loaders[0].batch(j), 0.1)
    M.load_state(step.state())
    E.load_state(expected.state())
    assert_equal_states(M, E, 1e-11)


@pytest.fixture(params=BACKENDS)
def backend_of_sparse(request) -> str:
    return request.param


# -- how it runs ----------------------------------------------------------------------------------


def test_nothing_is_recorded_again_for_a_batch(backend_of_sparse: str, monkeypatch):
    """Their numbers of elements differ: there is one program for full batches, and one for the last."""
    recorded = []
    original = mg.engines.program.record_computation
    monkeypatch.setattr(
        "matgrad.engines.program.record_computation", lambda *args: recorded.append(1) or original(*args)
    )
    X, t = examples()
    model(backend_of_sparse).fit(X, t, batch_size=10, epochs=4, statistics=False)
    assert len(recorded) == 2


def test_only_the_features_that_occur_are_read_and_written():
    """The step of gradient descent has no operation on a K×D matrix besides the update itself."""
    X, t = examples()
    M = model("numpy", "GradientDescent")
    step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    loader = mg.DataLoader(X, t, 10)
    program = step.prepare(*loader.batch(0)).program
    large = [value.operation for value in program.instructions if sorted(value.shape) == [11, D]]
    assert large == ["transposed_sum"]
    assert program.inputs["1.Wᵀ"].shape == (D, 11)
    assert "Xᵀ DZ1" in str(program)


def test_the_loader_holds_the_elements_and_gives_sparse_batches():
    X, t = examples()
    loader = mg.DataLoader(X, t, 10, shuffle=True, seed=4)
    assert (loader.size, len(loader)) == (N, 6)
    order = np.random.default_rng(4).permutation(N)
    for i, (B, _) in enumerate(loader):
        assert isinstance(B, SparseMatrix)
        np.testing.assert_array_equal(B.to_dense(), X.toarray()[order[10 * i : 10 * i + 10]])
    in_order = [B.to_dense() for B, _ in loader.in_order(25)]
    np.testing.assert_array_equal(np.concatenate(in_order), X.toarray())


def test_callbacks_and_profiles_take_sparse_batches(backend_of_sparse: str):
    class Look(Callback):
        wants_batches = True
        shapes: list

        def batch(self, run):
            assert isinstance(run.X, SparseMatrix)
            shapes.append(run.X.shape)

    shapes: list[tuple[int, int]] = []
    X, t = examples()
    M = model(backend_of_sparse)
    with profile(M) as p:
        M.fit(X, t, batch_size=30, epochs=1, callbacks=[Look(), mg.callbacks.GradientCheck(1e-6)])
    assert shapes == [(30, D), (27, D)]
    assert p.batches == 2


@pytest.mark.parametrize("method", ["RigL", "SET", "SNIP"])
def test_methods_of_sparse_training_choose_the_same_weights(backend_of_sparse: str, method: str):
    X, t = examples()
    models = []
    for data in (X.toarray(), X):
        is_dense = method == "SNIP"
        M = model(backend_of_sparse, **({} if is_dense else {"densities": "0.3;0.5"}))
        callback = mg.SNIP(0.3) if is_dense else getattr(mg, method)(every=2)
        M.fit(data, t, batch_size=10, epochs=2, seed=2, learning_rate=0.1, callbacks=[callback])
        models.append(M)
    supports = [{name: S.flat() for name, S in supports_of(M.state()).items()} for M in models]
    assert supports[0]
    for name, flat in supports[0].items():
        np.testing.assert_array_equal(flat, supports[1][name], err_msg=name)
    assert_equal_states(models[1], models[0], 1e-9)


MEMORY = """
    import resource
    import numpy as np, scipy.sparse as sp
    import matgrad as mg

    M = mg.create_model("ReLU;Linear", "50000;8;2")
    M.set_optimizer("GradientDescent")
    M.to("{backend}")
    tiny = sp.random_array((100, 50_000), density=1e-4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    M.fit(tiny, np.arange(100) % 2, epochs=1)  # what is imported and compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(1)
    N, per_row = 200_000, 5
    columns = np.sort(rng.integers(0, 50_000, (N, per_row)), axis=1).reshape(-1)
    X = sp.csr_array((np.ones(N * per_row, np.float32), columns, np.arange(N + 1) * per_row), shape=(N, 50_000))
    t = (columns[::per_row] < 10_000).astype(np.int64)
    M.fit(X, t, epochs=1, batch_size=1000, validation=0.1, learning_rate=1.0)
    assert M.predict(X).shape == (N, 2)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_no_dense_copy_of_the_data_is_made(backend_of_sparse: str):
    """It would take 40 GB; the elements take 12 MB, and a batch of all features 200 MB."""
    code = textwrap.dedent(MEMORY.format(backend=backend_of_sparse))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 180, f"{backend_of_sparse}: {result.stdout} MB"


# -- normalization ----------------------------------------------------------------------------------


def test_unit_normalization_scales_without_a_shift():
    X, t = examples()
    normalization = Normalization.of("unit", X)
    largest = np.abs(X.toarray()).max(axis=0)
    expected = X.toarray() / np.where(largest == 0, 1, largest)
    np.testing.assert_allclose(normalization.apply(X).toarray(), expected, rtol=1e-6)
    assert not normalization.offset.any()
    M = model("numpy")
    M.normalization = normalization
    assert_close(M.predict(X), M.predict(X.toarray()), tolerance=1e-6)
    assert np.isfinite(M.fit(X, t, epochs=1)["loss"]).all()


def test_a_shift_is_refused():
    X, _ = examples()
    with pytest.raises(ValueError, match="'standard' would make a sparse X dense; expected 'unit' or 'none'"):
        Normalization.of("standard", X)
    M = model("numpy")
    M.normalization = Normalization.of("standard", X.toarray())
    with pytest.raises(ValueError, match="the normalization standard shifts the inputs, which would make a sparse X"):
        M.predict(X)


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Batch", "Layer", "RMS"])
def test_a_normalization_cannot_come_first(backend_of_sparse: str, kind: str):
    X, t = examples()
    M = mg.create_model(f"{kind}Normalization;Linear", [D, K]).to(backend_of_sparse)
    for use in (lambda: M.fit(X, t), lambda: M.predict(X), lambda: M.score(X, t)):
        with pytest.raises(TypeError, match=rf"layer 1, {kind}NormalizationLayer\(40, 40\), cannot take a sparse X"):
            use()


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "found nan, expected a finite number"), (np.inf, "found inf, expected a finite")]
)
def test_numbers_that_are_not_finite_are_named(value: float, message: str):
    X, t = examples()
    X.data[20] = value
    row, column = np.argwhere(~np.isfinite(X.toarray()))[0]
    for use in (lambda: model("numpy").fit(X, t), lambda: mg.DataLoader(X, t), lambda: model("numpy").score(X, t)):
        with pytest.raises(ValueError, match=rf"^X, row {row}, column {column}: {message}"):
            use()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda M, X, t: M.fit(X, t[1:]), "X has 57 rows and T has 56: expected one target per row"),
        (lambda M, X, t: M.predict(X[:, 1:]), "expected a batch X of size N × 40, found 57 × 39"),
        (lambda M, X, t: M.fit(X.astype(complex), t), "X: found complex128, expected numbers"),
        (lambda M, X, t: M.fit(sp.coo_array(np.ones(D)), t), r"X: expected a matrix .*row, found shape \(40,\)"),
        (lambda M, X, t: M.fit(X[:0], t[:0]), r"X: expected a matrix with at least one row, found shape \(0, 40\)"),
    ],
)
def test_wrong_sizes_and_types_are_refused(use, message: str):
    with pytest.raises(ValueError, match=message):
        use(model("numpy"), *examples())


class Doubled(mg.LinearLayer):
    """Z = 2 X Wᵀ + 1_N b, computed from 2 X."""

    def feedforward(self, X):
        return super().feedforward(2 * X)


def test_a_layer_that_computes_with_the_elements_runs_uncompiled(backend_of_sparse: str):
    X, t = examples()
    states = []
    for data in (X.toarray(), X):
        mg.manual_seed(3)
        M = mg.MultilayerPerceptron([Doubled(D, K)]).to(backend_of_sparse, dtype="float64")
        if data is X:
            with pytest.warns(UserWarning, match="scale depends on how many elements a sparse X has"):
                M.fit(data, t, epochs=2, seed=1)
        else:
            M.fit(data, t, epochs=2, seed=1)
        states.append(M)
    assert_equal_states(states[1], states[0], 1e-11)


@pytest.mark.parametrize("engine", ["numpy", "torch", "native"])
def test_batches_without_any_element(engine: str):
    """Only biases learn from them."""
    found = []
    for X in (sp.csr_array((20, 9), dtype=np.float32), np.zeros((20, 9), dtype=np.float32)):
        mg.manual_seed(0)
        M = mg.create_model("ReLU;Linear", [9, 8, 3], optimizers="Momentum(0.9)").to(engine)
        M.fit(X, np.arange(20) % 3, epochs=2, batch_size=8, shuffle=False)
        found.append(M.predict(X))
    np.testing.assert_allclose(*found, rtol=1e-5)
