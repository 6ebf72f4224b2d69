"""Clusters for tests: ideal stars and chains whose times can be computed by hand; single nodes as files have them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from simcluster.errors import UsageError
from simcluster.topology import Device, Link, Node, Topology, loads

IDEAL = Device("ideal", flops_per_s=1e9)


def star(
    size: int, bandwidth_Bps: float = 125e6, latency_s: float = 25e-6, duplex: str = "full", **devices: Device
) -> Topology:
    """*size* workers n0, n1, ... around a switch; a route's latency is twice *latency_s*."""
    names = [f"n{i}" for i in range(size)]
    nodes = {name: Node(name, devices.get(name, IDEAL)) for name in names} | {"sw": Node("sw")}
    links = tuple(Link(name, "sw", bandwidth_Bps, latency_s, duplex) for name in names)  # type: ignore[arg-type]
    return Topology("star", nodes, links)


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
