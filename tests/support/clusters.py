"""Clusters for tests: ideal stars and chains whose times can be computed by hand; single nodes as files have them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sim import verdict_of
from simcluster_backends.sim.cluster import SimCluster

from simcluster.errors import RunError, UsageError
from simcluster.topology import Device, Link, Node, Topology, loads
from simcluster.topology import star as generated_star
from simcluster.transport import Transport

IDEAL = Device("ideal", flops_per_s=1e9)


def star(
    size: int, bandwidth_Bps: float = 125e6, latency_s: float = 25e-6, duplex: str = "full", **devices: Device
) -> Topology:
    """*size* workers n0, n1, ... around a switch; a route's latency is twice *latency_s*."""
    names = [f"n{i}" for i in range(size)]
    nodes = {name: Node(name, devices.get(name, IDEAL)) for name in names} | {"sw": Node("sw")}
    links = tuple(Link(name, "sw", bandwidth_Bps, latency_s, duplex) for name in names)  # type: ignore[arg-type]
    return Topology("star", nodes, links)


def uneven_star(*flops: str, **links: str) -> dict[str, Any]:
    """Return the document of a star whose workers compute at rates *flops*, with *links* as its generator has them."""
    document = dict(generated_star(len(flops), **links).document)
    document["nodes"] |= {f"n{rank}": {"flops": rate} for rank, rate in enumerate(flops)}
    return document


def pair(bandwidth_Bps: float = 1e6, latency_s: float = 0.0, duplex: str = "full", **link: Any) -> Topology:
    """Workers n0 and n1 with one link, of which *link* are further fields."""
    nodes = {name: Node(name, IDEAL) for name in ("n0", "n1")}
    return Topology("pair", nodes, (Link("n0", "n1", bandwidth_Bps, latency_s, duplex, **link),))  # type: ignore[arg-type]


def complete(latencies_s: Mapping[tuple[int, int], float], bandwidth_Bps: float = 125e6) -> Topology:
    """Workers n0, n1, ... with a link for each pair, which all between the two takes: a way round may be faster."""
    names = [f"n{rank}" for rank in range(max(b for _, b in latencies_s) + 1)]
    ends = {(names[a], names[b]): latency_s for (a, b), latency_s in latencies_s.items()}
    links = tuple(Link(a, b, bandwidth_Bps, latency_s) for (a, b), latency_s in ends.items())
    return Topology("complete", {name: Node(name, IDEAL) for name in names}, links, paths=tuple(ends))


def with_nodes(topology: Topology, **fields: Any) -> Topology:
    """*topology*, with these fields on each of its workers."""
    nodes = {name: replace(node, **fields) if node.is_worker else node for name, node in topology.nodes.items()}
    return replace(topology, nodes=nodes)


def with_links(topology: Topology, **fields: Any) -> Topology:
    """*topology*, with these fields on each of its links."""
    return replace(topology, links=tuple(replace(link, **fields) for link in topology.links))


def run(topology: Topology, *bodies: Any, **options: Any) -> list[Any]:
    """What each body returned in the simulator; raises what any of them raised."""
    results = SimCluster(topology, **options).run(bodies)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def now() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


def arrivals(topology: Topology, sizes: Sequence[int], *, seed: int = 0, **options: Any) -> list[float]:
    """When messages of *sizes* bytes arrive at n1 that n0 sends at time 0, one behind the other."""

    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            for size in sizes:
                group.create_task(node.send(1, "t", block(size)))

    async def receiver(node: Transport) -> list[float]:
        times = []
        for _ in sizes:
            await node.recv(0, "t")
            times.append(now())
        return times

    found: list[float] = run(topology, sender, receiver, seed=seed, **options)[1]
    return found


def block(size: int) -> torch.Tensor:
    """Return *size* bytes without values."""
    return torch.empty(size, dtype=torch.uint8, device="meta")


def chain(size: int, bandwidth_Bps: float = 125e6, latency_s: float = 25e-6) -> Topology:
    """Workers n0-n1-n2-..., each a gateway."""
    names = [f"n{i}" for i in range(size)]
    links = tuple(Link(a, b, bandwidth_Bps, latency_s) for a, b in pairwise(names))
    return Topology("chain", {name: Node(name, IDEAL) for name in names}, links)


def device_of(topology: Topology, name: str = "a") -> Device:
    """The device of a node."""
    device = topology.nodes[name].device
    assert device is not None
    return device


def read_device(keys: str) -> Device:
    """The device of a node a with these *keys*."""
    return device_of(loads(f"nodes: {{a: {{{keys}}}}}"))


def problems_of(keys: str) -> list[str]:
    """What is wrong with the *keys* of a node a of the file t.yaml."""
    with pytest.raises(UsageError) as error:
        loads(f"nodes: {{a: {{{keys}}}}}", "t.yaml")
    return [str(problem) for problem in error.value.problems]


def topology_with_trace(folder: Path, csv: str, name: str = "pi4.csv") -> Path:
    """A topology file with a trace beside it."""
    (folder / name).write_text(csv)
    path = folder / "cluster.yaml"
    path.write_text(f"nodes: {{a: {{device: raspberry-pi-4, straggler: {{kind: trace, file: {name}}}}}}}\n")
    return path


def outcome(cluster: SimCluster) -> tuple[RunError | None, dict[str, str]]:
    """(the error of a run that is over, the nodes that it lost, by name, and why)."""
    verdict = verdict_of(cluster)
    return verdict.error, verdict.lost
