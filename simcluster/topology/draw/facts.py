"""Describe in words what a user should know about a topology before a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from simcluster.process.terminal import columns
from simcluster.topology.idle_links import idle_words, parallel_words
from simcluster.topology.model.link import stages
from simcluster.topology.model.model import Topology
from simcluster.units import format_bandwidth, format_latency, format_rate, format_size

MAX_PAIRS_OF = 256
"""The maximum number of workers for which all routes are examined.

With more workers, only the routes between every k-th worker are examined, and the report says so.
"""

MOST_WORK = 2_000_000
"""Limit on the work of finding routes, in links followed and hops counted: a matter of seconds.

If all routes would take more work, fewer workers are examined.
"""

MOST_NAMED = 12
"""The maximum number of nodes that the description of a route names; it omits the middle ones."""

_EXAMPLE_BYTES = 1_000_000


class Survey(NamedTuple):
    """The extreme routes between *chosen* workers, each as a pair of workers.

    *diameter* has the most hops, *longest* the highest latency, *narrowest* the lowest bandwidth.
    If *exact*, all workers were examined.
    """

    diameter: tuple[str, str]
    longest: tuple[str, str]
    narrowest: tuple[str, str]
    chosen: int
    exact: bool


def survey(topology: Topology) -> Survey | None:
    """Return the pairs of workers with the extreme routes; None for a single worker.

    Ties go to the pair with the lowest ranks.
    """
    workers = topology.workers
    if len(workers) < 2:
        return None
    step = math.ceil(len(workers) / MAX_PAIRS_OF)
    chosen = workers[::step]
    while len(chosen) > 2 and _work(topology, chosen, len(chosen) * (len(chosen) - 1) // 2) > MOST_WORK:
        step *= 2
        chosen = workers[::step]
    pairs = list(combinations(chosen, 2))
    return Survey(
        max(pairs, key=lambda pair: len(stages(topology.route(*pair)))),
        max(pairs, key=lambda pair: topology.route_latency_s(*pair)),
        min(pairs, key=lambda pair: topology.route_bandwidth_Bps(pair[0], pair[1], _EXAMPLE_BYTES)),
        len(chosen),
        step == 1,
    )


def _work(topology: Topology, starts: Sequence[str], routes: int) -> int:
    """Return the work of finding *routes* routes from *starts*, in the unit of MOST_WORK.

    Nodes that a single link attaches to the same switch share one search, from the switch.
    """
    first: dict[str, str] = {}
    several = set()
    for link in topology.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if first.setdefault(end, other) != other:
                several.add(end)
    searches = len({name if name in several else first.get(name, name) for name in starts})
    some = starts[:: max(1, len(starts) // 8)]
    hops = max(len(topology.route(some[0], name)) for name in some)
    return searches * (len(topology.nodes) + 2 * len(topology.links)) + routes * hops


def halves_Bps(topology: Topology) -> float | None:
    """Return the bandwidth between the lower and the upper half of the ranks, in each direction.

    Every rank i of the lower half sends to rank i + n/2 at the same time, and flows share each link
    equally. The result is the number of flows times the rate of the slowest. Computing the true
    bisection bandwidth, the minimum over all ways to halve the cluster, is NP-hard. Return 0 if
    there are fewer than two workers, and None if the routes would take too long to find.
    """
    workers = topology.workers
    half = len(workers) // 2
    if half > MAX_PAIRS_OF and _work(topology, workers[:half], half) > MOST_WORK:
        return None
    pairs = zip(workers[:half], workers[-half:], strict=True) if half else ()
    routes = [topology.route(a, b, math.inf) for a, b in pairs]
    hops = [hop for route in routes for hop in route]
    seconds_per_B: dict[tuple[str, bool], float] = {}
    for hop in hops:
        seconds_per_B[hop.lane] = seconds_per_B.get(hop.lane, 0.0) + hop.share / hop.link.bandwidth_Bps
    rates = [
        hop.link.bandwidth_Bps / hop.share if hop.link.duplex == "free" else 1 / seconds_per_B[hop.lane] for hop in hops
    ]
    return min(rates, default=0.0) * len(routes)


def describe(topology: Topology) -> str:
    """Return a description of *topology*: its nodes with their ranks, its links and its routes."""
    kinds = [node.kind for node in topology.nodes.values()]
    hosts = f"{_count(kinds.count('host'), 'bare host')}, " if "host" in kinds else ""
    lines = [
        f"{topology.name}: {_count(kinds.count('worker'), 'worker')}, {hosts}"
        f"{_count(kinds.count('switch'), 'switch', 'switches')}, {_count(len(topology.links), 'link')}"
    ]
    if topology.description:
        lines.append(" ".join(topology.description.split()))
    if topology.network != "maxmin":
        lines.append(f"network: modelled as {topology.network}")
    if topology.routing != "shortest":
        lines.append(f"routing: {topology.routing}, pairs are spread over equally good paths")
    if topology.paths:
        lines.append(f"routes: {', '.join(' > '.join(path) for path in topology.paths)}")
    lines += [*parallel_words(topology), *idle_words(topology)]
    if topology.inbox_bytes is not None:
        unread = f"{format_size(topology.inbox_bytes)} per peer" if topology.inbox_bytes else "nothing"
        lines.append(f"inboxes: a node accepts {unread} before its recv")
    for machine, (cores, wakeup_s) in topology.machines.items():
        names = [node.name for node in topology.nodes.values() if node.machine == machine]
        lines.append(f"{machine}: {_count(cores, 'core')}, shared by {', '.join(names) or 'no node'}")
        lines[-1] += f"; a thread waits {format_latency(wakeup_s)} for a busy one" if wakeup_s else ""
    lines += [f"background from {flow}" for flow in topology.background]
    rows = [(link.name, *link.numbers, link.type or "", ", ".join(link.conditions)) for link in topology.links]
    links = columns((("link", "bandwidth", "latency", "duplex", "type", ""), *rows)) if rows else ["no links"]
    return "\n".join([*lines, "", *_node_lines(topology), "", *links, "", *_route_lines(topology)])


def _node_lines(topology: Topology) -> list[str]:
    rows: list[tuple[str, ...]] = []
    ranks = {name: rank for rank, name in enumerate(topology.workers)}
    devices = {node.device: str(node.device) for node in topology.nodes.values()}
    for node in topology.nodes.values():
        if node.device is None:
            rows.append(("-", node.name, node.kind, node.site or ""))
            continue
        overheads = (("send", node.send_overhead_s), ("receive", node.recv_overhead_s))
        asked = f", asked for {node.compute}" if node.compute != node.device.computes_on else ""
        about = [
            f"on {node.device.computes_on}{asked}: {devices[node.device]}",
            "" if node.gateway else "forwards nothing",
            f"at {node.address}" + (f":{node.port}" if node.port is not None else "") if node.address else "",
            node.site or "",
            *(f"{format_latency(seconds)} per message to {what}" for what, seconds in overheads if seconds),
            f"{format_bandwidth(node.host_bandwidth_Bps)} in and out combined"
            if math.isfinite(node.host_bandwidth_Bps)
            else "",
            f"sends {format_size(node.send_buffer_bytes)} ahead" if node.send_buffer_bytes else "",
        ]
        rows.append((str(ranks[node.name]), node.name, node.device.name, ", ".join(filter(None, about))))
    return columns((("rank", "node", "device", ""), *rows))


def _route_lines(topology: Topology) -> list[str]:
    devices = [node.device for node in topology.nodes.values() if node.device is not None]
    if not devices:
        return ["no workers: for plain flows only"]
    rates = [device.flops_per_s / (device.straggler.mean_factor if device.straggler else 1) for device in devices]
    spread = max(rates) / min(rates)
    fastest = f"the fastest worker is {spread:.3g} times as fast as the slowest"
    compared = "all workers are equally fast" if spread == 1 else fastest
    lines = [f"compute: {format_rate(sum(rates))} together, {compared}"]
    found = survey(topology)
    if found is None:
        return lines
    if not found.exact:
        lines.append(f"(routes between {found.chosen} workers, evenly chosen)")
    hops = len(stages(topology.route(*found.diameter)))
    lines.append(f"diameter: {_count(hops, 'hop')}, {_way(topology, *found.diameter)}")
    longest = format_latency(topology.route_latency_s(*found.longest))
    lines.append(f"longest latency: {longest} one way, {_way(topology, *found.longest)}")
    narrowest_Bps = topology.route_bandwidth_Bps(*found.narrowest, _EXAMPLE_BYTES)
    seconds = topology.route_latency_s(*found.narrowest, _EXAMPLE_BYTES) + _EXAMPLE_BYTES / narrowest_Bps
    lines.append(
        f"narrowest route: {format_bandwidth(narrowest_Bps)}, {_way(topology, *found.narrowest)}; "
        f"{format_size(_EXAMPLE_BYTES)} takes {format_latency(seconds)}"
    )
    all_Bps = halves_Bps(topology)
    unknown = "not computed for this many routes"
    together = unknown if all_Bps is None else f"{format_bandwidth(all_Bps)} in total each way"
    return [*lines, f"lower to upper half of the ranks, all at once: {together}"]


def _way(topology: Topology, a: str, b: str) -> str:
    names = [a, *(parts[0].target for parts in stages(topology.route(a, b)))]
    if len(names) > MOST_NAMED:
        names[MOST_NAMED // 2 : -MOST_NAMED // 2] = ["..."]
    return " > ".join(names)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
