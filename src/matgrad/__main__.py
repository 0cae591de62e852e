"""`python -m matgrad` is `matgrad`."""

from matgrad.cli import main

main(prog_name="matgrad")
