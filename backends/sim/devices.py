"""How long a piece of work takes on a node's device: roofline times straggler factor.

This file knows costs, device numbers and one stream of randomness per node. It must not know clocks or messages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simcluster.rng import numpy_stream
from simcluster.transport import Cost

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Device, Straggler


class DeviceModel:
    """The device of node *name*: *duration_s* of a cost is drawn anew for every piece of work.

    Roofline (Williams, Waterman, Patterson 2009): work takes as long as the slower of its arithmetic at
    *device.flops_per_s* and its memory traffic at *device.memory_bandwidth_Bps*.
    """

    def __init__(self, device: Device, seed: int, name: str) -> None:
        self._device = device
        # A stream of its own: the algorithm's draws and the device's never meet.
        self._random = numpy_stream(seed, "straggler", name)

    def duration_s(self, cost: Cost) -> float:
        """Virtual seconds for *cost*, this time."""
        arithmetic_s = cost.flops / self._device.flops_per_s
        memory_s = cost.memory_bytes / self._device.memory_bandwidth_Bps
        return max(arithmetic_s, memory_s) * self._factor()

    def _factor(self) -> float:
        straggler = self._device.straggler
        return 1.0 if straggler is None else straggler_factor(straggler, self._random)


def straggler_factor(straggler: Straggler, random: np.random.Generator) -> float:
    """One draw of the factor by which a piece of work is slowed down.

    constant: *factor*. lognormal: exp(sigma Z - sigma^2/2), mean one. exponential: Exp with mean *mean*. two-point:
    *factor* with *probability*, else 1.
    """
    match straggler.kind:
        case "constant":
            return straggler.factor
        case "lognormal":
            return math.exp(straggler.sigma * random.standard_normal() - straggler.sigma**2 / 2)
        case "exponential":
            return float(random.exponential(straggler.mean))
        case "two-point":
            return straggler.factor if random.random() < straggler.probability else 1.0
