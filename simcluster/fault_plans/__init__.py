"""Fault plans: their kinds, how they are read, and the log of what happened."""
