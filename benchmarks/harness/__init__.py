"""The harness of the benchmarks: tools train the same problem in interleaved rounds, each in its own process.

`problems` has models, data and initial weights, `tools` lists what trains them, `worker` is the process of a tool,
`team` asks the processes in turns, `memory` measures them, and `reports` has the record, its tables and its plots.
"""

import os
import sys

# the checkout of matgrad that a process measures: it comes before an editable installation of another one
if source := os.environ.get("MATGRAD_SOURCE"):
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    sys.path.insert(0, source)
