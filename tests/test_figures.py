"""Every figure in the documentation is that of a committed record."""

from __future__ import annotations

import json
import math
import re
import sys
from statistics import median
from typing import Any

import pytest

from cli_support import succeed
from page_support import DOCS, ROOT, commands
from support import DATA

sys.path.append(str(ROOT / "benchmarks"))
from harness.reports import script

PERFORMANCE, SPARSE, VERIFICATION, DISTRIBUTED = (
    (DOCS / f"{name}.md").read_text() for name in ("performance", "sparse", "verification", "distributed")
)
README = (ROOT / "README.md").read_text()
HEADLINE = "MNIST", "float32"  # of the steps on a GPU


def record(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / name / "bench.json").read_text())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def command(start: str) -> list[str]:
    """The command on the page about performance that starts so."""
    (found,) = [c[1:] for c in commands(DOCS / "performance.md") if " ".join(c[1:]).startswith(start)]
    return found


# -- performance --------------------------------------------------------------------------------


def test_the_experiments_of_the_paper():
    rows = {cells(line)[0]: cells(line)[1:] for line in PERFORMANCE.splitlines() if line.startswith("| ")}
    seen = 0
    for tools in zip(*(experiment["tools"] for experiment in record("paper")["experiments"]), strict=True):
        if tools[0]["kind"] != "eager":
            row = rows[tools[0]["title"]]
            for tool, (seconds, to_torch, by_hand, in_paper) in zip(tools, (row[:4], row[4:]), strict=True):
                ratios = tool["ratios"]
                assert seconds == f"{tool['median']:.2f}"
                assert to_torch == (f"{ratios['reference']['median']:.2f}" if ratios["reference"] else "1.00")
                assert by_hand in ("", f"{(ratios['own'] or {'median': 0})['median']:.2f}")
                assert in_paper == (f"{tool['paper']['ratio']:.2f}" if tool["paper"] else "")
                seen += 1
    assert seen == 20
    slower = [row for row in rows if row.startswith("matgrad") for i in (1, 5) if float(rows[row][i]) >= 1]
    assert slower == ["matgrad NumPy"], "all cases of the table but one"


def test_parameters_in_float64():
    tools = [tool for experiment in record("float64")["experiments"] for tool in experiment["tools"]]
    largest = max(tool["difference"]["relative"] for tool in tools if tool["difference"])
    assert f"agrees with native PyTorch's to within {math.ceil(largest * 1e15)}e-15" in PERFORMANCE


def test_sparse_training():
    found = record("sparse")
    for point in found["points"]:
        tools = point["tools"]
        own, others = tools["matgrad-native"], ("pytorch-csr", "pytorch-masked")
        seconds = [f"{tool['median']:.2f} s" for tool in (own, *(tools[name] for name in others))]
        faster = [f"{1 / own['ratios'][name]['median']:.1f}" for name in others]
        threads = f"{1 / own['ratios']['matgrad-native-1']['median']:.2f}"
        memory = [f"{tool['memory']['training'] / 1e6:.0f}" for tool in (own, tools["pytorch-masked"])]
        density = f"{point['density']:g}"
        assert f"| {' | '.join([density, *seconds, *faster, threads, *memory])} |" in PERFORMANCE
    per_example = {b["batch_size"]: b["tools"]["matgrad-native"]["per_example"] for b in found["batches"]}
    large = [seconds for batch_size, seconds in per_example.items() if 100 <= batch_size <= 1000]
    assert max(large) <= 1.2 * min(large), "the same, within 20 %"
    assert min(per_example.values()) in large, "longer in smaller ones"
    fit = found["fit"]
    assert f"takes at best {fit['step'] * 1e6:.0f} µs and {fit['weight'] * 1e9:.1f} ns for every stored" in PERFORMANCE
    assert f"(off by at most {fit['largest_error'] * 100:.0f} %)" in PERFORMANCE


def test_dense_training():
    for experiment in record("native")["experiments"]:
        tools = {tool["tool"]: tool for tool in experiment["tools"]}
        row = [experiment["title"], f"{tools['pytorch']['median']:.2f} s"]
        for tool in (tools["matgrad-native"], tools["matgrad-cpp"]):
            ratios = (tool["ratios"]["reference"], tool["ratios"]["own"])
            row += [f"{tool['median']:.2f} s", *(f"{ratio['median']:.2f}" for ratio in ratios)]
        assert f"| {' | '.join(row)} |" in PERFORMANCE


