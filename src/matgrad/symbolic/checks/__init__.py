"""Checks of the classes that train: SymPy matrices run through them.

`derivatives` compares every gradient with SymPy's, and `definitions` every value with its elementwise definition.
`equality` decides whether two symbolic matrices are equal, `exact` replaces floating-point numbers by exact ones,
and `verdicts` reports what was found, with the `labels` of the paper.
"""
