"""Which samples a run used, lost and repeated: counted from what every rank said of its batches.

This file knows shards of a data set and ledgers (simcluster.workloads.ledger). It must not know algorithms or files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcluster.results.record import NodeRecord, regroups
from simcluster.results.unheard import notes_of
from simcluster.rng import numpy_stream
from simcluster.workloads import Workload

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A row for each sample of each epoch that was drawn: how often its gradient went into the weights, how often it
    was drawn in vain. An epoch is a pass of a rank over its shard. *dealt_again*: there were several groups of ranks;
    a sample has a row for each in which it was drawn.
    """

    columns: Mapping[str, Any]
    dealt_again: bool = False

    @property
    def totals(self) -> dict[str, int]:
        """*used* and *lost*, each use counted; *repeated*: uses beyond the first of a sample in an epoch."""
        used, lost = self.columns["used"], self.columns["lost"]
        repeated = int(np.maximum(self._uses() - 1, 0).sum())
        return {"used": int(used.sum()), "lost": int(lost.sum()), "repeated": repeated}

    def _uses(self) -> Counts:
        """How often each was used, by whatever ranks: a group that was formed anew has other shards."""
        if not self.dealt_again:
            found: Counts = self.columns["used"]
            return found
        of_epoch = np.stack([self.columns["epoch"], self.columns["sample"]])
        _, places = np.unique(of_epoch, axis=1, return_inverse=True)
        return np.bincount(places.reshape(-1), weights=self.columns["used"]).astype(np.int64)


Place = tuple[int, int, int]
"""(number of the group, rank in it, its size): who has which samples."""


def samples_of(nodes: Sequence[NodeRecord], workload: Workload, seed: int) -> Samples:
    """Those of the run of *nodes*."""
    size = len(nodes)
    batches = [_batches(node, nodes) for node in nodes]
    if any(notes["joined"] for notes in nodes[0].samples):
        batches = [batches[0]] * size  # every batch was that of all ranks, and they trained one model
    dealt: list[tuple[str, Place, tuple[Counts, Counts]]] = [
        (node.name, (0, node.rank, size), counts) for node, counts in zip(nodes, batches, strict=True)
    ]
    dealt += [(node.name, place, counts) for node in nodes for place, counts in _of_groups(node, nodes).items()]
    parts = []
    for name, (_, rank, of_size), counts in dealt:
        shard = workload.shards(of_size, seed)[rank]
        parts.append(_positions(name, shard, counts, workload.batch_size, seed, rank))
    names = ("epoch", "sample", "node", "used", "lost")
    return Samples({name: np.concatenate([part[name] for part in parts]) for name in names}, len(dealt) > size)


def _of_groups(node: NodeRecord, nodes: Sequence[NodeRecord]) -> dict[Place, tuple[Counts, Counts]]:
    """Of each place that *node* has had in a group other than the first: how often each batch was used, was lost."""
    found: dict[Place, list[tuple[int, int, bool]]] = {}
    for notes in notes_of(node, nodes):
        if notes.get("place"):
            number, rank, size = notes["place"]
            end = _end_of(number, nodes)
            found.setdefault((number, rank, size), []).extend(_cut(_groups_in(notes), end))
    return {place: _counted(groups) for place, groups in found.items()}


def _end_of(number: int, nodes: Sequence[NodeRecord]) -> float:
    """The batches of the group *number* that are in the weights, where others followed it."""
    ends = [inf]
    for row in regroups(nodes):
        after, batches = row["after"]
        if row["group"] > number:
            ends.append(batches if after == number else 0 if after < number else inf)
    return min(ends)


def _groups_in(notes: Mapping[str, Any]) -> list[tuple[int, int, bool]]:
    """(first batch, batches, whether they are in the weights) of each that was settled at once."""
    runs = notes["runs"]
    return [
        (start, width, bool(used))
        for first, count, width, used in runs
        for start in range(first, first + count * width, width)
    ]


def _cut(groups: Sequence[tuple[int, int, bool]], end: float) -> list[tuple[int, int, bool]]:
    """What came after batch *end* was lost."""
    return [(first, width, used and first + width <= end) for first, width, used in groups]


def _batches(node: NodeRecord, nodes: Sequence[NodeRecord]) -> tuple[Counts, Counts]:
    """(how often each batch of *node* was used, was lost), by number."""
    verdicts = [entry[1:] for notes in nodes[0].samples for entry in notes["judged"] if entry[0] == node.rank]
    while len(verdicts) > 1 and not verdicts[-1][0]:  # it never came back
        verdicts.pop()
    groups: list[tuple[int, int, bool]] = []
    settled: list[tuple[int, int]] = []  # those that were not given up here: they are judged in this order
    end = _end_of(0, nodes)
    before = 0  # of them, in this life
    for notes in (notes for notes in notes_of(node, nodes) if not notes.get("place")):
        come, rejected = verdicts[0] if verdicts else (None, ())
        of_life = _groups_in(notes)
        for index, (start, width, used) in enumerate(of_life):
            sent = used or (bool(notes.get("held")) and index == len(of_life) - 1 and come is not None)
            taken = sent and before not in rejected and (come is None or before < come)
            groups.append((start, width, taken))
            settled += [(start, width)] * used
            before += used or taken
        if len(verdicts) > 1:  # of a life that a server has not told from the next there is one verdict for both
            verdicts, before = verdicts[1:], 0
    counts = _counted(_cut(groups, end))
    for rank, group, number in (part for notes in nodes[0].samples for part in notes["again"]):
        if rank == node.rank:
            for first, width in settled[group : group + number]:
                counts[0][first : first + width] += 1
    return counts


def _counted(groups: Sequence[tuple[int, int, bool]]) -> tuple[Counts, Counts]:
    """(how often each batch was used, was lost), by number."""
    last = max((first + width for first, width, _ in groups), default=0)
    counts = np.zeros((2, last), dtype=np.int64)
    for first, width, used in groups:
        counts[0 if used else 1, first : first + width] += 1
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
