"""Counts of the FLOPs, bytes and memory that a workload's training takes."""