def test_the_printed_program_is_the_recorded_one():
    (printed,) = re.findall(r"```\n(Z1 .*?)…\n```", PERFORMANCE, re.DOTALL)
    assert printed in succeed(*command("program"))


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_the_experiment_of_the_paper_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").symlink_to(DATA / "mnist")
    assert succeed(*command("train --mnist")).splitlines()[-1] == "test accuracy 0.940"


# -- several processes --------------------------------------------------------------------------


def test_training_on_several_processes():
    """The page has the tables of the record."""
    for table in script("distributed").tables(record("distributed")):
        for line in table.markdown().splitlines()[2:]:
            assert line in DISTRIBUTED, table.title


def test_the_model_of_the_cost_explains_the_measurements():
    for fit in record("distributed")["fits"]:
        assert fit["largest_error"] <= 0.25, (fit["engine"], fit["density"])
        times = {(step["batch_size"], step["processes"]): step for step in fit["steps"]}
        for batch_size in {step["batch_size"] for step in fit["steps"]}:
            one, two = times[batch_size, 1], times[batch_size, 2]
            assert two["predicted"] / one["predicted"] == pytest.approx(two["measured"] / one["measured"], rel=0.3)


def test_bytes_and_messages_of_the_record_are_those_of_the_program():
    found = record("distributed")
    sizes = ";".join(map(str, found["sizes"]))
    for point in found["points"]:
        options = () if point["density"] == 1 else ("--densities", f"ER({point['density']})")
        arguments = ("--layer-sizes", sizes, "--batch-size", point["batch_size"], "--ranks", 2, "--json", *options)
        messages = json.loads(succeed("program", *arguments))["messages"]
        assert len(messages) == point["costs"]["2"]["messages"]
        assert sum(message["bytes"] for message in messages) == pytest.approx(point["costs"]["2"]["bytes"], rel=0.01)


def test_two_processes_are_about_as_fast_as_one_and_as_ddp():
    """Batch 1000, dense: against one process with all threads, and against DistributedDataParallel."""
    (point,) = [p for p in record("distributed")["points"] if (p["batch_size"], p["density"]) == (1000, 1)]
    core, torch = (point["tools"][f"matgrad-{name}-ranks"]["ratios"] for name in ("native", "torch"))
    assert core["matgrad-native"]["median"] <= 1.25
    assert core["pytorch-ddp"]["median"] <= 1
    assert torch["pytorch-ddp"]["median"] <= 1.1


def test_the_printed_programs_of_ranks_are_those_of_the_commands():
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", DISTRIBUTED, re.DOTALL | re.MULTILINE)
    printed = [line for language, text in fences if not language for line in text.splitlines()]
    found = [
        line.replace(" ", "")
        for command in commands(DOCS / "distributed.md")
        if command[:2] == ["matgrad", "program"]
        for line in succeed(*command[1:]).splitlines()
    ]
    lines = [line.replace(" ", "") for line in printed if "=" in line or line.startswith(("all_reduce", "rank 0"))]
    assert len(lines) > 10
    assert not [line for line in lines if line not in found]


