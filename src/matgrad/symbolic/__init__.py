"""Symbolic validation of the code that trains: SymPy matrices go through the same classes."""
