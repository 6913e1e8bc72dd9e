"""``python -m experiments`` from the root of the repository."""

from experiments.commands import NAME, main

main(prog_name=NAME)
