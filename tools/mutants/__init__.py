"""Known defects, each planted into a copy of the library by a small change of its source.

`simcluster verify` must fail for each defect. `python -m tools.mutants` tries all defects and
writes the table of docs/mutants.md.
"""
