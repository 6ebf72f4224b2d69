"""The tables of report.html for many nodes: groups, distributions, and by name the worst and the typical."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

from simcluster.lab.reports.scales import LOGARITHMIC_FROM
from simcluster.runs import words

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology

MANY = 64
"""Of more nodes, or links, a report sums up all, and names those that stand out."""
WORST, TYPICAL, LOST = 8, 3, 8
"""Nodes and links shown by name."""
MAX_GROUPS = 12
BINS, BIN_PX, HIGH_PX = 40, 6, 56

Say = Callable[[float], str]


def standing_out(rows: Mapping[str, dict[str, Any]], key: str, lost: Sequence[str] = ()) -> dict[str, str]:
    """Return name -> why it is shown: all of up to MANY, else lost ones, those with most of *key*, and typical ones."""
    if len(rows) <= MANY:
        return dict.fromkeys(rows, "")
    ordered = sorted(rows, key=lambda name: -rows[name][key])
    middle = (len(ordered) - TYPICAL) // 2
    why = dict.fromkeys(ordered[middle : middle + TYPICAL], "typical")
    usual = rows[ordered[middle]][key]
    why = {name: "most" for name in ordered[:WORST] if rows[name][key] > usual} | why
    return {name: "lost" for name in list(lost)[:LOST] if name in rows} | {
        name: word for name, word in why.items() if name not in lost
    }


def shown_words(count: int, what: str, most: str) -> str:
    """Return a sentence about the rows that `standing_out` chooses from *count*; empty if it chooses all."""
    if count <= MANY:
        return ""
    return f"Of {words.count(count)} {what}: up to {WORST} that {most}, and {TYPICAL} at the median."


def node_groups(run: RunFolder, topology: Topology) -> list[dict[str, str]]:
    """Return a row for each site and device, the largest first: least, median and most over its nodes."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, node in run.summary["nodes"].items():
        known = topology.nodes[name]
        device = known.device.name if known.device is not None else words.ABSENT
        groups.setdefault((known.site or words.ABSENT, device), []).append(node)
    elapsed_s = run.summary["elapsed_s"] or 1.0
    return [
        {
            "site": escape(site),
            "device": escape(device),
            "nodes": words.count(len(found)),
            "computing": three([node["compute_s"] / elapsed_s for node in found], words.share),
            "waited": three([node["wait_s"] for node in found], words.seconds),
            "sent": three([node["bytes_sent"] for node in found], words.size),
            "finished": three([node["finished_s"] for node in found], words.seconds),
        }
        for (site, device), found in _largest(groups)
    ]


def link_groups(run: RunFolder, topology: Topology) -> list[dict[str, str]]:
    """Return a row for each kind of link, the most numerous first: least, median and most over its links."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for link in topology.links:
        if link.name in run.summary["links"]:
            kind = (words.bandwidth(link.bandwidth_Bps), f"{words.seconds(link.latency_s)}, {link.duplex} duplex")
            groups.setdefault(kind, []).append(run.summary["links"][link.name])
    return [
        {
            "bandwidth": escape(bandwidth),
            "kind": escape(kind),
            "links": words.count(len(found)),
            "carried": three([link["bytes"] for link in found], words.size),
            "busy": three([link["busy_fraction"] for link in found], words.share),
        }
        for (bandwidth, kind), found in _largest(groups)
    ]


def _largest(
    groups: Mapping[tuple[str, str], list[dict[str, Any]]],
) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """Return the largest MAX_GROUPS of *groups*, and the others as one."""
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    if len(ordered) <= MAX_GROUPS:
        return ordered
    others = ordered[MAX_GROUPS - 1 :]
    rest = [row for _, found in others for row in found]
    return [*ordered[: MAX_GROUPS - 1], ((f"{len(others)} more kinds", words.ABSENT), rest)]


def three(values: Sequence[float], say: Say) -> str:
    found = [say(value) for value in (min(values), median(values), max(values))]
    return escape(found[0] if len(set(found)) == 1 else " / ".join(found))


def distributions(measures: Mapping[str, tuple[Sequence[float], Say]]) -> str:
    """Return a histogram for each of the *measures*, name -> (values, how to say one), whose values differ."""
    drawn = [
        _histogram(name, values, say)
        for name, (values, say) in measures.items()
        if say(min(values)) != say(max(values))
    ]
    return f'<div class="spreads">{"".join(drawn)}</div>' if drawn else ""


def node_measures(run: RunFolder) -> dict[str, tuple[Sequence[float], Say]]:
    nodes, elapsed_s = run.summary["nodes"].values(), run.summary["elapsed_s"] or 1.0
    return {
        "computing": ([node["compute_s"] / elapsed_s for node in nodes], words.share),
        "waited": ([node["wait_s"] for node in nodes], words.seconds),
        "sent": ([node["bytes_sent"] for node in nodes], words.size),
        "finished": ([node["finished_s"] for node in nodes], words.seconds),
    }


def link_measures(run: RunFolder) -> dict[str, tuple[Sequence[float], Say]]:
    links = run.summary["links"].values()
    return {
        "busy": ([link["busy_fraction"] for link in links], words.share),
        "carried": ([link["bytes"] for link in links], words.size),
    }


def _histogram(name: str, values: Sequence[float], say: Say) -> str:
    """Return a histogram as SVG: in logarithmic steps if *values* are wide, and no bar is too low to see."""
    low, high = min(values), max(values)
    is_log = low > 0 and high / low >= LOGARITHMIC_FROM
    scale: Callable[[float], float] = math.log if is_log else float
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(BINS * (scale(value) - scale(low)) / (scale(high) - scale(low))))] += 1
    bars = "".join(
        f'<rect x="{BIN_PX * at}" width="{BIN_PX - 1}" y="{HIGH_PX - tall:.1f}" height="{tall:.1f}"/>'
        for at, number in enumerate(counts)
        if number and (tall := max(2.0, HIGH_PX * number / max(counts)))
    )
    about = f"median {say(median(values))}" + (", logarithmic" if is_log else "")
    label = f"{name}: distribution of {len(values)} from {say(low)} to {say(high)}, {about}"
    return f"""<figure class="spread"><figcaption><b>{escape(name)}</b> {escape(about)}</figcaption>
<svg viewBox="0 0 {BINS * BIN_PX} {HIGH_PX}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">
{bars}</svg>
<p><span>{escape(say(low))}</span><span>{escape(say(high))}</span></p></figure>"""
