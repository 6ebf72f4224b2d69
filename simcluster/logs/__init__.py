"""Logging of processes, to standard error or to Loki."""
