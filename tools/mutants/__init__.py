"""Known defects, each put into this library as a small change of its text; `simcluster verify` must fail each one.

`python -m tools.mutants` tries them all and writes docs/mutants.md.
"""
