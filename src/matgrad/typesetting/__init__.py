"""LaTeX of the equations that run, generated from the source of layers, losses and other classes: see `latex`."""
