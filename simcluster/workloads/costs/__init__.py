"""Counts the FLOPs, bytes and memory of work without running it."""
