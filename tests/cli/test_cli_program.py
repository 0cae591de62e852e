"""`matgrad program`, and `matgrad train` compiled and by the equations."""

from __future__ import annotations

import json

import numpy as np
import pytest

import matgrad as mg
from cli_support import arrays, blobs, save_blobs, succeed
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.description import as_dictionary
from matgrad.specifications.models import create_model, set_optimizers
from matgrad.storage.models import load
from matgrad.storage.programs import load_program

SMALL = ("--layers", "ReLU;Linear", "--layer-sizes", "4;5;3")


def expected(rules=optimized, N: int = 100, dtype: str = "float32", **options):
    """The program that the command makes of SMALL."""
    M = create_model("ReLU;Linear", "4;5;3", optimizers="Momentum(0.9)").to(dtype=dtype)
    X, T = np.zeros((N, 4), dtype), np.zeros((N, 3), dtype)
    return rules(record_computation(make_step(M, mg.SoftmaxCrossEntropyLoss(), **options), M.state(), X, T))


def test_it_prints_the_equations():
    output = succeed("program", *SMALL)

    assert output == f"{expected()}\n\nfused: DW2 in W2.delta'; DW1 in W1.delta'\n"
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[0].startswith("given W1 5×4, b1 1×5, W1.delta 5×4")
    assert "Z1 = X W1ᵀ + 1_N b1" in lines
    assert "W2.delta' = 0.9·W2.delta - η·DYᵀ Y1" in lines
    assert not any(line.startswith("DX1 ") for line in lines)


def test_as_recorded_is_before_the_rules():
    output = succeed("program", *SMALL, "--as-recorded")
    assert output == str(expected(lambda program: program)) + "\n"
    assert "DW1" in output
    assert "fused" not in output
    assert "DW1 = " not in succeed("program", *SMALL)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--optimizers", "Adam", "--dropouts", "0.5"), "uniform(seed1, renewals1)"),
        (("--clip", "1"), "sqrt(rows_sum(columns_sum("),
        (("--layers", "ReLU;LogSoftmax"), "= -T / N"),
        (("--layers", "ReLU;BatchNormalization;Linear"), "running_mean2'"),
    ],
)
def test_options_show(options, found: str):
    output = succeed("program", *SMALL, *options)
    assert found in output


def test_json_is_the_program():
    output = succeed("program", *SMALL, "--batch-size", 7, "--dtype", "float64", "--clip", 2, "--json")
    assert json.loads(output) == as_dictionary(expected(N=7, dtype="float64", clip_norm=2.0))


def test_latex_is_a_document_of_the_same_equations(folder):
    output = succeed("program", *SMALL, "--latex", "step.tex")
    assert output.startswith(str(expected()))
    document = (folder / "step.tex").read_text()

    assert document.startswith(r"\documentclass")
    assert document.endswith("\\end{document}\n")
    assert (
        r"\Delta_{W_2}' &= 0.9 \cdot \Delta_{W_2} - \eta \cdot \mathsf{D}Y^\top \cdot Y_1 \\" in document.splitlines()
    )
    assert succeed("program", *SMALL, "--latex", "-") == document
    assert [path.name for path in folder.iterdir()] == ["step.tex"]


def test_a_saved_program_is_the_one_that_is_printed(folder):
    output = succeed("program", *SMALL, "--save", "step.safetensors", "--seed", 3, "--open")
    program, matrices = load_program(folder / "step.safetensors")

    assert output.startswith(f"{program}\n\nfused: ")
    mg.manual_seed(3)
    M = create_model("ReLU;Linear", "4;5;3", optimizers="Momentum(0.9)")
    for name, A in M.state().items():
        np.testing.assert_array_equal(matrices[name], A, err_msg=name)
    assert [path.name for path in folder.iterdir()] == ["step.safetensors"]


PLUGIN = """
import matgrad as mg

class {name}Layer(mg.Layer):
    keeps_size = True
    def feedforward(self, X):
        Y = {expression}
        self.X = X
        return Y
    def backpropagate(self, Y, DY):
        DX = DY / 2
        self.DX = DX
"""


def test_a_layer_of_a_plugin(folder):
    (folder / "half.py").write_text(PLUGIN.format(name="Half", expression="X / 2"))
    output = succeed("program", "--plugin", "half.py", "--layers", "ReLU;Half;Linear", "--layer-sizes", "4;5;3")
    assert "Y2 = Y1 / 2" in [" ".join(line.split()) for line in output.splitlines()]


# -- feedforward, and models in files ----------------------------------------------------------


def model_file(folder, *options: object) -> None:
    save_blobs(folder / "data.npz")
    layers = ("--layers", "ReLU;BatchNormalization;Linear", "--layer-sizes", "4;6;3", "--dropouts", 0.2)
    succeed("train", "--load-dataset", "data.npz", *layers, "--epochs", 2, *options, "--save-weights", "m.npz")


