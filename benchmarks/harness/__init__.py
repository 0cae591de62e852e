"""The harness of the benchmarks: tools train the same problem in interleaved rounds, each in its own process.

`problems` has models, data and initial weights, `tools` what trains them, `worker` is the process of a tool, `team`
asks the processes in turns, and `reports` has the record, its tables and its plots.
"""
