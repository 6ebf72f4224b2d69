"""Shared by all backends: the receiving half of a node, the device thread, the verdict on a run."""
