"""Truly sparse matrices: supports, values on any backend, and densities."""
