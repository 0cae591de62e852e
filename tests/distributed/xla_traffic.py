"""What XLA's partitioner lets two devices send in one step: ``xla_traffic.py mlp batchnorm …`` prints it as JSON.

For every case, a batch of 8 examples in rows and the state whole, in float64:
``{"mlp": {"all-reduce": 1, "bytes": 4840}}``, with one entry for each kind of collective that there is, and the bytes
of all of them.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys

N, RANKS = 8, 2
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "pred": 1}


def traffic(program: str) -> dict[str, int]:
    """The collectives in a compiled program of XLA by kind, and the bytes of their results."""
    found: dict[str, int] = {}
    for line in program.splitlines():
        match = re.search(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(", line)
        if match:
            shapes = re.findall(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]", match[1])
            sizes = [BYTES[dtype] * math.prod(int(n) for n in shape.split(",") if n) for dtype, shape in shapes]
            found[match[2]] = found.get(match[2], 0) + 1
            found["bytes"] = found.get("bytes", 0) + sum(sizes)
    return found


def partitioned(name: str) -> str:
    """The training step of a case as XLA compiles it for each of the devices."""
    import jax
    import numpy as np
    from cases import model
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from matgrad.program.computations import make_step

    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("ranks"))
    M, loss, clip_norm, loader = model(name, "jax", batch_size=N)
    step = jax.jit(
        make_step(M, loss, clip_norm=clip_norm), in_shardings=(whole, rows, rows, whole), out_shardings=whole
    )
    arguments = (M.state(), *loader.batch(0), np.float64(0.1))
    # sizes alone: the arrays are on one device
    sizes = jax.tree.map(lambda A: jax.ShapeDtypeStruct(A.shape, A.dtype), arguments)
    return step.lower(*sizes).compile().as_text()


def main(names: list[str]) -> None:
    """Print the traffic of each case."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"
    import jax

    jax.config.update("jax_enable_x64", True)
    print(json.dumps({name: traffic(partitioned(name)) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
