"""Many runs of one experiment: which, where, and the table of what came of them."""

from simcluster.experiment.sweep.run import Sweep, sweep

__all__ = ["Sweep", "sweep"]
