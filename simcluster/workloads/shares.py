"""Shares of ranks whose batches differ in size: their shares of all samples, and their weights in a
mean over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from simcluster.workloads.replica import Replica


def weight_of(replica: Replica) -> float:
    """Return *replica*'s batch size divided by the mean batch size of all ranks. This is exactly 1
    if all are equal.

    The mean over ranks of gradients times their weights is the gradient of the joined batch. Where
    no mean is over all ranks, each sample still moves the weights alike, as by the linear scaling
    of Goyal et al. 2017.
    """
    return replica.batch_size * len(replica.batch_sizes) / replica.batch_sizes.total


def weighed(replica: Replica, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return *gradients*, scaled in place by the weight of *replica*'s batch.

    If all batches are equal, nothing changes.
    """
    weight = weight_of(replica)
    return list(gradients) if weight == 1 else [gradient.mul_(weight) for gradient in gradients]


def by_rate(total: int, rates: Sequence[float]) -> list[int]:
    """Return integer shares of *total*, each at least 1, in proportion to *rates* by the
    largest-remainder method.

    Ties go to the first rate. *total* must be at least the number of *rates*.
    """
    quotas = [total * rate / math.fsum(rates) for rate in rates]
    shares = [max(1, math.floor(quota)) for quota in quotas]
    order = range(len(rates))
    while (missing := total - sum(shares)) > 0:
        for rank in sorted(order, key=lambda rank: shares[rank] - quotas[rank])[:missing]:
            shares[rank] += 1
    # Shares that were raised to 1 may make the sum too large: take from the share furthest above
    # its quota.
    while sum(shares) > total:
        shares[max((rank for rank in order if shares[rank] > 1), key=lambda rank: shares[rank] - quotas[rank])] -= 1
    return shares
