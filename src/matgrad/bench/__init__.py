"""Benchmarks: the paper's experiments and their cost, for matgrad beside what one writes by hand in a framework.

`tools` lists what is measured, `baselines` has the code matgrad is compared with, `processes` runs each
tool in a process of its own, `comparison` lets them take turns, and `tables` and `plots` show the record.
"""
