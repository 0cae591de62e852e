"""`matgrad bench gpu`, on the CPU: its tools train the same, its record has every part, and failures are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli_support import run, succeed
from matgrad.bench.experiments import gpu
from matgrad.bench.experiments.gpu import Plan, Run, run_gpu
from matgrad.bench.experiments.gpu_sparse import LayerPlan
from matgrad.bench.experiments.gpu_wide import WideNetwork
from matgrad.bench.measuring.problems import generated, initial_parameters
from matgrad.bench.reports import plots, tables
from matgrad.bench.reports.gpu_tables import gpu_failures
from matgrad.bench.reports.record import record
from matgrad.bench.tools.registry import ALL_TOOLS, FIT, GPU_GRAPH, GPU_NATIVE, GPU_OWN, STEPS
from matgrad.bench.tools.training_tool import Setting
from matgrad.sparse.support import Support

SETTING = Setting((12, 9, 7, 3), batch_size=10, device="cpu")


def trained(name: str, batches: int = 4):
    """The parameters after these batches, the second time that the tool starts."""
    data, initial = generated(12, 3, batches * 10, 1), initial_parameters(SETTING, 0)
    tool = ALL_TOOLS[name].create(SETTING)
    tool.load(data.Xtrain, data.Ttrain)
    for _ in range(2):
        tool.start(initial)
        seconds = tool.train(batches)
    return tool.parameters(), seconds


def test_native_training_gives_what_the_equations_give():
    found, expected = (trained(name)[0] for name in (GPU_NATIVE, GPU_OWN))
    for (W, b), (V, c) in zip(found, expected, strict=True):
        np.testing.assert_allclose(W, V, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(b, c, rtol=1e-5, atol=1e-6)


def test_fit_tells_the_seconds_of_its_last_epoch():
    _, seconds = trained(FIT)
    assert seconds is not None
    assert seconds > 0


def test_bare_steps_train():
    data, initial = generated(12, 3, 40, 1), initial_parameters(SETTING, 0)
    tool = ALL_TOOLS[STEPS].create(SETTING)
    tool.load(data.Xtrain, data.Ttrain)
    tool.start(initial)
    tool.prepare()
    assert not np.allclose(tool.parameters()[0][0], initial[0][0])


def test_the_ways_of_a_sparse_layer_agree():
    """One whole step with masked matrices, CSR matrices and matgrad's engine, and every phase by itself."""
    import torch

    from matgrad.bench.tools.sparse_layers import ETA, WAYS

    S = Support.random(30, 20, 100, np.random.default_rng(0))
    values = np.random.default_rng(1).standard_normal(100, dtype=np.float32)
    generator = torch.Generator().manual_seed(0)
    X, DY = torch.randn(8, 20, generator=generator), torch.randn(8, 30, generator=generator)
    W = np.zeros((30, 20), np.float32)
    W[S.row_indices(), S.columns] = values
    DW = (DY.T @ X).numpy()[S.row_indices(), S.columns]
    for name, (_, way) in WAYS.items():
        layer = way(S, values, "cpu")
        layer.batch(X, DY)
        Y, DX = (A.numpy().T if name == "csr" else A.numpy() for A in (layer.feedforward(), layer.DX()))
        np.testing.assert_allclose(Y, X.numpy() @ W.T, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(DX, DY.numpy() @ W, atol=1e-5, err_msg=name)
        found = layer.DW().numpy().copy()
        found = found[S.row_indices(), S.columns] if found.shape == W.shape else found.reshape(-1)
        np.testing.assert_allclose(found, DW, atol=1e-5, err_msg=name)
        layer.whole()
        np.testing.assert_allclose(layer.weights(), values - ETA * DW, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def whole():
    """The record of tiny problems; a CUDA graph cannot be captured here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "MATMULS", ("float32",))
        large = Setting((12, 9, 7, 3), batch_size=10)
        wide = WideNetwork("wide", 50, 2, 100, 3, 4, batch_size=5, steps=2)
        layers = LayerPlan(40, 8, (0.1,))
        plan = Plan(("large", "sparse", "wide"), large=large, large_steps=2, layers=layers, networks=(wide,))
        *_, content = run_gpu(plan, Run("cpu", 0, 2, 1, lambda text: None))
    return record("gpu", 0.0, 1, {"rounds": 2}) | content


def test_the_record(whole):
    (part,) = whole["large"]
    assert list(part["tools"]) == [GPU_NATIVE, GPU_OWN]
    assert list(part["failures"]) == [GPU_GRAPH]
    assert part["tools"][GPU_OWN]["ratios"][GPU_NATIVE]["median"] > 0
    (point,) = whole["sparse"]["points"]
    assert not point["failures"]
    assert point["ways"]["matgrad"]["difference"] < 1e-6
    own, masked = (np.array(point["ways"][name]["seconds"]["whole"]) for name in ("matgrad", "masked"))
    assert point["ways"]["matgrad"]["ratios"]["masked"] == pytest.approx(np.median(masked / own))
    (network,) = whole["wide"]
    assert network["weights"] == 2 * 300 + 400
    assert network["losses"][1] < network["losses"][0]
    json.dumps(whole)


def test_tables_and_plot(whole, tmp_path: Path):
    found = tables.markdown(whole)
    assert "| matgrad PyTorch |" in found
    assert "large, Momentum(0.9), float32: gpu-pytorch-graph failed" in found
    assert "| matgrad: whole |" in found
    assert gpu_failures(whole)
    assert all(path.stat().st_size > 1000 for path in plots.draw(whole, tmp_path))


def test_wrong_options_are_refused():
    for option, value, message in (
        ("--parts", "dense", "unknown part 'dense'; known: steps, jax, epoch, large, sparse, wide"),
        ("--device", "nowhere", "device 'nowhere'"),
    ):
        result = run("bench", "gpu", option, value)
        assert result.exit_code
        assert message in result.stderr


def test_the_parts_of_the_command_are_those_of_the_benchmark():
    from matgrad.cli.bench_gpu import PARTS

    assert tuple(gpu.PARTS) == PARTS
    assert "--parts" in succeed("bench", "gpu", "--help")
