"""Fault plans: the kinds of faults, how they are read, and the log of what happened."""
