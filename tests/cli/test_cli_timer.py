"""`matgrad train --timer`: the table, and the rows in the record of the run."""

from __future__ import annotations

import json
import re

import pytest

from cli_support import save_blobs, succeed

N, D, H, K = 60, 4, 6, 3
TRAIN = ("train", "--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--layer-sizes", f"{D};{H};{K}",
         "--epochs", 2, "--batch-size", 20)  # fmt: skip
KEYS = ["equation", "layer", "seconds", "share", "calls", "flops", "bytes"]
PHASES = ["feedforward", "loss", "backpropagate", "optimize", "compilation", "data and overhead"]


@pytest.fixture(autouse=True)
def _data(folder) -> None:
    save_blobs(folder / "data.npz", N=N, D=D, K=K)


def timer(*options: object) -> list[dict]:
    """The rows in the record of a run."""
    return json.loads(succeed(*TRAIN, "--json", *options))["timer"]


def names(rows: list[dict]) -> list[str]:
    return [row["equation"] if row["layer"] is None else f"layer {row['layer']} {row['equation']}" for row in rows]


@pytest.mark.parametrize("backend_name", ["torch", "native"])
@pytest.mark.parametrize(("options", "kind"), [((), "brief"), ((), "full"), (("--eager",), "brief")])
def test_the_record_has_the_rows(backend_name: str, options, kind: str):
    rows = timer("--timer", kind, "--backend", backend_name, *options)

    context = f"{backend_name} {options} {kind}"
    for row in rows:
        assert list(row) == KEYS, context
        assert row["seconds"] >= 0, context
        assert row["calls"] == (1 if row["equation"] == "compilation" else 6), context
        assert (row["flops"] is None) == (row["bytes"] is None), context
    assert sum(row["share"] for row in rows) == pytest.approx(1), context
    phases = [phase for phase in PHASES if not options or phase != "compilation"]
    if kind == "brief":
        assert names(rows) == phases, context
        assert rows[0]["flops"] == 2 * 2 * N * (D * H + H * K), context
    else:
        dW = next(row for row in rows if (row["equation"], row["layer"]) == ("ActivationLayer.DW", "1"))
        assert dW["flops"] == 2 * 2 * N * D * H, context
        assert {"layer 2 MomentumOptimizer.b", "SoftmaxCrossEntropyLoss.gradient"} <= set(names(rows)), context


def test_the_equations_stand_in_their_order():
    found = names(timer("--timer", "full", "--eager", "--clip", 1))
    expected = [
        *("layer 1 ActivationLayer.Z", "layer 1 ActivationLayer.Y", "layer 2 LinearLayer.Y"),
        *("SoftmaxCrossEntropyLoss.gradient", "layer 2 LinearLayer.DW", "layer 2 LinearLayer.DX"),
        *("layer 1 ActivationLayer.DZ", "layer 1 ActivationLayer.DW", "clip_gradients"),
        *("layer 1 MomentumOptimizer.W", "layer 2 MomentumOptimizer.b", "data and overhead"),
    ]
    assert [name for name in found if name in expected] == expected


@pytest.mark.parametrize("kind", ["brief", "full"])
def test_the_table_is_printed_before_the_last_line(kind: str):
    lines = succeed(*TRAIN, "--timer", kind, "--backend", "native").splitlines()
    first = "feedforward" if kind == "brief" else "layer 1 ActivationLayer.Z"
    table = lines[[line.startswith(first) for line in lines].index(True) :]
    shares = [float(share) for share in re.findall(r" ([\d.]+) % ", "\n".join(table))]

    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.01)
    assert lines[-1].startswith("test accuracy")
    assert any("█" in line for line in table)
    assert any(line.startswith("– was computed") for line in table) == (kind == "full")
    assert "\x1b" not in "".join(lines), "colour is for terminals"
    assert " %" not in succeed(*TRAIN)


def test_the_gradient_check_is_not_counted():
    rows = timer("--timer", "full", "--gradient-step", 1e-5, "--eager")
    assert all(row["calls"] == 6 for row in rows)


def test_a_trace_has_each_equation_in_its_phase(folder):
    """In Chrome's format: complete events, in microseconds, those of equations within those of phases."""
    rows = timer("--timer", "full", "--trace", "trace.json")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {(event["ph"], event["pid"], event["tid"]) for event in events} == {("X", 1, 1)}
    own = [event for event in events if "args" in event]
    seconds = {f"layer {row['layer']} {row['equation']}".removeprefix("layer None "): row["seconds"] for row in rows}
    assert [event["name"] for event in own] == [name for name in seconds if name not in PHASES[4:]]
    for before, event in zip([{"ts": 0, "dur": 0}, *own], own, strict=False):
        assert event["ts"] == pytest.approx(before["ts"] + before["dur"])
        assert event["dur"] == pytest.approx(1e6 * seconds[event["name"]] / 6)
    phases = [event for event in events if "args" not in event]
    assert [event["name"] for event in phases] == PHASES[:4]
    assert sum(event["dur"] for event in phases) == pytest.approx(sum(event["dur"] for event in own))
