"""Checks of the classes that train: SymPy matrices run through them, and NumPy's where symbols are too slow.

`derivatives` compares every gradient with SymPy's, `definitions` every value with its elementwise definition,
`optimizers` every update with its rule, and `defaults` what a class starts with. `numbers` repeats this at other sizes
and far from 0. `equality` decides whether two symbolic matrices are equal, `exact` replaces numbers by exact ones or by
symbols, and `verdicts` reports what was found, with the `labels` of the paper.
"""
