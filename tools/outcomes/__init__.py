"""What becomes of every algorithm when a node is lost or comes: the table of docs/faults.md, held in the simulator by
tests/whole/test_outcomes_of_all.py and on real processes by `python -m tools.outcomes`.
"""
