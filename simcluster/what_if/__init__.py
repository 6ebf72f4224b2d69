"""What holds an experiment up, and what to buy: the advisor behind `simcluster whatif`."""

from simcluster.what_if.outcome import WhatIf
from simcluster.what_if.run import whatif

__all__ = ["WhatIf", "whatif"]
