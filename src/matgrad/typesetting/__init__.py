"""LaTeX of the equations that run, generated from the source of layers, losses and other classes.

`latex` is the place to start: `method_reader` follows what a method executes, `name_resolver` knows what the
names in it stand for, and `expressions` writes table operations in the paper's notation.
"""
