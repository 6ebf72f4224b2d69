"""The advisor behind `simcluster whatif`: what limits an experiment, and what to buy."""

from simcluster.what_if.outcome import WhatIf
from simcluster.what_if.run import whatif

__all__ = ["WhatIf", "whatif"]
