"""Fuzzing a reader with Atheris (libFuzzer), in a process of its own: `python hostile_atheris.py READER SEED RUNS`.

It ends with an error, and leaves the file behind, if a mutant is neither read nor refused, hangs or takes much memory.
"""

from __future__ import annotations

import platform
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import atheris
import click
import numpy as np

with atheris.instrument_imports(include=["matgrad"]):  # before any other import of the package
    from hostile_mutants import mutant
    from hostile_readers import READERS
    from hostile_worker import LONGEST, MEGABYTES, forbidden, watch

SECONDS = 20  # that a file may take, on a machine that does other things


def main(name: str, seed: str, runs: str) -> None:
    """Fuzz the reader of this name."""
    reader, folder = READERS[name], Path(tempfile.mkdtemp())
    corpus, path = folder / "corpus", folder / reader.name
    corpus.mkdir()
    (corpus / "good").write_bytes(reader.good())
    warnings.simplefilter("ignore")
    platform.processor()  # see `hostile_worker`
    sys.addaudithook(watch)

    def read(content: bytes) -> None:
        path.write_bytes(content)
        try:
            reader.read(path)
        except (ValueError, FloatingPointError, click.ClickException) as error:
            if not str(error).strip():
                raise
        assert not forbidden, forbidden

    def mutate(content: bytes, longest: int, seed: int) -> bytes:
        """A mutant of ours or, a third of the time, one of libFuzzer."""
        if seed % 3 == 0:
            return atheris.Mutate(content, longest)
        return mutant(content, np.random.default_rng(seed), reader.inside)[:longest]

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + MEGABYTES
    limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={largest}", f"-max_len={LONGEST}", "-len_control=0"]
    arguments = [sys.argv[0], str(corpus), f"-seed={seed}", f"-runs={runs}", f"-artifact_prefix={folder}/", *limits]
    atheris.Setup(arguments, read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
