"""Equations for people: the steps of a pass with their values, as text, as a page and in notebooks."""
