"""LaTeX of the equations that run, generated from the source of layers, losses and the like.

`latex` is where to begin: `method_reader` follows what a method executes, `name_resolver` knows what the
names in it stand for, `expressions` writes expressions over the table in the paper's notation, and
`teaching` makes a document of all that was validated.
"""
