"""Certificates: proofs of equations that Coq checks."""
