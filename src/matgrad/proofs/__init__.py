"""Proofs for all sizes."""
