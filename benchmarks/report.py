"""Write the table and draw the plots of a record again: python benchmarks/report.py DIR, a folder with a bench.json."""

import sys
from pathlib import Path

from harness.reports import read, write

for name in sys.argv[1:]:
    write(read(Path(name)), Path(name))
