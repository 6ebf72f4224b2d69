"""Split a node with several processes into one worker per process and a switch between them.

`mini1` with two processes becomes the workers `mini1_0` and `mini1_1`, linked by loopback to a
switch `mini1`, which keeps the links of the node. The workers share the device evenly: the FLOP/s
and memory of its CPU and its accelerator, its power and its price. A measured profile is that of
one process, and stays unchanged.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from simcluster.documents.yaml import Document
from simcluster.errors import Problem, UsageError
from simcluster.topology.model.device import Accelerator, Device
from simcluster.topology.model.model import Topology
from simcluster.topology.presets.generators import MOST_WORKERS, Made
from simcluster.topology.read.nodes import LAUNCH_KEYS
from simcluster.units import write_bandwidth, write_rate, write_size

LINK = "loopback"


def with_processes(topology: Topology, document: Document) -> Made | None:
    """Return the document of *topology*, read from *document*, with each node split into processes.

    Return None if no node has several processes. Raise UsageError if there are too many processes,
    or if one would have another node's name.
    """
    counts = {name: node.processes for name, node in topology.nodes.items() if node.processes and node.processes > 1}
    if not counts:
        return None
    processes = sum(counts.values())
    if processes > MOST_WORKERS:
        found, expected = f"{processes} processes in all", f"at most {MOST_WORKERS}"
        raise UsageError(document.problem(("launch", "nproc_per_node"), found=found, expected=expected))
    clashes = [
        Problem(f"nodes.{name}", f"{count} processes, one of them called {process}", "no other node of that name")
        for name, count in counts.items()
        for process in _names(name, count)
        if process in topology.nodes
    ]
    if clashes:
        raise UsageError(clashes)
    made: Made = copy.deepcopy(dict(topology.document))
    made["nodes"], links = {}, list(made.get("links") or [])
    if topology.parallel == "address" and topology.bundles:  # the switches in place of nodes have no address
        made["parallel"] = sorted({one.parts[0][0].name for (one,) in topology.bundles.values()})
    for name, block in topology.document["nodes"].items():
        own = {key: value for key, value in copy.deepcopy(block or {}).items() if key != "nproc_per_node"}
        if name not in counts:
            made["nodes"][name] = own
            continue
        own.pop("kind", None)
        share = _share(topology.nodes[name].device, counts[name])
        if "accelerator" in share:
            share["accelerator"] = (own.get("accelerator") or {}) | share["accelerator"]
        for number, process in enumerate(_names(name, counts[name])):
            port = {"port": own["port"] + number} if own.get("port") is not None else {}
            made["nodes"][process] = own | share | port
            links.append({"between": [name, process], "type": LINK})
        made["nodes"][name] = {"kind": "switch"} | {key: own[key] for key in ("site",) if key in own}
    made["links"] = links
    if "launch" in made:
        made["launch"] = {key: made["launch"][key] for key in LAUNCH_KEYS[:2] if key in made["launch"]}
    return made


def _names(name: str, count: int) -> list[str]:
    return [f"{name}_{number}" for number in range(count)]


def _share(device: Device | None, count: int) -> dict[str, Any]:
    """Return the keys of a node with one of *count* equal shares of *device*."""
    assert device is not None, "only workers have processes"
    share = _numbers(device.cpu or device, count)
    if (usable := (device.cpu or device).usable_bytes) is not None:
        share["usable_memory"] = write_size(usable // count)
    if device.accelerator is not None:
        share["accelerator"] = _numbers(device.accelerator, count)
    if device.power_idle_W is not None and device.power_busy_W is not None:
        share["power_idle"] = f"{device.power_idle_W / count!r} W"
        share["power_busy"] = f"{device.power_busy_W / count!r} W"
    if device.price_USD_per_h is not None:
        share["price_per_hour"] = f"{device.price_USD_per_h / count!r} USD/h"
    return share


def _numbers(part: Device | Accelerator, count: int) -> dict[str, Any]:
    share: dict[str, Any] = {"flops": write_rate(part.flops_per_s / count)}
    if math.isfinite(part.memory_bandwidth_Bps):
        share["memory_bandwidth"] = write_bandwidth(part.memory_bandwidth_Bps / count)
    if part.memory_bytes is not None:
        share["memory"] = write_size(part.memory_bytes // count)
    return share
