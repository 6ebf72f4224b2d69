"""Batches of unlike sizes: each rank's share of all samples, and its weight in a mean over ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from simcluster.workloads.replica import Replica


def weight_of(replica: Replica) -> float:
    """Return the samples of *replica*'s batch by the mean of all ranks': exactly 1 if all are equal.

    The mean over ranks of gradients times their weights is the gradient of the joined batch.
    """
    return replica.batch_size * len(replica.batch_sizes) / replica.batch_sizes.total


def weighed(replica: Replica, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return *gradients*, scaled in place by the weight of *replica*'s batch; equal batches leave them as they are."""
    weight = weight_of(replica)
    return list(gradients) if weight == 1 else [gradient.mul_(weight) for gradient in gradients]


def by_rate(total: int, rates: Sequence[float]) -> list[int]:
    """Return whole shares of *total* in proportion to *rates*, at least 1 each: by the largest remainder.

    Ties go to the first. *total* is at least the number of *rates*.
    """
    quotas = [total * rate / math.fsum(rates) for rate in rates]
    shares = [max(1, math.floor(quota)) for quota in quotas]
    order = range(len(rates))
    while (missing := total - sum(shares)) > 0:
        for rank in sorted(order, key=lambda rank: shares[rank] - quotas[rank])[:missing]:
            shares[rank] += 1
    while sum(shares) > total:  # those raised to 1 take from the one that is furthest above its quota, and above 1
        shares[max((rank for rank in order if shares[rank] > 1), key=lambda rank: shares[rank] - quotas[rank])] -= 1
    return shares
