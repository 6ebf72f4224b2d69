"""Many runs of one experiment: their points, where they run, and the table of results."""

from simcluster.lab.sweeps.run import PlannedSweep, sweep

__all__ = ["PlannedSweep", "sweep"]
