"""Ranks take several local steps between exchanges."""
