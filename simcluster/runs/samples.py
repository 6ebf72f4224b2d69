"""Count the samples that a run used, lost and repeated, from every rank's notes on its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcluster.runs.record import NodeRecord, regroups, standing
from simcluster.workloads import Workload
from simcluster.workloads.data.iterable import numbers_drawn
from simcluster.workloads.data.partition import tail_of
from simcluster.workloads.data.streams import orders
from simcluster.workloads.progress.ledger import OWN, Fate
from simcluster.workloads.progress.ledgers import Batches, Notes, closed, groups_of

NOTHING: Notes = {
    "runs": [], "judged": [], "held": [], "incarnation": 0, "joined": False, "in_step": True, "partial": True
}  # fmt: skip


class SampleNodes:
    """The *nodes* of a run, its re-formed *groups*, and the index of the representing node."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        self.nodes = nodes
        self.groups = regroups(nodes)
        stands = standing(nodes)
        self.stands = next(place for place, node in enumerate(nodes) if node is stands)


def notes_of(node: NodeRecord, cluster: SampleNodes) -> list[Notes]:
    """Return the notes of *node*, for each of its lives and groups in turn.

    If a life ended without final notes, they are completed from the state that the next group began
    with: the node had done its part of the batches that are in this state.
    """
    lives = [*node.samples] or [{**NOTHING}]
    rows = [row for row in cluster.groups if node.name in row["lost"]]
    found: list[Notes] = []
    for life in lives:
        parts = [*life.get("earlier", ()), life]
        for row in rows if life["partial"] else ():
            if number_of(parts[-1]) <= row["after"][0] and _was_in(row["after"][0], node, cluster):
                parts = _completed(parts, row, node, cluster)
        found += parts
    return found


def are_known(nodes: Sequence[NodeRecord]) -> bool:
    """Return whether every node's batches are known, from its notes or a group that lost it."""
    lost = {name for row in regroups(nodes) for name in row["lost"]}
    return all(node.samples or node.name in lost for node in nodes)


def number_of(notes: Mapping[str, Any]) -> int:
    """Return the number of the group of ranks that *notes* belong to; 0 is the first group."""
    place = notes.get("place")
    return int(place[0]) if place else 0


def _was_in(number: int, node: NodeRecord, cluster: SampleNodes) -> bool:
    """Return whether *node* was in group *number*; group 0 had all that did not join later."""
    if number:
        return any(row["group"] == number and node.name in row["members"] for row in cluster.groups)
    first = next((row for row in cluster.groups if node.name in (*row["lost"], *row["joined"])), None)
    return first is None or node.name in first["lost"]


def _completed(parts: Sequence[Notes], row: Mapping[str, Any], node: NodeRecord, cluster: SampleNodes) -> list[Notes]:
    """Return *parts*, the notes of a life, with the batches of the group that ended when *row*
    re-formed it.

    The group ended with a number of batches in the weights. Those that the node has not noted as
    settled are added as used.
    """
    number, batches = row["after"]
    own = next((notes for notes in parts if number_of(notes) == number), None)
    if own is None:
        own = {**NOTHING, "incarnation": parts[-1]["incarnation"]}
        members = next((row["members"] for row in cluster.groups if row["group"] == number), None)
        # Group 0 has no row: there, a node has its rank in the cluster.
        if members is not None:
            own["place"] = [number, members.index(node.name), len(members)]
        parts = [*parts, own]
    settled = [run for run in own["runs"] if run[3] != Fate.IN_HAND]
    all_parts = [
        part for other in cluster.nodes for notes in other.samples for part in (*notes.get("earlier", ()), notes)
    ]
    begun = [part["runs"][0][0] for part in all_parts if number_of(part) == number and part["runs"]]
    end = max((first + count * width for first, count, width, _ in settled), default=min(begun, default=0))
    if end >= batches:
        return list(parts)
    beyond = [run for run in own["runs"] if run[3] == Fate.IN_HAND and run[0] >= batches]
    whole = {**own, "runs": [*settled, [end, batches - end, 1, int(Fate.USED)], *beyond]}
    return [whole if notes is own else notes for notes in parts]


Counts = NDArray[np.int64]


@dataclass(frozen=True)
class SampleUses:
    """The use of samples: a row for each drawn sample of each epoch, as in `RunFolder.samples`.

    An epoch is a pass of a rank over its shard. If *dealt_again*, a sample may have several rows:
    for each group of ranks that drew it, or for each shard that it pads.
    """

    columns: Mapping[str, Any]
    dealt_again: bool = False

    @property
    def totals(self) -> dict[str, int]:
        """The sums of *used* and *lost*; *repeated* counts a sample's second and later uses."""
        used, lost = self.columns["used"], self.columns["lost"]
        uses = used
        # A re-formed group has other shards, so another rank may have used the same sample.
        if self.dealt_again:
            of_epoch = np.stack([self.columns["epoch"], self.columns["sample"]])
            _, places = np.unique(of_epoch, axis=1, return_inverse=True)
            uses = np.bincount(places.reshape(-1), weights=used).astype(np.int64)
        return {"used": int(used.sum()), "lost": int(lost.sum()), "repeated": int(np.maximum(uses - 1, 0).sum())}


