"""The processor that a node's part of a language model computes on: an accelerator, or CPU cores."""

from __future__ import annotations

from collections import Counter

import msgspec
import torch

from simcluster.compute import device_of
from simcluster.process.intra_op import usable_cores, use_threads
from simcluster.topology import Topology
from simcluster.topology.model.model import Node


class NodeProcessor(msgspec.Struct, frozen=True):
    """The device and the CPU threads that a node computes with, from its topology.

    *compute* names the device, and *threads* limits the CPU threads. If *threads* is None, the node
    uses an equal share of the cores of its machine, which runs *sharing* nodes.
    """

    compute: str
    threads: int | None
    sharing: int

    def device(self) -> torch.device:
        """Return the device. Raise UsageError if this machine does not have it."""
        return device_of(self.compute)

    def use_threads(self) -> None:
        """Let the calling thread compute with all CPU threads of this node."""
        use_threads(self.threads or max(1, usable_cores() // self.sharing))


def processors_of(topology: Topology) -> dict[str, NodeProcessor]:
    """Return node -> its processor, for all workers."""
    workers = [topology.nodes[name] for name in topology.workers]
    counts = Counter(map(_machine, workers))
    return {node.name: NodeProcessor(node.compute, node.threads, counts[_machine(node)]) for node in workers}


def _machine(node: Node) -> str:
    """Return the name or address of the machine that runs *node*, or "" if that is this machine."""
    address = node.ssh or node.address or ""
    return node.machine or ("" if address.startswith("127.") or address == "localhost" else address)
