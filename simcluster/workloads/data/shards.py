"""Division of the samples into one shard per rank, with sizes in proportion to the ranks' batch
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from simcluster.errors import UsageError
from simcluster.workloads.data.partition import Indices, Partition


def shards_for(
    batches: Sequence[int], partition: Partition, targets: npt.NDArray[Any], rng: np.random.Generator
) -> list[Indices]:
    """Return the sample numbers in each rank's shard. Rank r takes *batches[r]* samples per step.

    Batch sizes are counted in units of their greatest common divisor. *partition* deals one part
    for each unit of all batches, and a rank's shard joins as many parts as its batch has units.
    Raise UsageError if *partition* returns a different number of parts, or if a shard is smaller
    than its rank's batch.
    """
    unit = math.gcd(*batches)
    units = [samples // unit for samples in batches]
    if len(batches) < len(targets) < sum(units):
        found = f"{sum(batches)} samples on {len(batches)} ranks together"
        raise UsageError("batch_size", found, f"at most {len(targets)}, the training samples")
    dealt = partition(targets, sum(units), rng=rng)
    if len(dealt) != sum(units):
        raise UsageError("partition", f"{len(dealt)} shards", f"{sum(units)}, one per rank")
    shards = _joined(dealt, units)
    sizes = [len(shard) for shard in shards]
    rank = min(range(len(sizes)), key=lambda rank: sizes[rank] - batches[rank])
    if sizes[rank] < batches[rank]:
        where = f"the shard of rank {rank} of {len(sizes)}" + (", the smallest" if len(set(batches)) == 1 else "")
        expected = f"at most {sizes[rank]}, the samples in {where} ({len(targets)} in all)"
        raise UsageError("batch_size", repr(batches[rank]), expected)
    return shards


def _joined(dealt: Sequence[Indices], units: Sequence[int]) -> list[Indices]:
    """Join consecutive parts of *dealt* into shards: shard r has *units[r]* parts."""
    left = iter(dealt)
    parts = [list(islice(left, count)) for count in units]
    return [part[0] if len(part) == 1 else np.sort(np.concatenate(part)) for part in parts]
