"""`python -m simcluster` is the command `simcluster`."""

from simcluster.cli import main

main()
