"""Write the tables of report.html (nodes, links, faults, groups), and sentences about the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Any

from simcluster.lab.reports.html_page import table
from simcluster.lab.reports.sections import spread
from simcluster.runs import words
from simcluster.runs.calls import call_totals
from simcluster.runs.folder import RunFolder, size_of
from simcluster.runs.summary import label
from simcluster.topology import Topology
from simcluster.units import format_bandwidth

THREE = '<p class="note">Least / median / most.</p>'

SAID_ELSEWHERE = ("kind", "node", "link", "towards", "groups", "at", "for")
"""Settings of a fault that its row shows in other columns."""


def headline(run: RunFolder, topology: Topology) -> str:
    """Return a sentence that names the run's algorithm, workload, cluster, progress and time."""
    summary = run.summary
    workload = run.config.get("workload")
    did = "was timed at training" if words.timed_only(summary) else "trained"
    who = f"{summary['algorithm']} {did} {label(workload) if workload else 'a model'}"
    nodes = words.plural(size_of(summary), "node")
    steps = words.steps(summary)
    time = f"{words.seconds(summary['elapsed_s'])} of {clock_name(summary)}"
    # Only simulated nodes are certain to be the topology's devices: real nodes may be any machines.
    counts = Counter(topology.device(name).name for name in topology.workers if summary["backend"] == "sim")
    told = words.listing([f"{count} {name}" for name, count in counts.items()])
    start = f"{who} on {nodes} of {summary['topology']}" + (f" ({told})" if 0 < len(counts) <= 6 else "")
    if summary["status"] != "done":
        return f"{start} and failed after {steps} and {time}."
    if summary["accuracy"] is not None:
        return f"{start} and reached {words.accuracy(summary['accuracy'])} accuracy after {steps} and {time}."
    if summary["loss"] is not None:
        return f"{start} and reached a loss of {words.number(summary['loss'])} after {steps} and {time}."
    return f"{start}: {steps} in {time}."


def losses(summary: dict[str, Any]) -> str:
    """Return a sentence that names the lost nodes.

    Return "" if no node was lost, or if the run's error already names the only one.
    """
    lost = summary.get("lost", {})
    if len(lost) == 1 and summary.get("error", {}).get("type") == "PeerLost":
        return ""
    each = [f"{name} ({reason})" for name, reason in lost.items()]
    return f"Lost on the way: {words.listing(each)}." if each else ""


def doubts(summary: Mapping[str, Any]) -> str:
    """Return the warnings of a run as HTML for its header; "" if there are none."""
    rows = "".join(f"<li>{escape(row['text'])}</li>" for row in summary.get("warnings", ()))
    return f'<div class="doubts" role="note"><strong>This result is doubtful</strong><ul>{rows}</ul></div>' * bool(rows)


HEADERS = "Headers of messages count, but take no time"


def carried(summary: dict[str, Any]) -> str:
    """Return a note that explains the numbers of the links."""
    if summary["backend"] == "sim":
        text = "What each link carried, and for what share of the run it was busy, at its full bandwidth."
        above = any(link["busy_fraction"] > 1 for link in summary["links"].values())
        return f"{text} {HEADERS}, so small messages can fill more than 100 %." if above else text
    return (
        "What each link of the topology would have carried, and for what share of the run at its full bandwidth. "
        "The bytes themselves took whatever way there was between the nodes' processes."
    )


def clock_name(summary: dict[str, Any]) -> str:
    return "virtual time" if summary["backend"] == "sim" else "measured time"


def compute_share(summary: dict[str, Any]) -> float:
    """Return the share of the run, 0 to 1, for which a device computed on average."""
    nodes = summary["nodes"].values()
    elapsed_s = summary["elapsed_s"]
    if not nodes or not elapsed_s:
        return 0.0
    return float(sum(node["compute_s"] for node in nodes) / (size_of(summary) * elapsed_s))


