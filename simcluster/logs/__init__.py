"""Logging to files and to Loki."""
