"""The places of a run's nodes: this machine, a machine reached by ssh, or wherever they are started by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcluster.experiment.job import Remote
from simcluster.topology import Topology
from simcluster.topology.model.model import Node

Address = tuple[str, int]


def places(topology: Topology, options: Mapping[str, Any]) -> tuple[list[Address | None], list[Remote | None]]:
    """Return (addresses, remotes) of a ClusterJob, by rank.

    A node with `ssh` is started by ssh unless the option *ssh* is false. Of the others, those with an address are
    started by hand if there is a meeting place; all the rest start here.
    """
    nodes = [topology.nodes[name] for name in topology.workers]
    by_ssh = options.get("ssh", True)
    meets = any(options.get(name) is not None for name in ("rendezvous", "coordinator"))
    remotes = [_remote(node) if by_ssh else None for node in nodes]
    addresses = [
        (node.address, node.port or 0) if meets and node.address and remote is None else None
        for node, remote in zip(nodes, remotes, strict=True)
    ]
    return addresses, remotes


def _remote(node: Node) -> Remote | None:
    if node.ssh is None:
        return None
    return Remote(node.ssh, node.command or Remote.command, node.address, node.port or 0)
