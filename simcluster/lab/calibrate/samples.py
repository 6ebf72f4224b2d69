"""The samples of a measuring run, by name: exchanges between pairs of nodes, and pieces of work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from simcluster.runs.record import NodeRecord

Samples: TypeAlias = dict[int, list[float]]
"""Seconds by size in bytes, or by FLOPs."""

PairSamples: TypeAlias = dict[str, Samples]
"""The samples of one node with another, by what was measured: one of OF_PAIRS."""

ROUND, STREAM, BURST, SENDS, BOTH, FILL, WORK = "round", "stream", "burst", "sends", "both", "fill", "work"
STEP, SWAP, HANDLED, LATE, STOLEN, ON, PRODUCT = "step", "swap", "handled", "late", "stolen", "on", "product"
OF_PAIRS = (ROUND, STREAM, BURST, SENDS, BOTH, FILL)
"""The first word of a sample's name. "work" and the words after it are not of pairs.

- round: a message of N bytes there, and one of the same size back.
- stream: STREAM_MESSAGES messages of N bytes there, the last one answered by an empty one.
- burst: BURST_MESSAGES empty messages there, the last one answered by an empty one.
- sends: the total time of the sends of such a burst.
- fill: the total time of the sends of FILL_MESSAGES messages of N bytes.
- both: STREAM_MESSAGES messages of N bytes in each direction at once, from the first arrival to the last.
- work: a piece of work of this kind and N FLOPs.
- step: a rehearsed step of this pattern, with messages of N bytes.
- swap: only its messages, over connections that have been idle.
- handled: CPU time of the node's event loop for the messages of a rehearsed step; only on a shared machine.
- late: the longest delay of the node's event loop in a round.
- stolen: CPU time stolen by the host of a virtual machine in a round.
- on: 1, for the accelerator of this kind and number N that did a round's work; absent if the CPU did.
- product: of two matrices, N FLOPs, in processor time; only on a real node that computes on its CPU.
"""

STREAM_MESSAGES = 3
FILL_MESSAGES = 6
SWAP_MESSAGES = 4
"""A rehearsed message is at most this many times the largest single one. It takes up to a second then: long enough that
messages of unequal links meet as in training, where a switch keeps bytes for a link that is busy for a while."""
BURST_MESSAGES = 50


def sample_name(what: str, where: str | int, number: float) -> str:
    """Return a sample's name; *where* is its peer, pattern or kind of work, *number* its bytes or FLOPs."""
    return f"{what}:{where}:{round(number)}"


class SampleRow(NamedTuple):
    """One sample: node *rank* recorded *name* = *seconds* in round *number*."""

    rank: int
    number: int
    name: str
    seconds: float

    @property
    def parts(self) -> tuple[str, str, int]:
        """The arguments of `sample_name`."""
        what, where, number = self.name.split(":")
        return what, where, int(number)


def rows_of(nodes: Iterable[NodeRecord]) -> list[SampleRow]:
    """Return every sample of *nodes*, by rank and then in the order taken."""
    return [SampleRow(node.rank, metric.step, metric.name, metric.value) for node in nodes for metric in node.metrics]


def pairs_of(rows: Iterable[SampleRow]) -> dict[tuple[int, int], PairSamples]:
    """Return the samples by the rank that took them and its peer's rank, in order.

    A higher rank has only burst, sends, fill and both with a lower one.
    """
    pairs: dict[tuple[int, int], PairSamples] = {}
    for row in rows:
        what, where, size_bytes = row.parts
        if what in OF_PAIRS:
            pair = pairs.setdefault((row.rank, int(where)), {})
            pair.setdefault(what, {}).setdefault(size_bytes, []).append(row.seconds)
    return dict(sorted(pairs.items()))


def work_of(rows: Iterable[SampleRow], rank: int, measured: str = WORK) -> dict[str, Samples]:
    """Return the samples of node *rank*'s work: kind of work -> FLOPs -> seconds of every repetition."""
    work: dict[str, Samples] = {}
    for row in rows:
        what, kind, flops = row.parts
        if what == measured and row.rank == rank:
            work.setdefault(kind, {}).setdefault(flops, []).append(row.seconds)
    return work


def accelerator_of(rows: Iterable[SampleRow], rank: int) -> str:
    """Return the kind of accelerator that did node *rank*'s work; "" for the CPU."""
    return next((row.parts[1] for row in rows if row.rank == rank and row.parts[0] == ON), "")
