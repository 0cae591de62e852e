"""On one machine no other machine reaches the ranks: all that they listen on is the loopback interface."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ranks_support import free_port, torchrun

from support import PATIENCE

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")

# prints the addresses on which the process listens, when all ranks have met
WORKER = """
import ipaddress, json, os, sys
from pathlib import Path
import matgrad as mg

def address(text):
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))

def listening():
    links = (os.readlink(link) if os.path.islink(link) else "" for link in Path("/proc/self/fd").iterdir())
    own = {link[8:-1] for link in links if link.startswith("socket:")}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [address(line[1].partition(":")[0]) for line in lines if line[3] == "0A" and line[9] in own]

with mg.distributed.start(backend=sys.argv[1]) as group:
    assert group.size == 2
    found = group.exchange(listening())
    if group.is_first:
        print("listening", json.dumps(found))
"""


def of_torchrun(worker: Path, backend: str) -> str:
    status, output, errors = torchrun(worker, backend)
    assert status == 0, errors
    return output


def by_variables(worker: Path, backend: str, **variables: str) -> str:
    """The output of rank 0; RANK in a variable's name is that of a rank."""
    known = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command, processes = [sys.executable, str(worker), backend], []
    for rank in range(2):
        own = {name: value.replace("RANK", str(rank)) for name, value in variables.items()}
        environment = os.environ | known | own
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    assert not any(process.returncode for process in processes), outputs
    return outputs[0][0].decode()


def of_variables(worker: Path, backend: str) -> str:
    port = str(free_port())
    address = {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": port, "LOCAL_WORLD_SIZE": "2"}
    return by_variables(worker, backend, RANK="RANK", LOCAL_RANK="RANK", WORLD_SIZE="2", **address)


def of_slurm(worker: Path, backend: str) -> str:
    job = {"SLURM_JOB_ID": str(free_port()), "SLURM_STEP_NODELIST": socket.gethostname()}
    return by_variables(worker, backend, SLURM_PROCID="RANK", SLURM_LOCALID="RANK", SLURM_NTASKS="2", **job)


def of_jax(worker: Path, backend: str) -> str:
    address = f"127.0.0.1:{free_port()}"
    names = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "RANK"}
    return by_variables(worker, backend, **names)


@pytest.mark.parametrize(
    ("started", "framework"),
    [
        (of_variables, "torch"),
        (of_torchrun, "torch"),
        pytest.param(of_slurm, "torch", marks=pytest.mark.slow),
        (of_jax, "jax"),
        pytest.param(of_torchrun, "jax", marks=pytest.mark.slow),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_ranks_on_one_machine_listen_on_its_loopback_interface_alone(tmp_path, started, framework: str):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    output = started(worker, framework)
    (line,) = [line for line in output.splitlines() if line.startswith("listening ")]
    found = json.loads(line.partition(" ")[2])
    assert found[0], "rank 0 must listen"
    for address in itertools.chain.from_iterable(found):
        own = ipaddress.ip_address(address)
        own = getattr(own, "ipv4_mapped", None) or own
        assert own.is_loopback, f"listens on {address}"
