"""Worlds on any backend: the handles that they act through, and limits on their code."""
