"""What holds an experiment up, and what to buy: the advisor behind `simcluster whatif`."""

from simcluster.experiment.whatif.outcome import WhatIf
from simcluster.experiment.whatif.run import whatif

__all__ = ["WhatIf", "whatif"]
