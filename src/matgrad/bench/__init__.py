"""Benchmarks: the paper's experiments and their cost, for matgrad beside what one writes by hand in a framework.

`tools` is what is measured, `measuring` lets tools train the same problem, each in a process of its own,
`experiments` are the benchmarks, each of which makes a record, and `reports` shows a record.
"""
