"""The shards of a run's ranks: as many samples for each as its batches take of the joined batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from simcluster.errors import Problem, UsageError
from simcluster.workloads.data.partition import Indices, Partition


def shards_for(
    batches: Sequence[int], partition: Partition, targets: npt.NDArray[Any], rng: np.random.Generator
) -> list[Indices]:
    """Return the sample numbers of each rank, where rank r takes *batches[r]* samples per step.

    *partition* deals as many equal parts as the batches have units, their common divisor, and a rank gets several.
    Raises UsageError if a shard is smaller than its rank's batch.
    """
    unit = math.gcd(*batches)
    units = [samples // unit for samples in batches]
    dealt = partition(targets, sum(units), rng=rng)
    if len(dealt) != sum(units):
        raise UsageError(Problem("partition", f"{len(dealt)} shards", f"{sum(units)}, one per rank"))
    shards = _joined(dealt, units)
    sizes = [len(shard) for shard in shards]
    rank = min(range(len(sizes)), key=lambda rank: sizes[rank] - batches[rank])
    if sizes[rank] < batches[rank]:
        where = f"the shard of rank {rank} of {len(sizes)}" + (", the smallest" if len(set(batches)) == 1 else "")
        expected = f"at most {sizes[rank]}, the samples in {where} ({len(targets)} in all)"
        raise UsageError(Problem("batch_size", repr(batches[rank]), expected))
    return shards


def _joined(dealt: Sequence[Indices], units: Sequence[int]) -> list[Indices]:
    """Return *dealt* joined to shards: as many, in turn, as each entry of *units* says."""
    left = iter(dealt)
    parts = [list(islice(left, count)) for count in units]
    return [part[0] if len(part) == 1 else np.sort(np.concatenate(part)) for part in parts]
