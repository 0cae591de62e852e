"""Engines: how training steps and evaluations run."""
