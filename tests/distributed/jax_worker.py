"""One process of a test with JAX: ``jax_worker.py FUNCTION RANK SIZE PORT ARGUMENT…`` prints what the function returns.

It is a line of JSON, the last one that is printed.
"""

from __future__ import annotations

import hashlib
import json
import sys

import jax
import numpy as np
from cases import train

from matgrad.distributed import using
from matgrad.distributed.jax_group import JaxGroup, connected
from support import PATIENCE


def same(group: JaxGroup, *names: str) -> dict[str, list]:
    """For every case how far this group is from one process of NumPy, and a hash of what this rank has."""
    found = {}
    for name in names:
        # eight examples are shared out; those of the last batch are not, because five is odd
        options = {} if name == "one" else {"batch_size": 8}
        expected = train(name, "numpy", **options)
        with using(group):
            state = train(name, "jax", **options)
        found[name] = [max(float(np.abs(state[key] - expected[key]).max()) for key in expected), digest(state)]
    return found


def digest(state: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(A.tobytes() for A in state.values())).hexdigest()


FUNCTIONS = {function.__name__: function for function in (same,)}


def main(name: str, rank: str, size: str, port: str, *arguments: str) -> None:
    jax.config.update("jax_enable_x64", True)
    alone = size == "1"
    group = JaxGroup(PATIENCE) if alone else connected(f"localhost:{port}", int(rank), int(size), PATIENCE)
    print(json.dumps(FUNCTIONS[name](group, *arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
