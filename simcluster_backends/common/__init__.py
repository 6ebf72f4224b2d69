"""Shared by all backends: the verbs of a node and its receiving half, the device, the verdict on a run, its watchdog."""