# -- on a GPU -----------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch) -> dict[str, Any]:
    """The record of training on a GPU."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    from figures import gpu_record

    found = gpu_record()
    if found is None:
        pytest.skip("no record: make bench-gpu OUTPUT=benchmarks/gpu, on a machine with a GPU")
    return found


def test_the_page_about_gpus_has_the_tables_of_the_record(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    from figures import PAGE, gpu_record, with_figures

    page = PAGE.read_text()
    assert page.count("<!-- figures:") == 7
    assert with_figures(page, gpu_record()) == page, "run python docs/site/figures.py"


def test_steps_on_a_gpu(gpu):
    """Against native PyTorch, eager and in a CUDA graph, compiled or not, and against one loop in JAX."""
    most = {"MNIST": (0.09, 0.75), "CIFAR-10": (0.13, 0.65)}
    assert len(gpu["steps"]) == 8
    for part in gpu["steps"]:
        context = part["title"], part["optimizer"], part["matmul"]
        own = part["tools"]["matgrad-torch"]["ratios"]
        to_graph = own["gpu-pytorch-graph"]["median"]
        if part["matmul"] == "float32":
            assert own["gpu-pytorch"]["median"] <= most[part["title"]][0], context
            assert to_graph <= most[part["title"]][1], context
        assert to_graph <= 0.75, context
        assert own["gpu-pytorch-compiled-graph"]["median"] <= 0.95, context
    assert len(gpu["jax"]) == 4
    for part in gpu["jax"]:
        assert part["tools"]["matgrad-jax"]["ratios"]["jax"]["median"] <= 1.0, (part["title"], part["matmul"])


def test_the_same_is_trained_on_a_gpu(gpu):
    """Parameters after 20 steps are those of the baseline up to rounding; where a Z is 0 but for that, ReLU jumps."""
    found: dict[str, list[float]] = {"float32": [], "tf32": []}
    for part in gpu["steps"] + gpu["jax"]:
        assert part["compared_after"] == 20
        rows = [row for name, row in part["tools"].items() if name.startswith("matgrad")]
        found[part["matmul"]] += [row["difference"]["relative"] for row in rows]
    assert len(found["float32"]) == len(found["tf32"]) == 6
    assert median(found["float32"]) <= 1e-6
    assert max(found["float32"]) <= 0.01
    assert max(found["tf32"]) <= 0.3


def test_an_epoch_and_a_large_model_on_a_gpu(gpu):
    (epoch,) = gpu["epoch"]
    assert epoch["steps"] == 600
    assert epoch["tools"]["matgrad-torch-fit"]["ratios"]["matgrad-torch-steps"]["median"] <= 1.15
    for part in gpu["large"]:
        assert part["tools"]["matgrad-torch"]["ratios"]["gpu-pytorch"]["median"] <= 1.0, part["matmul"]


def test_sparse_layers_on_a_gpu(gpu):
    points = {point["density"]: point["ways"] for point in gpu["sparse"]["points"]}
    faster = {density: ways["matgrad"]["ratios"] for density, ways in points.items()}
    assert faster[0.01]["masked"] >= 8
    assert faster[0.001]["masked"] >= 50
    assert faster[0.001]["masked-tf32"] >= 8
    dense = 2 * 4 * gpu["sparse"]["neurons"] ** 2  # bytes of weights and gradient
    assert points[0.01]["matgrad"]["memory"] <= dense / 20
    for density, ways in points.items():
        assert ways["matgrad"]["difference"] <= 1e-5, density


def test_very_wide_networks_train_on_a_gpu(gpu):
    assert [network["layers"] * network["neurons"] for network in gpu["wide"]] == [1_000_000, 50_000_000]
    for network in gpu["wide"]:
        assert network["losses"][1] < network["losses"][0], network["name"]


# -- the README ---------------------------------------------------------------------------------


def test_the_headlines_of_the_readme(gpu):
    mnist = {tool["tool"]: tool for tool in record("paper")["experiments"][0]["tools"]}
    ratio = mnist["matgrad-native"]["ratios"]["reference"]["median"]
    tools = next(point["tools"] for point in record("sparse")["points"] if point["density"] == 0.01)
    own, masked = tools["matgrad-native"], tools["pytorch-masked"]
    faster = 1 / own["ratios"]["pytorch-masked"]["median"]
    memory = [f"{tool['memory']['training'] / 1e6:.0f} MB" for tool in (own, masked)]
    figures = [line.split(" | ")[1] for line in README.splitlines() if line.count(" | ") == 2][2:]
    on_cpu = [f"{ratio:.2f}", f"{faster:.1f} times faster, {' instead of '.join(memory)}"]
    certified = json.loads((DOCS / "certified.json").read_text())
    accepted = f"{sum(certified['accepted'].values())} of {certified['proofs']}"
    assert figures == [*on_cpu, *_on_a_gpu(gpu), _verdict(), _proved(), accepted]


def _on_a_gpu(gpu: dict[str, Any]) -> list[str]:
    """The headlines of the step of MNIST's model, with the worse of both optimizers, and of the sparse layer."""
    steps = [x["tools"]["matgrad-torch"]["ratios"] for x in gpu["steps"] if (x["title"], x["matmul"]) == HEADLINE]
    loops = [x["tools"]["matgrad-jax"]["ratios"] for x in gpu["jax"] if (x["title"], x["matmul"]) == HEADLINE]
    ratios = [
        max(step[peer]["median"] for step in found)
        for found, peer in ((steps, "gpu-pytorch-compiled-graph"), (loops, "jax"))
    ]
    ways = next(point["ways"] for point in gpu["sparse"]["points"] if point["density"] == 0.01)
    faster = [f"{ways['matgrad']['ratios'][peer]:.1f}" for peer in ("masked", "masked-bf16", "csr")]
    return [" and ".join(f"{x:.2f}" for x in ratios), "{}, {} and {} times faster".format(*faster)]


