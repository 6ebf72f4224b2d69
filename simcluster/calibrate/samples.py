"""What a measuring run notes, by name: exchanges between pairs of nodes, and pieces of work.

This file knows how samples travel as metrics of a node's record. It must not know how they are taken or evaluated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from simcluster.results.record import NodeRecord

Samples: TypeAlias = dict[int, list[float]]
"""Seconds by size in bytes, or by FLOPs."""

ROUND, STREAM, BURST, SENDS, BOTH, FILL, WORK = "round", "stream", "burst", "sends", "both", "fill", "work"
"""The names' first words.

- round: a message of so many bytes there, and one as long back.
- stream: STREAM_MESSAGES messages of so many bytes there, the last one answered by an empty one.
- burst: BURST_MESSAGES empty messages there, the last one answered by an empty one.
- sends: how long the sends of such a burst took, all together.
- fill: how long the sends of STREAM_MESSAGES messages of so many bytes took, all together.
- both: a message of so many bytes there, and one back at the same time.
- work: a piece of work of this kind and so many FLOPs.
"""

STREAM_MESSAGES = 6
BURST_MESSAGES = 50


@dataclass
class PairSamples:
    """What node *a* measured with node *b*: seconds by body bytes.

    Of a higher rank with a lower one, burst, sends and fill only.
    """

    a: int
    b: int
    round: Samples = field(default_factory=lambda: defaultdict(list))
    stream: Samples = field(default_factory=lambda: defaultdict(list))
    burst: Samples = field(default_factory=lambda: defaultdict(list))
    sends: Samples = field(default_factory=lambda: defaultdict(list))
    both: Samples = field(default_factory=lambda: defaultdict(list))
    fill: Samples = field(default_factory=lambda: defaultdict(list))


WorkSamples: TypeAlias = dict[str, Samples]
"""Kind of work -> FLOPs -> seconds of every repetition."""


def pair_name(what: str, peer: int, size_bytes: int) -> str:
    return f"{what}:{peer}:{size_bytes}"


def work_name(kind: str, flops: float) -> str:
    return f"{WORK}:{kind}:{round(flops)}"


def pairs_of(nodes: Iterable[NodeRecord]) -> dict[tuple[int, int], PairSamples]:
    """The samples by rank of the node that took them and rank of its peer, in order."""
    pairs: dict[tuple[int, int], PairSamples] = {}
    for node in nodes:
        for metric in node.metrics:
            what, where, size = metric.name.split(":")
            if what != WORK:
                key = (node.rank, int(where))
                pair = pairs.setdefault(key, PairSamples(*key))
                getattr(pair, what)[int(size)].append(metric.value)
    return {key: pairs[key] for key in sorted(pairs)}


def work_of(node: NodeRecord) -> WorkSamples:
    """The samples of the work that *node* did."""
    work: WorkSamples = {}
    for metric in node.metrics:
        what, kind, flops = metric.name.split(":")
        if what == WORK:
            work.setdefault(kind, {}).setdefault(int(flops), []).append(metric.value)
    return work
