"""The tables of report.html for many nodes: groups, distributions, the worst and typical nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from statistics import median
from typing import Any

from simcluster.lab.reports.scales import LOGARITHMIC_FROM
from simcluster.runs import words
from simcluster.runs.folder import RunFolder
from simcluster.topology import Topology
from simcluster.units import format_bandwidth

MANY = 64
"""Limit on nodes (or links) in a full list: with more, a report lists only those that stand out."""
WORST = 8
TYPICAL = 3
LOST = 8
"""Limits on the nodes and links shown by name: the worst, the typical and the lost ones."""
MAX_GROUPS = 12
BINS = 40
BIN_PX = 6
HIGH_PX = 56

Say = Callable[[float], str]
Measures = dict[str, tuple[Sequence[float], Say]]


def standing_out(rows: Mapping[str, dict[str, Any]], key: str, lost: Sequence[str] = ()) -> dict[str, str]:
    """Return name -> the reason to show its row ("" if all rows are shown).

    If there are more than MANY rows, the shown rows are those of *lost* nodes, those with the
    largest *key*, and typical ones.
    """
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
    """Return a sentence on the rows that `standing_out` chooses; "" if it chooses all *count*."""
    if count <= MANY:
        return ""
    return f"Of {words.count(count)} {what}: up to {WORST} that {most}, and {TYPICAL} at the median."


def node_groups(run: RunFolder, topology: Topology) -> list[dict[str, str]]:
    """Return a row per site and device with minimum, median and maximum; largest groups first."""
    groups = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for name, node in run.summary["nodes"].items():
        groups[topology.nodes[name].site or words.ABSENT, topology.device(name).name].append(node)
    return _rows(groups, ("site", "device", "nodes"), partial(node_measures, run=run))


def link_groups(run: RunFolder, topology: Topology) -> list[dict[str, str]]:
    """Return a row per kind of link with minimum, median and maximum; largest groups first."""
    groups = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for link in topology.links:
        if link.name in run.summary["links"]:
            kind = f"{words.seconds(link.latency_s)}, {link.duplex} duplex"
            groups[format_bandwidth(link.bandwidth_Bps), kind].append(run.summary["links"][link.name])
    return _rows(groups, ("bandwidth", "kind", "links"), link_measures)


def _rows(
    groups: Mapping[tuple[str, str], list[dict[str, Any]]],
    heads: Sequence[str],
    measures: Callable[[list[dict[str, Any]]], Measures],
) -> list[dict[str, str]]:
    """Return a row per group, at most MAX_GROUPS: the smallest groups share the last row."""
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    if len(ordered) > MAX_GROUPS:
        others = ordered[MAX_GROUPS - 1 :]
        rest = [row for _, found in others for row in found]
        ordered = [*ordered[: MAX_GROUPS - 1], ((f"{len(others)} more kinds", words.ABSENT), rest)]
    return [
        dict(zip(heads, (*map(escape, kind), words.count(len(found))), strict=True))
        | {name: three(*measured) for name, measured in measures(found).items()}
        for kind, found in ordered
    ]


def three(values: Sequence[float], say: Say) -> str:
    """Return "minimum / median / maximum" of *values*, or one string if all three are equal."""
    found = [say(value) for value in (min(values), median(values), max(values))]
    return escape(found[0] if len(set(found)) == 1 else " / ".join(found))


def distributions(measures: Measures) -> str:
    """Return a histogram for each of *measures* whose values differ.

    *measures* is name -> (values, function from a value to text).
    """
    drawn = [
        _histogram(name, values, say)
        for name, (values, say) in measures.items()
        if say(min(values)) != say(max(values))
    ]
    return f'<div class="spreads">{"".join(drawn)}</div>' if drawn else ""


def node_measures(nodes: Iterable[Mapping[str, Any]], run: RunFolder) -> Measures:
    elapsed_s = run.summary["elapsed_s"] or 1.0
    return {
        "computing": ([node["compute_s"] / elapsed_s for node in nodes], words.share),
        "waited": ([node["wait_s"] for node in nodes], words.seconds),
        "sent": ([node["bytes_sent"] for node in nodes], words.size),
        "finished": ([node["finished_s"] for node in nodes], words.seconds),
    }


def link_measures(links: Iterable[Mapping[str, Any]]) -> Measures:
    return {
        "carried": ([link["bytes"] for link in links], words.size),
        "busy": ([link["busy_fraction"] for link in links], words.share),
    }


def _histogram(name: str, values: Sequence[float], say: Say) -> str:
    """Return a histogram as SVG, with logarithmic bins for a wide range."""
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
