"""Says in sentences what a run was and how it went."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from simcluster.runs import words
from simcluster.runs.summary import label

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology


def headline(run: RunFolder, topology: Topology) -> str:
    """Who trained what on which cluster, and how far it got in what time."""
    summary, workload = run.summary, run.config.get("workload")
    did = "was timed at training" if words.timed_only(summary) else "trained"
    who = f"{summary['algorithm']} {did} {label(workload) if workload else 'a model'}"
    nodes = words.plural(len(summary["nodes"]), "node")
    steps, time = words.plural(summary["steps"], "step"), clock_words(summary)
    # Nodes on sockets may be anything, whatever the topology says of them.
    devices = _devices(topology) if summary["backend"] == "sim" else ""
    start = f"{who} on {nodes} of {summary['topology']}{devices}"
    if summary["status"] != "done":
        return f"{start} and failed after {steps} and {time}."
    if summary["accuracy"] is not None:
        return f"{start} and reached {words.accuracy(summary['accuracy'])} accuracy after {steps} and {time}."
    if summary["loss"] is not None:
        return f"{start} and reached a loss of {words.number(summary['loss'])} after {steps} and {time}."
    return f"{start}: {steps} in {time}."


def losses(summary: dict[str, Any]) -> str:
    """Who was lost on the way, and why; nothing if nobody was, or if the run's error says it."""
    lost = summary.get("lost", {})
    if len(lost) == 1 and summary.get("error", {}).get("type") == "PeerLost":
        return ""
    each = [f"{name} ({reason})" for name, reason in lost.items()]
    return f"Lost on the way: {words.listing(each)}." if each else ""


def carried(summary: dict[str, Any]) -> str:
    """What the numbers of the links mean."""
    if summary["backend"] == "sim":
        return "What each link carried, and for what share of the run it was busy, at its full bandwidth."
    return (
        "What each link of the topology would have carried, and for what share of the run at its full bandwidth. "
        "The bytes themselves took whatever way there was between the nodes' processes."
    )


def about_devices(summary: dict[str, Any]) -> str:
    """What a reader of a measured run must not take for measured."""
    if summary["backend"] == "sim":
        return ""
    return "Devices and what they consume are the topology's, whatever machines the nodes ran on."


def clock_words(summary: dict[str, Any]) -> str:
    return f"{words.seconds(summary['elapsed_s'])} of {clock_name(summary)}"


def clock_name(summary: dict[str, Any]) -> str:
    return "virtual time" if summary["backend"] == "sim" else "measured time"


def _devices(topology: Topology) -> str:
    devices = [topology.nodes[name].device for name in topology.workers]
    counts = Counter(device.name for device in devices if device is not None)
    if not counts or len(counts) > 6:
        return ""
    return " (" + words.listing([f"{count} {name}" for name, count in counts.items()]) + ")"


def compute_share(summary: dict[str, Any]) -> float:
    """The mean, over nodes, of the share of the run in which the device worked: 0 to 1."""
    nodes, elapsed_s = summary["nodes"].values(), summary["elapsed_s"]
    if not nodes or not elapsed_s:
        return 0.0
    return float(sum(node["compute_s"] for node in nodes) / (len(nodes) * elapsed_s))


def dominated(summary: dict[str, Any], topology: Topology) -> str:
    """What most of the time went to: computing, one slow node, one busy link, or waiting without either."""
    nodes, elapsed_s = summary["nodes"], summary["elapsed_s"]
    if not nodes or not elapsed_s:
        return "Nothing took any time."
    mean = compute_share(summary)
    slowest = max(nodes, key=lambda name: nodes[name]["compute_s"])
    slowest_share = nodes[slowest]["compute_s"] / elapsed_s
    link_share, link_words = _busiest_link(summary, topology)
    if summary["backend"] != "sim":
        link_share = 0.0  # the links that carried the bytes are unknown
    average = f"devices worked {words.share(mean)} of the time on average"
    if mean >= 0.6:
        first = f"Computing dominated: {average}"
    elif slowest_share >= 0.6 and slowest_share >= link_share:
        worked = f"it computed {words.share(slowest_share)} of the time"
        first = f"Waiting for {slowest} dominated: {worked}, while {average}"
    elif link_share >= 0.5:
        return f"Communication dominated: {link_words}, while {average}."
    else:
        first = f"Waiting dominated: {average}"
    return f"{first}; {link_words}." if link_words else f"{first}."


def _busiest_link(summary: dict[str, Any], topology: Topology) -> tuple[float, str]:
    """The share of the run, both ways added, in which the busiest link carried something; and the same in
    words.

    In most algorithms nodes do not send while they receive, so a full-duplex link that is busy 40 % of the
    time each way keeps them waiting for 80 %.
    """
    use = summary["links"]
    if not use:
        return 0.0, ""
    capacities = {link.name: link.bandwidth_Bps * summary["elapsed_s"] for link in topology.links}
    both_ways = {name: use[name]["bytes"] / capacities[name] for name in use}
    busiest = max(both_ways, key=lambda name: both_ways[name])
    one_way, both = use[busiest]["busy_fraction"], both_ways[busiest]
    if summary["backend"] != "sim":
        return both, f"the topology's {busiest} would have been in use {words.share(one_way)} of the time"
    more = f" ({words.share(both)} with both ways added)" if both > 1.2 * one_way else ""
    return both, f"the busiest link, {busiest}, was in use {words.share(one_way)} of the time{more}"
