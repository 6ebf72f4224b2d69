"""Clusters for papers, as an experiment's topology block, and the reference to a quadratic workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BOWL = f"{Path(__file__).parent / 'bowl.py'}:bowl"
"""The `path` of a workload block: |x|^2/2 with noise in its gradient; see bowl.py for its settings."""

Straggler = Mapping[str, Any] | None

_FAST = "1000 PFLOP/s"  # arithmetic takes no time: work takes its overhead, and that times a straggler's factor
_WIDE = "1000 TB/s"


def star(
    stragglers: Sequence[Straggler], *, work: str = "1 s", bandwidth: str = _WIDE, latency: str = "0 us"
) -> dict[str, Any]:
    """Workers n0, n1, ... around a switch, whose every piece of work takes *work*, times a straggler's factor."""
    nodes: dict[str, Any] = {f"n{rank}": _node(work, straggler) for rank, straggler in enumerate(stragglers)}
    return _star(nodes, bandwidth, latency)


def served(
    stragglers: Sequence[Straggler],
    *,
    work: str = "1 s",
    server_work: str = "100 ns",
    bandwidth: str = _WIDE,
    latency: str = "0 us",
) -> dict[str, Any]:
    """A server n0 whose updates hardly take time, and the workers n1, n2, ..., one for each straggler model."""
    nodes: dict[str, Any] = {"n0": _node(server_work, None)}
    nodes |= {f"n{rank}": _node(work, straggler) for rank, straggler in enumerate(stragglers, start=1)}
    return _star(nodes, bandwidth, latency)


def _node(work: str, straggler: Straggler) -> dict[str, Any]:
    keys: dict[str, Any] = {"flops": _FAST, "work_overhead": work}
    return keys if straggler is None else {**keys, "straggler": dict(straggler)}


def _star(nodes: dict[str, Any], bandwidth: str, latency: str) -> dict[str, Any]:
    links = [{"between": [name, "sw"], "bandwidth": bandwidth, "latency": latency} for name in nodes]
    return {"name": f"star-{len(nodes)}", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}
