"""Checks of the classes that train: SymPy matrices go through them.

`derivatives` compares every gradient with SymPy's, and `definitions` every value with its definition by
elements. `equality` says when two symbolic matrices are equal, `exact` has exact numbers for floating-point
ones, and `verdicts` says what was found, with the `labels` of the paper.
"""
