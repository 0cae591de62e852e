"""Engines: how a training step runs."""
