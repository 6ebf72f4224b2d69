"""Checks of the table in docs/faults.md: how each algorithm ends when a node is lost or joins.

tests/whole/test_outcomes_of_all.py checks the table in the simulator, and `python -m
tools.outcomes` checks it on real processes.
"""
