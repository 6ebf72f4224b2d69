"""Which samples a run used, lost and repeated: counted from what every rank said of its batches.

This file knows shards of a data set and ledgers (simcluster.workloads.ledger). It must not know algorithms or files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcluster.results.record import NodeRecord
from simcluster.rng import numpy_stream
from simcluster.workloads import Workload

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A row for each sample of each epoch that was drawn: how often its gradient went into the weights, how often it
    was drawn in vain. An epoch is a pass of a rank over its shard.
    """

    columns: Mapping[str, Any]

    @property
    def totals(self) -> dict[str, int]:
        """*used* and *lost*, each use counted; *repeated*: uses beyond the first of a sample in an epoch."""
        used, lost = self.columns["used"], self.columns["lost"]
        repeated = int(np.maximum(used - 1, 0).sum())
        return {"used": int(used.sum()), "lost": int(lost.sum()), "repeated": repeated}


def samples_of(nodes: Sequence[NodeRecord], workload: Workload, seed: int) -> Samples:
    """Those of the run of *nodes*."""
    size = len(nodes)
    batches = [_batches(node, nodes) for node in nodes]
    if any(notes["joined"] for notes in nodes[0].samples):
        batches = [batches[0]] * size  # every batch was that of all ranks, and they trained one model
    shards = workload.shards(size, seed)
    parts = [
        _positions(nodes[rank].name, shards[rank], batches[rank], workload.batch_size, seed, rank)
        for rank in range(size)
    ]
    names = ("epoch", "sample", "node", "used", "lost")
    return Samples({name: np.concatenate([part[name] for part in parts]) for name in names})


def _batches(node: NodeRecord, nodes: Sequence[NodeRecord]) -> tuple[Counts, Counts]:
    """(how often each batch of *node* was used, was lost), by number."""
    judged = {rank: (come, set(rejected)) for notes in nodes[0].samples for rank, come, rejected in notes["judged"]}
    come, rejected = judged.get(node.rank, (None, set()))
    groups: list[tuple[int, int, bool]] = []  # first batch, batches, whether they are in the weights
    settled: list[tuple[int, int]] = []  # those that were not given up here: they are judged in this order
    for notes in node.samples:
        for first, count, width, used in notes["runs"]:
            for start in range(first, first + count * width, width):
                taken = bool(used) and len(settled) not in rejected and (come is None or len(settled) < come)
                groups.append((start, width, taken))
                settled += [(start, width)] * used
    last = max((first + width for first, width, _ in groups), default=0)
    counts = np.zeros((2, last), dtype=np.int64)
    for first, width, taken in groups:
        counts[0 if taken else 1, first : first + width] += 1
    for rank, group, number in (part for notes in nodes[0].samples for part in notes["again"]):
        if rank == node.rank:
            for first, width in settled[group : group + number]:
                counts[0, first : first + width] += 1
    return counts[0], counts[1]


def _positions(
    name: str, shard: Any, batches: tuple[Counts, Counts], size: int, seed: int, rank: int
) -> dict[str, Any]:
    """A row for each place in the passes of *rank* over its *shard*, one behind the other, that any batch reached."""
    used, lost = (np.repeat(counts, size) for counts in batches)
    rng, length = numpy_stream(seed, "batches", str(rank)), len(used)
    passes = -(-length // len(shard))
    order = np.concatenate([rng.permutation(shard) for _ in range(passes)])[:length] if passes else np.array([], int)
    drawn = (used > 0) | (lost > 0)
    return {
        "epoch": (np.arange(length) // len(shard))[drawn],
        "sample": order[drawn],
        "node": np.full(int(drawn.sum()), name, dtype=object),
        "used": used[drawn],
        "lost": lost[drawn],
    }
