"""Draws what comes on top of a link's latency, a message at a time.

This file knows distributions and one stream of randomness for each direction of a link. It must not know messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology.model.conditions import Jitter

Draw: TypeAlias = Callable[[], float]
"""Seconds, 0 or more."""


def draws_of(jitter: Jitter, random: np.random.Generator) -> Draw:
    """What draws seconds as *jitter* says, with *random* for all of them."""
    mean_s = jitter.mean_s
    if jitter.kind == "uniform":
        return lambda: float(random.uniform(0.0, 2.0 * mean_s))
    if jitter.kind == "lognormal":
        # exp of a normal of mean mu has the mean exp(mu + sigma^2 / 2).
        location = math.log(mean_s) - jitter.sigma**2 / 2
        return lambda: float(random.lognormal(location, jitter.sigma))
    return lambda: float(random.exponential(mean_s))
