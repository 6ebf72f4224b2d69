"""Find the machine and the local rank of every rank, as torchrun numbers its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from simcluster.topology.model.model import Topology
from simcluster.topology.read.processes import LINK


@dataclass(frozen=True)
class RankPlace:
    """The place of a rank: it is *local_rank* of *local_size* ranks on its machine.

    *machine* is the index of this machine; *machines* is the number of machines.
    """

    machine: int = 0
    machines: int = 1
    local_rank: int = 0
    local_size: int = 1


def rank_places(topology: Topology) -> tuple[RankPlace, ...]:
    """Return the place of every rank of *topology*.

    Ranks share a machine if they are processes of one node (`nproc_per_node`), or if their nodes
    have the same `machine`.
    """
    hubs = _hubs(topology)
    machines = [_machine_of(name, topology, hubs) for name in topology.workers]
    sizes = Counter(machines)
    numbers = {name: number for number, name in enumerate(sizes)}
    seen: Counter[str] = Counter()
    places = []
    for name in machines:
        places.append(RankPlace(numbers[name], len(numbers), seen[name], sizes[name]))
        seen[name] += 1
    return tuple(places)


def machine_count(topology: Topology) -> int:
    """Return the number of machines of *topology*."""
    places = rank_places(topology)
    return places[0].machines if places else 0


def _hubs(topology: Topology) -> dict[str, str]:
    """Return worker -> the switch of its machine, for workers linked to a switch by loopback."""
    hubs: dict[str, str] = {}
    for link in topology.links:
        if link.type != LINK:
            continue
        for name, other in ((link.a, link.b), (link.b, link.a)):
            if not topology.nodes[other].is_worker:
                hubs.setdefault(name, other)
    return hubs


def _machine_of(name: str, topology: Topology, hubs: Mapping[str, str]) -> str:
    if (machine := topology.nodes[name].machine) is not None:
        return f"machine {machine}"
    return hubs.get(name, name)