Place = tuple[int, int, int]
"""(number of a group, rank in the group, size of the group): these determine the rank's samples."""


def samples_of(nodes: Sequence[NodeRecord], workload: Workload, seed: int) -> SampleUses:
    """Return the use of the samples that the run of *nodes* on *workload* drew with *seed*."""
    size = len(nodes)
    cluster = SampleNodes(nodes)
    noted = [notes_of(node, cluster) for node in nodes]
    # The run's weights are those of the server's last life if it represents the run, else of the
    # last life in which it served others.
    serving = [notes for notes in noted[0] if any(rank != OWN for rank, *_ in notes["judged"])]
    if cluster.stands == 0 or not serving:
        serving = noted[0]
    books = closed(noted, serving[-1:])
    if any(notes["joined"] for notes in books[0]):
        books = [books[0]] * size  # all ranks trained one model on the same batches
    parts: list[dict[str, Any]] = []
    places = 0
    for node, lives in zip(nodes, books, strict=True):
        found: dict[Place, list[Batches]] = {(0, node.rank, size): []}
        for notes in lives:
            place = tuple(notes.get("place") or (0, node.rank, size))
            found.setdefault(place, []).extend(_settled(notes, _end_of(notes, books, cluster)))
        places += len(found)
        for (_, rank, of_size), groups in found.items():
            if not groups and parts:
                continue  # make no empty tables: most ranks of a large cluster draw nothing
            draws = partial(_draws, workload, of_size, seed, rank)
            parts.append(_positions(node.name, groups, workload.sizes(of_size)[rank], draws))
    names = ("epoch", "sample", "node", "used", "lost")
    is_padded = tail_of(workload.partition) == "pad"
    return SampleUses(
        {name: np.concatenate([part[name] for part in parts]) for name in names}, places > size or is_padded
    )


def _end_of(notes: Mapping[str, Any], books: Sequence[Sequence[Notes]], cluster: SampleNodes) -> float | None:
    """Return the number of batches of each rank in the weights after the group of *notes* ended.

    Return None if the ranks of this group were not in step.
    """
    number = number_of(notes)
    ends: list[float] = []
    for row in cluster.groups:
        after, batches = row["after"]
        if row["group"] <= number:
            continue
        # A later group began from this group's state, or from an earlier one's, which drops all of
        # this group's batches.
        if after == number:
            ends.append(batches)
        else:
            ends.append(0 if after < number else inf)
    if ends:
        return min(ends)
    if not notes["in_step"]:
        return None
    settled = [group for own in books[cluster.stands] if number_of(own) == number for group in groups_of(own)]
    return max((first + width for first, width, fate in settled if fate is not Fate.IN_HAND), default=0)


def _settled(notes: Notes, end: float | None) -> list[Batches]:
    """Return the batches of *notes*: those before *end* as used, the others as lost.

    If *end* is None, the ranks were not in step: return the batches as they were noted.
    """
    groups = list(groups_of(notes))
    if end is None:
        return groups
    lost = [fate is Fate.LOST or first + width > end for first, width, fate in groups]
    return [(*group[:2], Fate.LOST if gone else Fate.USED) for group, gone in zip(groups, lost, strict=True)]


def _draws(workload: Workload, size: int, seed: int, rank: int, length: int) -> tuple[Counts, Counts]:
    """Return (epochs, samples) of the first *length* draws of *rank* out of *size* ranks.

    The length of an iterable data set is unknown: all passes count as epoch 0, with new numbers.
    """
    if workload.stream is not None:
        sizes = workload.sizes(size)
        return np.zeros(length, dtype=np.int64), numbers_drawn(rank, sizes, length // sizes[rank])
    shard = workload.shards(size, seed)[rank]
    # Shards have the same size in every epoch.
    passes = -(-length // len(shard))
    drawn = orders(lambda epoch: workload.shards(size, seed, epoch)[rank], seed, rank)
    order = np.concatenate(list(islice(drawn, passes)))[:length] if passes else np.array([], int)
    return np.arange(length) // len(shard), order


def _positions(
    name: str, groups: Sequence[Batches], size: int, draws: Callable[[int], tuple[Counts, Counts]]
) -> dict[str, Any]:
    """Return one rank's columns of `SampleUses`, with a row for each drawn sample of *groups*.

    Each batch has *size* samples, and *draws* returns (epochs, samples) of the rank's first draws.
    """
    # Row 0 counts uses and row 1 losses, by number of batch.
    counts = np.zeros((2, max((first + width for first, width, _ in groups), default=0)), dtype=np.int64)
    for first, width, fate in groups:
        counts[0 if fate is Fate.USED else 1, first : first + width] += 1
    used, lost = np.repeat(counts, size, axis=1)
    epochs, order = draws(len(used))
    drawn = (used > 0) | (lost > 0)
    return {
        "epoch": epochs[drawn],
        "sample": order[drawn],
        "node": np.full(int(drawn.sum()), name, dtype=object),
        "used": used[drawn],
        "lost": lost[drawn],
    }
