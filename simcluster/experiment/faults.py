"""The faults of an experiment: what breaks, where and when.

This file knows the kinds of faults and their keys. It must not know how a backend makes one happen.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.errors import nearest
from simcluster.experiment.reading import Reading
from simcluster.topology import Topology
from simcluster.units import UnitError, parse_latency


@dataclass(frozen=True)
class Crash:
    """A fault: the process of *rank* dies *at_s* seconds after the start."""

    rank: int
    at_s: float


def read_faults(reading: Reading, cluster: Topology | None) -> tuple[Crash, ...]:
    """The faults of the document; of any node if there is no *cluster* to look them up in."""
    faults = reading.document.data.get("faults") or []
    if not isinstance(faults, list):
        reading.bad(("faults",), "a list of {kind: crash, node: NAME, at: TIME}")
        return ()
    crashes = []
    for index, fault in enumerate(faults):
        path = ("faults", index)
        if not isinstance(fault, dict) or fault.keys() != {"kind", "node", "at"} or fault["kind"] != "crash":
            reading.bad(path, "{kind: crash, node: NAME, at: TIME}; crash is the only kind so far")
            continue
        workers = cluster.workers if cluster else [fault["node"]]
        if fault["node"] not in workers:
            reading.bad((*path, "node"), f"a worker: {nearest(str(fault['node']), workers)}")
            continue
        try:
            crashes.append(Crash(workers.index(fault["node"]), parse_latency(fault["at"])))
        except UnitError as error:
            reading.bad((*path, "at"), error.expected, error.found)
    return tuple(crashes)
