"""Replay real runs in the simulator, in the recorded order of their events."""