def _verdict() -> str:
    verified = json.loads((DOCS / "verified.json").read_text())
    return f"{verified['checks'] - sum(verified['wrong'].values())} of {verified['checks']} right"


def _proved() -> str:
    """By docs/proved.json, which tests/judges/test_proofs.py compares with a run."""
    proved = json.loads((DOCS / "proved.json").read_text())
    return f"{proved['checks'] - sum(proved['not_proved'].values())} of {proved['checks']} proved"


# -- verification -------------------------------------------------------------------------------


def test_the_checks_of_the_verifier():
    assert f"| {_verdict()} |" in VERIFICATION
    assert f"there are {_verdict().split()[0]} checks" in VERIFICATION


def test_the_proofs_for_all_sizes():
    assert f"| {_proved()} |" in VERIFICATION
    assert f"derivations of the paper: {_proved().removesuffix(' proved')}, without" in VERIFICATION


def test_the_certificates():
    record = json.loads((DOCS / "certified.json").read_text())
    accepted = record["accepted"]
    counts = f"{record['proofs']} proofs, {sum(accepted.values())} of {len(accepted)} equations and lemmas"
    assert f"Of {counts} are printed, in {record['theorems']} theorems" in VERIFICATION
    assert len(accepted) > 60


def test_the_printed_explanation_is_that_of_the_command():
    (printed,) = re.findall(r"```\n(  1\. given.*?)```", VERIFICATION, re.DOTALL)
    assert printed in succeed("verify", "--all-sizes", "--explain", "SoftmaxLayer.DZ")


def test_the_mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "judges"))
    from equivalents import EQUIVALENT
    from mutants import mutants
    from special_mutants import special_mutants

    total, same = len(mutants()), len(EQUIVALENT)
    assert f"{total} mutants. Of these, {same} ({same / total:.1%}) compute".replace("%)", " %)") in VERIFICATION
    assert f"{len(special_mutants())} more are wrong only" in VERIFICATION


# -- sparse training ----------------------------------------------------------------------------


def test_the_methods_of_sparse_training():
    runs = record("sparse-methods")["runs"]
    for data, title in {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}.items():
        row = [
            ", ".join(f"{run['test_accuracy']:.3f}" for run in runs if (run["data"], run["method"]) == (data, method))
            for method in ("static", "SET", "RigL")
        ]
        assert f"| {title} | {' | '.join(row)} |" in SPARSE


def test_initial_weights():
    for weights in ("XavierNormalized", "DenseXavierNormalized", "He", "DenseHe"):
        row = []
        for rate in ("0.01", "0.05"):
            found = json.loads((ROOT / f"benchmarks/initial-weights/{weights}-{rate}.json").read_text())
            row.append(", ".join(f"{epoch['test_accuracy']:.3f}" for epoch in found["epochs"]))
        assert re.search(rf"^\| {weights}(?: \(default\))? \| {re.escape(' | '.join(row))} \|$", SPARSE, re.MULTILINE)


def test_sparse_input():
    points = {(p["features"], p["optimizer"]): p for p in record("sparse-input")["points"]}
    for optimizer in ("GradientDescent", "Momentum(0.9)"):
        chosen = [points[features, optimizer] for features in (10_000, 20_000)]
        row = [f"1/{p['dense'] / p['sparse']:.1f} ({p['sparse'] * 1e3:.1f} ms)" for p in chosen]
        assert f"| {optimizer} | {' | '.join(row)} |" in SPARSE


def test_topology_updates():
    for p in record("topology-updates")["points"]:
        steps = p["update"] / p["step"]
        row = [f"{p['method']}, {p['density']}", f"{p['update'] * 1e3:.1f}", f"{steps / 5:.1f} %", f"{steps:.1f} %"]
        assert f"| {' | '.join(row)} |" in SPARSE


def test_brain_scale():
    found = record("brain")
    assert f"a step took {found['seconds_per_step']:.0f} seconds" in SPARSE
    assert f"was built in {found['build_seconds'] / 60:.1f} minutes" in SPARSE
    assert f"never took more than {found['peak_bytes'] / 1e9:.1f} GB" in SPARSE
    first, *_, last = found["losses"]
    assert f"the loss fell from {first:.2f} to {last:.2f} in two steps" in SPARSE
    assert f"{8 * found['weights'] / 1e9:.1f} GB" in SPARSE
