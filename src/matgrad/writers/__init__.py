"""Writers for foreign code: programs of PyTorch and JAX in index notation, and their gradients proved or refuted."""

from matgrad.writers.claims import proved as proved
from matgrad.writers.proving import prove as prove
from matgrad.writers.verdicts import Verdict as Verdict
