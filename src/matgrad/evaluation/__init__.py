"""How good a model is on data."""
