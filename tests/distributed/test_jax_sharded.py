"""JAX on two devices, and in two processes, trains as one process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES, DENSE
from ranks_support import free_port

from support import PATIENCE

FOLDER = Path(__file__).parent
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # what XLA compiles is used once
CHOSEN = ("mlp", "clip")
TRAFFIC = ("mlp", "batchnorm")


def on_ranks(tasks: dict[str, list[str]], *, processes: int = 1, devices: int = 1) -> list[dict]:
    """What functions of jax_worker.py return in each of some processes, which have some devices each."""
    common = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {QUICK}",
        "OMP_NUM_THREADS": "1",
    }
    if processes > 1:
        common |= {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": str(processes)}
    started = [
        subprocess.Popen(
            [sys.executable, FOLDER / "jax_worker.py", json.dumps(tasks)],
            env=common | ({"JAX_PROCESS_ID": str(rank)} if processes > 1 else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * processes
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.fixture(scope="module")
def two_devices() -> dict:
    (found,) = on_ranks({"same": [*DENSE], "sent": [*TRAFFIC], "fitted": []}, devices=2)
    return found


@pytest.fixture(scope="module")
def two_processes() -> list[dict]:
    tasks = {"same": [*CHOSEN], "stopped": [], "fitted": [], "different_weights": [], "different_models": []}
    return on_ranks(tasks, processes=2)


# -- two devices -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_devices_train_measure_and_predict_as_one(two_devices: dict):
    for name in DENSE:
        check_equal([two_devices["same"][name]], CASES[name].tolerance)
    check_fitted(two_devices["fitted"])


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAFFIC)
def test_requests_to_stop_travel_with_the_gradients(two_devices: dict, name: str):
    found = two_devices["sent"][name]
    extra = 2 * 8  # two numbers in float64
    assert found["ours"] == found["alone"] | {"bytes": found["alone"]["bytes"] + extra}


# -- two processes -----------------------------------------------------------------------------------


def test_two_processes_train_measure_and_predict_as_one(two_processes: list[dict]):
    for name in CHOSEN:
        check_equal([found["same"][name] for found in two_processes], CASES[name].tolerance)
    for found in two_processes:
        check_fitted(found["fitted"])


def test_two_processes_stop_after_the_same_step(two_processes: list[dict]):
    first, second = (found["stopped"] for found in two_processes)
    assert first["step"] == second["step"] == 5  # asked for after step 3, sent with step 4, heard during step 5
    check_equal([first, second], CASES["mlp"].tolerance)


def test_ranks_that_differ_have_the_weights_of_rank_0_or_name_their_models(two_processes: list[dict]):
    check_equal([found["different_weights"] for found in two_processes], CASES["mlp"].tolerance)
    for found in two_processes:
        assert found["different_models"].startswith("rank 1 differs from rank 0 in what it computes (")


@pytest.mark.slow
def test_two_processes_of_two_devices_train_as_one_and_stay_equal():
    found = on_ranks({"same": [*DENSE]}, processes=2, devices=2)
    for name, case in DENSE.items():
        check_equal([rank["same"][name] for rank in found], case.tolerance)


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_other():
    first, second = on_ranks({"broken": []}, processes=2)
    assert first["broken"].startswith("ConnectionError: another rank has ended or does not answer (")
    assert second["broken"] == "ValueError: no luck"


# -- both --------------------------------------------------------------------------------------------


def check_equal(ranks: list[dict], tolerance: float) -> None:
    """The ranks are equal bit for bit, and near enough to one process."""
    assert ranks[0]["error"] <= tolerance
    assert len({rank["digest"] for rank in ranks}) == 1


def check_fitted(found: dict) -> None:
    """What is measured and predicted is that of one process, and the model stays on its own device."""
    assert found["history"] < 1e-12
    assert found["prediction"] < 1e-12
    assert found["is_at_home"]
