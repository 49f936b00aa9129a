"""python -m ulisse: the command line."""

from .program import main

main()
