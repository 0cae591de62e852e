"""Measuring: tools train the same problem in turns.

`problems` has models, data and initial weights, which `files` passes to other processes; `worker` runs one tool
in a process, `processes` controls the workers, `memory` measures what they take, and `turns` is a measurement.
"""
