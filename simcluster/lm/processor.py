"""The part of a machine on which the engine of a language model computes: one thread of the CPU.

Everything that predicts or starts an engine takes its topology from here, until stages move to accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simcluster.errors import Problem, raise_all
from simcluster.topology import Device, Topology
from simcluster.topology.model.compute import ACCELERATORS, AUTO, CPU, kind_of


def engine_topology(topology: Topology, backend: str = "sim") -> Topology:
    """Return *topology* with each device as an engine uses it, as far as there are numbers of its CPU. Raise UsageError
    for real nodes that ask for an accelerator.
    """
    problems, nodes, alike = list[Problem](), {}, dict[int, Device]()
    for name, node in topology.nodes.items():
        nodes[name] = node
        if node.device is None:
            continue
        device = node.device
        if kind_of(node.compute) in ACCELERATORS and backend != "sim":
            expected = "cpu or auto: the engine computes with one CPU thread"
            problems.append(Problem(f"nodes.{name}.compute", f"{node.compute!r} on a real node", expected))
        elif not _is_alone(device) and (device.threads > 1 or device.computes_on != CPU or node.compute != CPU):
            if id(device) not in alike:  # only to find the same again
                alike[id(device)] = (device.cpu or device).on_one_thread()
            nodes[name] = replace(node, device=alike[id(device)], compute=CPU)
    raise_all(problems)
    return replace(topology, nodes=nodes) if alike else topology


def told(topology: Topology, names: Sequence[str]) -> Iterator[str]:
    """Yield which nodes of *names* the engine does not use as *topology* asks."""
    asked: dict[str, list[str]] = {}
    for name in names:
        node = topology.nodes[name]
        if node.device is not None and _is_alone(node.device):
            words = f"times of {node.compute} without numbers of the CPU, which is all that the engine uses"
        elif node.compute not in (CPU, AUTO) or (node.device is not None and node.device.computes_on != CPU):
            words = f"{node.compute} is one CPU thread, which is all that the engine uses"
        else:
            continue
        asked.setdefault(words, []).append(name)
    for words, those in asked.items():
        few = ", ".join(those[:8]) + (f" and {len(those) - 8} more" if len(those) > 8 else "")
        yield f"compute: {words}: {few}"


def _is_alone(device: Device) -> bool:
    """Return whether all numbers of *device* are an accelerator's."""
    return device.computes_on != CPU and device.cpu is None and device.name == "custom"
