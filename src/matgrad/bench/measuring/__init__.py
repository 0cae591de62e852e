"""How it is measured: problems, and tools that train them in turns.

`problems` has models, data and initial weights, which `files` gives to other processes; `worker` is one tool
in a process, `processes` is that seen from outside, `memory` is what it takes, and `turns` is a measurement.
"""
