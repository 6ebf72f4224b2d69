"""Jitter draws: seconds added to a link's latency, one draw per message."""

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
    """Return a function that draws seconds distributed as *jitter* says, all from *random*."""
    mean_s = jitter.mean_s
    if jitter.kind == "uniform":
        return lambda: float(random.uniform(0.0, 2.0 * mean_s))
    if jitter.kind == "lognormal":
        # exp of a normal of mean mu has the mean exp(mu + sigma^2 / 2).
        location = math.log(mean_s) - jitter.sigma**2 / 2
        return lambda: float(random.lognormal(location, jitter.sigma))
    return lambda: float(random.exponential(mean_s))
