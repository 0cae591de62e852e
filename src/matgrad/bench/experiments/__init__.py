"""The benchmarks, one file per command of `matgrad bench`; each makes a record.

`paper` trains the paper's experiments with every tool; `native` compares dense training with the bare products of
a step; `sparse` varies the density, and `cost` the batch size and the width; `distributed` trains on several
processes, and `prediction` has a model of what that costs. `comparison` has what their records share.
"""
