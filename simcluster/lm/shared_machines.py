"""Processes of one machine share its memory bus and its cores."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from simcluster.topology import Device, Topology
from simcluster.topology.model.compute import CPU


def device_among(topology: Topology, name: str, names: Collection[str]) -> Device:
    """Return the device of node *name*, slowed as if all nodes of *names* compute at once.

    Nodes of one machine that compute on its CPU divide its memory bandwidth evenly, and its cores
    if there are fewer cores than threads.
    """
    node, device = topology.nodes[name], topology.device(name)
    if node.machine is None or device.computes_on != CPU:
        return device
    sharers = sum(topology.nodes[other].machine == node.machine for other in names)
    if sharers < 2:
        return device
    crowding = max(1.0, sharers * device.threads / topology.machines[node.machine].cores)
    bandwidth_Bps, flops_per_s = device.memory_bandwidth_Bps / sharers, device.flops_per_s / crowding
    return replace(device, memory_bandwidth_Bps=bandwidth_Bps, flops_per_s=flops_per_s)


def while_computing(topology: Topology, names: Collection[str]) -> Topology:
    """Return *topology* with the devices of *names* slowed as if all these nodes compute."""
    if not topology.machines:
        return topology
    nodes = {name: replace(topology.nodes[name], device=device_among(topology, name, names)) for name in names}
    return replace(topology, nodes={**topology.nodes, **nodes})
