"""Many runs of one experiment: which, where, and the table of what came of them."""

from simcluster.sweeps.run import PlannedSweep, sweep

__all__ = ["PlannedSweep", "sweep"]
