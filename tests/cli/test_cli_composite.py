"""The command line with a layer that has parts, from docs/custom.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cli_support import run, succeed

PLUGIN = ("--plugin", Path(__file__).parents[2] / "docs" / "custom.py")
TRAIN = ("train", *PLUGIN, "--layers", "ReLU;Shortcut;Linear", "--layer-sizes", "64;8;10", "--epochs", 1, "--seed", 1)


def test_a_composite_layer_trains_and_is_evaluated(tmp_path):
    file = tmp_path / "m.npz"
    options = ("--gradient-step", 1e-5, "--optimizers", "Adam", "--dtype", "float64", "--dropouts", "0;0;0;0.1")
    output = succeed(*TRAIN, *options, "--save-weights", file)
    accuracy = float(succeed("evaluate", *PLUGIN, file).split()[-1])
    assert output.splitlines()[-1] == f"test accuracy {accuracy:.3f}"
    assert "layers: ReLU;Shortcut;Linear" in succeed("inspect", file)


def test_weight_decay_reaches_parts(tmp_path):
    """W' = W - η·(DW + λ·W) = -η·DW where η·λ = 1."""
    file = tmp_path / "m.npz"
    options = ("--learning-rate", 0.01, "--optimizers", "GradientDescent(weight_decay=100)")
    succeed(*TRAIN, *options, "--save-weights", file)
    with np.load(file) as content:
        assert all(np.abs(content[f"W{k}"]).max() < 0.02 for k in (1, 2, 3, 4))


def test_debug_shows_parts_and_the_timer_counts_them():
    output = succeed(*TRAIN, "--show", "batches", "--timer", "full", "--batch-size", 1000)
    assert "layer 2.1 DW\n" in output
    assert "layer 2.2 LinearLayer.DW " in output


def test_lists_count_linear_layers_in_parts():
    result = run(*TRAIN, "--densities", "0.5;0.5")
    assert result.exit_code
    assert "expected 1 or 4 densities for 4 linear layers, found 2" in result.stderr
