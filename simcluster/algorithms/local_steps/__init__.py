"""Nodes take several steps of their own between two exchanges."""
