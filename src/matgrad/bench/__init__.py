"""Benchmarks: matgrad compared with code written by hand in the frameworks.

`tools` are what is measured, `measuring` lets tools train the same problem, each in its own process,
`experiments` are the benchmarks, each of which makes a record, and `reports` show a record.
"""
