"""Reads the documents that users write: YAML with line numbers, settings, their own code."""
