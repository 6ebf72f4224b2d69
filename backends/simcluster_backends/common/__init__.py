"""Shared by all backends: a node's verbs and receiving half, the device, the verdict on a run, its watchdog."""
