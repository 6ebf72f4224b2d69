"""Explains an algorithm, or what happened in a run, in sentences; compares an experiment with one node."""
