"""LaTeX of the equations that run, generated from the source of layers, losses and other classes.

`latex` is the place to start: `methods` follows what a method executes, and what the names in it stand for, and
`expressions` writes table operations in the paper's notation.
"""
