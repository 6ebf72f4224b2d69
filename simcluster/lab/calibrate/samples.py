"""Names of the calibration's samples, of messages and of work, and functions to read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from simcluster.runs.record import NodeRecord

Samples = dict[int, list[float]]
"""Size in bytes, or FLOPs -> the measured seconds."""

PairSamples = dict[str, Samples]
"""One node's samples with another node: measured quantity (one of OF_PAIRS) -> its samples."""

ROUND = "round"
STREAM = "stream"
BURST = "burst"
SENDS = "sends"
BOTH = "both"
FILL = "fill"
WORK = "work"
STEP = "step"
SWAP = "swap"
HANDLED = "handled"
LATE = "late"
STOLEN = "stolen"
ON = "on"
PRODUCT = "product"
OF_PAIRS = (ROUND, STREAM, BURST, SENDS, BOTH, FILL)
"""The first words of the names of samples that two nodes take together.

All first words, including those of samples that a node takes alone:

- round: the time of a message of N bytes there, and one of the same size back.
- stream: the time of STREAM_MESSAGES messages of N bytes there, until an empty answer to the last.
- burst: the time of BURST_MESSAGES empty messages there, until an empty answer to the last.
- sends: the total time of the sends of such a burst.
- fill: the total time of the sends of FILL_MESSAGES messages of N bytes.
- both: STREAM_MESSAGES messages of N bytes in each direction at once; the time from first to last
  arrival.
- work: the time of a piece of work of this kind and N FLOPs.
- step: the time of a rehearsed step of this pattern, with messages of N bytes.
- swap: the time of the messages of such a step alone, over connections that have been idle.
- handled: CPU time of the node's event loop for the messages of a rehearsed step; only on a shared
  machine.
- late: the longest delay of the node's event loop in a round.
- stolen: CPU time stolen by the host of a virtual machine in a round.
- on: 1, for the accelerator of this kind and number N that did a round's work; absent if the CPU
  did.
- product: the CPU time of a matrix product of N FLOPs; only on a real node that computes on its
  CPU.
"""

STREAM_MESSAGES = 3
FILL_MESSAGES = 6
SWAP_MESSAGES = 4
"""Limit on a rehearsed message, as a multiple of the largest single one.

Such a message takes up to a second. In this time the messages of unequal links overlap as in
training, where a switch queues bytes for a busy link.
"""
BURST_MESSAGES = 50


def sample_name(what: str, where: str | int, number: float) -> str:
    """Return a sample's name.

    *where* is the peer, pattern or kind of work; *number* is bytes or FLOPs.
    """
    return f"{what}:{where}:{round(number)}"


class SampleRow(NamedTuple):
    """One sample: in round *number*, node *rank* recorded *seconds* for *name*."""

    rank: int
    number: int
    name: str
    seconds: float

    @property
    def parts(self) -> tuple[str, str, int]:
        """The arguments of `sample_name` that make this name."""
        what, where, number = self.name.split(":")
        return what, where, int(number)


def rows_of(nodes: Iterable[NodeRecord]) -> list[SampleRow]:
    """Return every sample of *nodes*, by rank and then in the order of measurement."""
    return [SampleRow(node.rank, metric.step, metric.name, metric.value) for node in nodes for metric in node.metrics]


def pairs_of(rows: Iterable[SampleRow]) -> dict[tuple[int, int], PairSamples]:
    """Return (rank that took the samples, peer's rank) -> the samples, in order.

    With a peer of lower rank, a node takes only burst, sends, fill and both: the other samples are
    symmetric.
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
