"""The clusters for checks: equal devices that take 1 ms for any piece of work; if uneven, the last one takes 4 ms."""

from __future__ import annotations

import copy
from typing import Any, Final, Literal, get_args

from simcluster.topology import chain, complete, ring, star

Shape = Literal["star", "line", "ring", "complete"]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)

WORK: Final = "1 ms"
SLOWER: Final = 4.0
"""Slow-down of the last node of an uneven cluster."""

_DEVICE: Final = {"flops": "1 PFLOP/s", "work_overhead": WORK}
BANDWIDTH: Final = "1 Gbps"
LATENCY: Final = "50 us"


def cluster(shape: Shape, size: int, *, uneven: bool = False) -> dict[str, Any]:
    """Return a topology as in an experiment: workers n0, n1, ... A ring of one or two is a line."""
    make = {"star": star, "line": chain, "ring": ring if size > 2 else chain, "complete": complete}[shape]
    made = make(size, device=_DEVICE, bandwidth=BANDWIDTH, latency=LATENCY)
    document = copy.deepcopy(dict(made.document))
    if uneven:
        document["nodes"][f"n{size - 1}"]["straggler"] = {"kind": "constant", "factor": SLOWER}
    return document


def islands(size: int) -> dict[str, Any]:
    """Return a line of *size* without a link to the last worker."""
    document = cluster("line", size)
    document["links"] = document["links"][:-1]
    return document
