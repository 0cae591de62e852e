"""Index notation: expressions such as Σ_k x_ik·y_kj for symbolic sizes, their derivatives, and a canonical form.

`expressions` has sums and products of entries x_ij and [i=j], `powers` their powers, `sums` Σ, `functions` exp, log,
max, conditions and exact numbers, `rules` which rules a derivative is by, and `text` how expressions are printed, with
the symbols of `matgrad.foundation.notation`. Otherwise it uses Python's standard library only, and knows nothing of
matrices or layers: the table of operations on it is `matgrad.program.entries`.
"""
