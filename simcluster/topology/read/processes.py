"""Several processes on one machine, as a topology: each is a worker, and the machine is the switch between them.

`mini1` with two processes becomes the workers `mini1_0` and `mini1_1`, linked by loopback to a switch `mini1`, which
keeps its links. They share the device evenly: its FLOP/s, its memory and its price. A measured profile is that of one
process, and stays.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from simcluster.errors import Problem
from simcluster.topology.model.device import Device
from simcluster.topology.model.model import Node
from simcluster.topology.read.launch import LAUNCH_KEYS
from simcluster.units import write_bandwidth, write_rate, write_size

LINK = "loopback"
OF_MACHINE = ("site",)
OF_BOTH = frozenset({"kind", "nproc_per_node"})


def names_of(name: str, count: int) -> list[str]:
    """Return the names of the *count* processes of node *name*."""
    return [f"{name}_{number}" for number in range(count)] if count > 1 else [name]


def clashes(nodes: Mapping[str, Node], counts: Mapping[str, int]) -> list[Problem]:
    """Return a problem for each process that would have another node's name."""
    return [
        Problem(f"nodes.{name}", f"{count} processes, one of them called {process}", "no other node of that name")
        for name, count in counts.items()
        for process in names_of(name, count)
        if count > 1 and process in nodes
    ]


def with_processes(document: Mapping[str, Any], nodes: Mapping[str, Node], counts: Mapping[str, int]) -> dict[str, Any]:
    """Return *document*, a checked topology with *nodes*, with each node split into its number of *counts*."""
    made = copy.deepcopy(dict(document))
    made["nodes"], links = {}, list(made.get("links") or [])
    for name, block in document["nodes"].items():
        count = counts.get(name, 1)
        block = copy.deepcopy(block or {})
        if count == 1:
            block.pop("nproc_per_node", None)
            made["nodes"][name] = block
            continue
        machine = {key: block[key] for key in OF_MACHINE if key in block}
        own = {key: value for key, value in block.items() if key not in OF_BOTH}
        device = nodes[name].device
        assert device is not None, "only workers have processes"
        for number, process in enumerate(names_of(name, count)):
            made["nodes"][process] = own | _share(device, count) | _port(own, number)
            links.append({"between": [name, process], "type": LINK})
        made["nodes"][name] = {"kind": "switch"} | machine
    made["links"] = links
    if "launch" in made:
        made["launch"] = {key: made["launch"][key] for key in LAUNCH_KEYS[:2] if key in made["launch"]}
    return made


def _port(own: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a separate port for each process."""
    return {"port": own["port"] + number} if own.get("port") is not None else {}


def _share(device: Device, count: int) -> dict[str, Any]:
    """Return the share of *device* of one of *count* processes, as keys of a node."""
    share: dict[str, Any] = {"flops": write_rate(device.flops_per_s / count)}
    if math.isfinite(device.memory_bandwidth_Bps):
        share["memory_bandwidth"] = write_bandwidth(device.memory_bandwidth_Bps / count)
    if device.memory_bytes is not None:
        share["memory"] = write_size(device.memory_bytes // count)
    if device.power_idle_W is not None and device.power_busy_W is not None:
        share["power_idle"] = f"{device.power_idle_W / count!r} W"
        share["power_busy"] = f"{device.power_busy_W / count!r} W"
    if device.price_USD_per_h is not None:
        share["price_per_hour"] = f"{device.price_USD_per_h / count!r} USD/h"
    return share