def test_feedforward_is_shown_alone():
    output = succeed("program", *SMALL, "--feedforward")
    assert output == str(create_model("ReLU;Linear", "4;5;3").program(feedforward=True)) + "\n"
    assert [" ".join(line.split()) for line in output.splitlines()][-1] == "Y = Y1 W2ᵀ + 1_N b2"


def test_the_overall_density_is_that_of_training(folder):
    save_blobs(folder / "data.npz")
    options = (*SMALL, "--densities", "ER(0.5)")
    assert "given W1 1×" in succeed("program", *options, "--save", "p")
    succeed("train", "--load-dataset", "data.npz", *options, "--epochs", 0, "--save-weights", "m.npz")
    found, expected = ([x.W.support for x in load(name).layers] for name in ("p", "m.npz"))
    assert all(S.is_same(R) for S, R in zip(found, expected, strict=True))


@pytest.mark.parametrize(("options", "form"), [((), ("--feedforward",)), (("--densities", "ER(0.5)"), ())])
def test_the_model_of_a_file(folder, options, form):
    """All of it comes from the file: layers, weights, supports, and how the inputs are scaled."""
    model_file(folder, *options)
    output = succeed("program", "--load-weights", "m.npz", *form, "--batch-size", 8, "--save", "p")
    again = succeed("program", "--load-weights", "p", *form, "--batch-size", 8, "--save", "q")

    expected, found = load("m.npz"), load("q")
    set_optimizers(expected, "Momentum(0.9)")
    assert output == again == str(expected.program(feedforward=bool(form), batch_size=8)) + "\n"
    assert found.information == expected.information
    np.testing.assert_array_equal(found.normalization.scale, expected.normalization.scale)
    X = blobs()["Xtest"]
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    for command in ("evaluate", "check"):
        data = ("--load-dataset", "data.npz") if command == "evaluate" else ()
        assert succeed(command, "q", *data).splitlines()[2:] == succeed(command, "m.npz", *data).splitlines()[2:]
    succeed("predict", "q", "q.csv", "--load-dataset", "data.npz")
    succeed("predict", "m.npz", "m.csv", "--load-dataset", "data.npz")
    assert (folder / "q.csv").read_text() == (folder / "m.csv").read_text()


# -- train -------------------------------------------------------------------------------------

TRAIN = ("train", "--load-dataset", "data.npz", "--layers", "ReLU;BatchNormalization;Linear", "--layer-sizes", "4;6;3")
TRAIN = (*TRAIN, "--epochs", 3, "--batch-size", 8, "--dropouts", 0.2, "--dtype", "float64")


@pytest.fixture
def data(folder) -> dict[str, np.ndarray]:
    return save_blobs(folder / "data.npz")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("backend_name", "options"), [("auto", ()), ("torch", ("--clip", 0.5, "--optimizers", "Adam", "--per-step"))]
)
def test_eager_training_is_compiled_training(backend_name: str, options):
    common = (*TRAIN, "--backend", backend_name, *options)
    runs = {"compiled": (), "eager": ("--eager",), "timer": ("--timer", "full"), "debug": ("--show", "batches")}
    for name, more in runs.items():
        succeed(*common, *more, "--save-weights", f"{name}.npz")
    compiled = arrays("compiled.npz")
    for name in ("eager", "timer", "debug"):
        found = arrays(f"{name}.npz")
        assert found.keys() == compiled.keys()
        for key, A in found.items():
            if A.dtype.kind == "f":
                # before batch normalization, gradients of biases are sums of rounding errors, which Adam scales up
                np.testing.assert_allclose(compiled[key], A, rtol=1e-8, atol=1e-7, err_msg=f"{name}, {key}")


@pytest.mark.usefixtures("data")
def test_the_timer_and_the_matrices_of_batches_are_shown():
    timed = succeed(*TRAIN, "--timer", "full")
    assert "layer 1 ActivationDropoutLayer.DW" in timed
    assert "layer 3 MomentumOptimizer.b" in timed
    shown = succeed(*TRAIN, "--show", "batches")
    for name in ("batch 1 layer 1 Z", "batch 1 layer 3 DW", "batch 8 layer 1 DX"):
        assert name in shown


@pytest.mark.usefixtures("data")
@pytest.mark.filterwarnings("always")
def test_a_layer_that_cannot_be_compiled_is_trained_with_one_line_about_it(folder):
    (folder / "branch.py").write_text(PLUGIN.format(name="Branch", expression="X if X[0, 0] > 0 else 2 * X"))
    common = (*TRAIN[:3], "--epochs", 2)
    output = succeed(*common, "--plugin", "branch.py", "--layers", "ReLU;Branch;Linear")
    assert output.count("training continues uncompiled") == 1
    assert "training continues uncompiled" not in succeed(*common, "--layers", "ReLU;Linear")
