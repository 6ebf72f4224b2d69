"""How long each link and host is busy per byte, if several pairs of nodes send at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simcluster.topology.model.model import Topology


def busy_byte_s(
    topology: Topology, pairs: Iterable[tuple[str, str]], size: float
) -> dict[tuple[str, bool] | str, float]:
    """Return the busy seconds of each link, medium and host, per byte, if all *pairs* send *size* bytes.

    A "free" link gives every flow its full bandwidth, so it counts as busy with one flow only.
    """
    busy: dict[tuple[str, bool] | str, float] = {}
    for a, b in pairs:
        for hop in topology.route(a, b, size):
            before = 0.0 if hop.link.duplex == "free" else busy.get(hop.lane, 0.0)
            busy[hop.lane] = before + hop.share / hop.link.bandwidth_Bps
        for name in (a, b):
            busy[name] = busy.get(name, 0.0) + 1 / topology.nodes[name].host_bandwidth_Bps
    return busy


def bytes_s(topology: Topology, pairs: Sequence[tuple[str, str]], size: float) -> list[float]:
    """Return the seconds per byte of each of *pairs*, if all of them send *size* bytes at once."""
    busy = busy_byte_s(topology, pairs, size)
    return [max(busy[place] for place in busy_byte_s(topology, [pair], size)) for pair in pairs]
