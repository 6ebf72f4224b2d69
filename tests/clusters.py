"""Clusters for tests: ideal stars and chains whose times can be computed by hand."""

from __future__ import annotations

from itertools import pairwise

from simcluster.topology import Device, Link, Node, Topology

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
