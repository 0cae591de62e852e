"""The evaluation of models on data."""
