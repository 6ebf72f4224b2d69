"""Run an experiment many times: the points, the engines that run them, and the table of results."""

from simcluster.lab.sweeps.run import PlannedSweep, sweep

__all__ = ["PlannedSweep", "sweep"]
