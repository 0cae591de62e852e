"""Equations at work: what they are, what they compute, how long they take, and whether they are right."""
