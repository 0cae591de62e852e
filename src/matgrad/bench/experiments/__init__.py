"""The benchmarks, one file for each command of `matgrad bench`; each makes a record.

`paper` trains the paper's experiments with every tool, `native` beside the bare products of a step, `sparse`
against the density, and `cost` against batch size and width. `comparison` has what their records share.
"""