def dominated(summary: dict[str, Any], topology: Topology) -> str:
    """Return a sentence on what took the most time: computing, a slow node, a link, or waiting."""
    nodes = summary["nodes"]
    elapsed_s = summary["elapsed_s"]
    if not nodes or not elapsed_s:
        return "Nothing took any time."
    mean = compute_share(summary)
    slowest = max(nodes, key=lambda name: nodes[name]["compute_s"])
    slowest_share = nodes[slowest]["compute_s"] / elapsed_s
    link_share, link_words = _busiest_link(summary, topology)
    if summary["backend"] != "sim":
        link_share = 0.0  # It is unknown which links carried the bytes.
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
    """Return (busy share of the busiest link, a clause that describes it).

    The share adds both directions: in most algorithms nodes do not send while they receive, so a
    full-duplex link that is busy for 40 % of the time in each direction makes them wait for 80 %.
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
    notes = [f"{words.share(both)} with both ways added"] if both > 1.2 * one_way else []
    notes += [HEADERS.lower()] if one_way > 1 else []
    more = f" ({'; '.join(notes)})" if notes else ""
    return both, f"the busiest link, {busiest}, was in use {words.share(one_way)} of the time{more}"


def calls_table(run: RunFolder) -> str:
    """Return a table with a row per rank and operation of a script; "" for other runs."""
    names = {node["rank"]: name for name, node in run.summary["nodes"].items()}
    rows = [
        {
            "node": escape(names.get(rank, str(rank))),
            "call": escape(operation),
            "calls": words.count(one.calls),
            "bytes": words.size(one.size_bytes),
            "took": words.seconds(one.seconds),
            "waited": words.seconds(one.waited_s),
        }
        for rank, of_rank in list(call_totals(run.calls).items())[: spread.MANY]
        for operation, one in of_rank.items()
    ]
    return table(rows, {"node", "call"}) if rows else ""


def nodes_table(run: RunFolder, topology: Topology) -> str:
    elapsed_s = run.summary["elapsed_s"]
    lost = run.summary.get("lost", {})
    rows = []
    for name, why in spread.standing_out(run.summary["nodes"], "compute_s", lost).items():
        node = run.summary["nodes"][name]
        sha256 = node["weights_sha256"]
        rows.append(
            {
                "rank": str(node["rank"]),
                "node": escape(name) + (' <span class="lost">lost</span>' if name in lost else ""),
                "shown as": why or words.ABSENT,
                "device": escape(topology.device(name).name),
                "computing": _bar(node["compute_s"] / elapsed_s if elapsed_s else 0.0),
                "computed": words.seconds(node["compute_s"]),
                "waited": words.seconds(node["wait_s"]),
                "sent": words.size(node["bytes_sent"]),
                "received": words.size(node["bytes_received"]),
                "messages": words.count(node["messages_sent"]),
                "finished": words.seconds(node["finished_s"]),
                "energy": words.energy(node.get("joules")),
                "price": words.price(node.get("price_usd")),
                "weights": f"<code>{escape(sha256[:8])}</code>" if sha256 else words.ABSENT,
            }
        )
    return table(rows, {"node", "shown as", "device"})


def nodes_spread(run: RunFolder, topology: Topology) -> str:
    """Return groups and distributions of the nodes; "" if there are at most MANY nodes."""
    if len(nodes := run.summary["nodes"].values()) <= spread.MANY:
        return ""
    groups = table(spread.node_groups(run, topology), {"site", "device"})
    return f"{THREE}{groups}{spread.distributions(spread.node_measures(nodes, run))}"


def links_spread(run: RunFolder, topology: Topology) -> str:
    """Return groups and distributions of the links; "" if there are none."""
    if not (links := run.summary["links"].values()):
        return ""
    groups = table(spread.link_groups(run, topology), {"bandwidth", "kind"})
    return f"{THREE}{groups}{spread.distributions(spread.link_measures(links))}"


def links_table(run: RunFolder, topology: Topology) -> str:
    use = run.summary["links"]
    known = {link.name: link for link in topology.links}
    rows = []
    for name, why in spread.standing_out(use, "busy_fraction").items():
        link = known[name]
        rows.append(
            {
                "link": escape(name),
                "shown as": why or words.ABSENT,
                "bandwidth": format_bandwidth(link.bandwidth_Bps),
                "latency": words.seconds(link.latency_s),
                "duplex": escape(str(link.duplex)),
                "carried": words.size(use[name]["bytes"]),
                "busy": _bar(use[name]["busy_fraction"]),
            }
        )
    return f'<div class="links">{table(rows, {"link", "shown as"})}</div>'


def faults_table(run: RunFolder) -> str:
    """Return a table of the faults and their effects, in the plan's order; "" without faults."""
    heads = ("fault", "of", "settings", "when", "dropped")
    rows = [dict(zip(heads, map(escape, cells(row)), strict=True)) for row in run.summary.get("faults", ())]
    return table(rows, set(heads[:4])) if rows else ""


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a row of `faults_table`: kind, target, settings, times, dropped bytes."""
    settings = {name: value for name, value in row["plan"].items() if name not in SAID_ELSEWHERE}
    shown = [_when(start_s, end_s, row["kind"]) for start_s, end_s in row["spells_s"][:3]]
    more = len(row["spells_s"]) - len(shown)
    return [
        str(row["kind"]),
        str(row["target"]),
        ", ".join(f"{name} {value}" for name, value in settings.items()) or words.ABSENT,
        ", ".join(shown) + (f" and {words.plural(more, 'more time')}" if more else ""),
        words.size(row["dropped_bytes"]) if row["dropped_bytes"] else words.ABSENT,
    ]


def _when(start_s: float, end_s: float | None, kind: str) -> str:
    if kind == "crash":
        return f"at {words.seconds(start_s)}"
    if kind == "join":
        return "never" if end_s is None else f"at {words.seconds(end_s)}"
    until = "to the end" if end_s is None else f"to {words.seconds(end_s)}"
    return f"{words.seconds(start_s)} {until}"


def regroups_table(run: RunFolder) -> str:
    """Return a table of the re-formed groups of ranks, in order of time; "" if there are none."""
    kinds = ("lost", "joined", "members")
    rows = [
        {"at": words.seconds(row["time_s"]), "from step": str(row["step"])}
        | {kind: escape(", ".join(row[kind]) or words.ABSENT) for kind in kinds}
        for row in run.summary.get("regroups", ())
    ]
    return table(rows, set(kinds)) if rows else ""


def _bar(fraction: float) -> str:
    width = min(100.0, max(0.0, fraction * 100))
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span><b>{escape(words.share(fraction))}</b>'
