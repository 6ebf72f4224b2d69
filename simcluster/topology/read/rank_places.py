"""The places of ranks: which of them share a machine of the topology, as torchrun's processes share a node."""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.topology.model.model import Topology
from simcluster.topology.read.processes import LINK


@dataclass(frozen=True)
class RankPlace:
    """One rank: number *local_rank* of the *local_size* ranks of machine number *machine* of *machines*."""

    machine: int = 0
    machines: int = 1
    local_rank: int = 0
    local_size: int = 1


def rank_places(topology: Topology) -> tuple[RankPlace, ...]:
    """Return the place of every rank of *topology*.

    Ranks share a machine if they are processes of one node (`nproc_per_node`), or name the same `machine`.
    """
    machines = [_machine_of(name, topology) for name in topology.workers]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(machines))}
    return tuple(
        RankPlace(numbers[name], len(numbers), machines[:rank].count(name), machines.count(name))
        for rank, name in enumerate(machines)
    )


def machine_count(topology: Topology) -> int:
    """Return the number of machines of *topology*."""
    places = rank_places(topology)
    return places[0].machines if places else 0


def _machine_of(name: str, topology: Topology) -> str:
    if (machine := topology.nodes[name].machine) is not None:
        return f"machine {machine}"
    for link in topology.links:
        if link.type == LINK and name in (link.a, link.b):
            other = link.b if link.a == name else link.a
            if not topology.nodes[other].is_worker:
                return other
    return name
