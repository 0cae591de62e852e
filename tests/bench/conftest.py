"""Makes the harness of the benchmarks, and what it measures, importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
