"""Benchmarks: the paper's experiments and their cost, for matgrad beside what one writes by hand in a framework.

`tools` lists what is measured, `baselines` has the code matgrad is compared with, `processes` runs each
tool in a process of its own and lets them take turns, `paper`, `native`, `sparse` and `cost` are the
benchmarks, and `tables` and `plots` show their records.
"""
