"""Explain an algorithm or a run in sentences; compare an experiment with one node."""
