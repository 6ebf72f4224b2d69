"""The spans of a run as typed arrays for the timeline of its report.

If a run has too many spans, the page has single spans only for some stretches; for the others, it
has each activity's share of time in every part of the run. The timeline says which of the two a
window shows, so nothing is lost silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import unescape
from typing import Any

import numpy as np
import numpy.typing as npt

from simcluster.lab.reports.sections.activity import MAX_BANDS, ActivitySpans
from simcluster.lab.reports.sections.coverage import FloatArray, covered, rest_shares
from simcluster.runs.spans import Rest
from simcluster.runs.trace import KINDS

MAX_SPANS = 40_000
"""Limit on single spans in a page: they take about 0.5 MB."""
MAX_NODES = 4096
MAX_TAGS = 4096
PARTS, MAX_SHARES = 512, 1_000_000
"""Number of parts of the run, and the limit on shares (nodes times kinds times parts) in a page."""
UNKNOWN, LEVELS = 255, 250
"""A byte holds a level: the share is (level / LEVELS) squared, so that 1 in 10,000 is not 0.

UNKNOWN is the level of a share that was not recorded.
"""

IntArray = npt.NDArray[np.int64]


class SpanColumns:
    """The spans as data for the page: *head* for JSON, and *content*, arrays one after the other.

    The arrays are start_s, length_s, bytes, peer, tag and shares.
    """

    def __init__(self, activity: ActivitySpans, *, most: int = MAX_SPANS) -> None:
        """Read the spans of the first MAX_NODES nodes.

        If there are more than *most*, keep only those of some stretches.
        """
        nodes = min(len(activity.names), MAX_NODES)
        found = [(rank, span) for rank, span in activity.spans if rank < nodes]
        number = {kind: index for index, kind in enumerate(KINDS)}
        lanes = np.array([rank * len(KINDS) + number[span.kind] for rank, span in found], dtype=np.int64)
        starts_s = np.array([span.start_s for _, span in found], dtype=np.float64)
        ends_s = np.array([span.end_s for _, span in found], dtype=np.float64)
        elapsed_s = max(float(activity.elapsed_s), float(ends_s.max(initial=0.0)))
        stretches = exact_stretches(starts_s, ends_s, elapsed_s, most)
        kept = np.zeros(len(found), dtype=bool)
        for from_s, to_s in stretches:
            kept |= (starts_s <= to_s) & (ends_s >= from_s)
        order = np.flatnonzero(kept)
        order = order[np.lexsort((starts_s[order], lanes[order]))]
        tags = {tag: at for at, tag in enumerate(dict.fromkeys(found[at][1].tag for at in order)) if at < MAX_TAGS}
        spans = [found[at][1] for at in order]
        self.head: dict[str, Any] = {
            "names": [unescape(name) for name in activity.names[:nodes]],
            "nodes": nodes,
            "elapsed_s": elapsed_s,
            "spans": len(found),
            "kept": len(order),
            "counts": np.bincount(lanes[order], minlength=nodes * len(KINDS)).tolist(),
            "tags": list(tags),
            "exact": stretches,
            "ended_s": _record_ends(lanes, ends_s, activity.rests, nodes),
            "bands": [[band.label, band.start_s, band.end_s, band.is_moment] for band in activity.faults[:MAX_BANDS]],
            "bands_left": max(0, len(activity.faults) - MAX_BANDS),
            "parts": 0,
        }
        self.content = (
            starts_s[order].tobytes()
            + (ends_s - starts_s)[order].astype(np.float32).tobytes()
            + np.array([span.size_bytes for span in spans], dtype=np.float32).tobytes()
            + np.array([span.peer for span in spans], dtype=np.int32).tobytes()
            + np.array([tags.get(span.tag, MAX_TAGS) for span in spans], dtype=np.uint16).tobytes()
        )
        if len(order) < len(found) or activity.rests:
            parts = max(32, min(PARTS, MAX_SHARES // (nodes * len(KINDS))))
            self.head["parts"] = parts
            self.content += _shares(lanes, starts_s, ends_s, elapsed_s, activity.rests, nodes, parts).tobytes()


def exact_stretches(starts_s: FloatArray, ends_s: FloatArray, elapsed_s: float, most: int) -> list[list[float]]:
    """Return the stretches of the run, as [from, to], for which single spans are kept.

    The only stretch is the whole run if it has at most *most* spans; otherwise, the stretches are
    its beginning, middle and end, with a third of *most* spans each.
    """
    if len(starts_s) <= most:
        return [[0.0, elapsed_s]]

    def widest(anchor: float) -> list[float]:
        low_s, high_s = 0.0, elapsed_s
        # Bisect the width: 40 halvings are exact to a nanosecond for runs of many minutes.
        for _ in range(40):
            width_s = (low_s + high_s) / 2
            from_s = anchor * (elapsed_s - width_s)
            touched = np.count_nonzero((starts_s <= from_s + width_s) & (ends_s >= from_s))
            low_s, high_s = (width_s, high_s) if touched <= most // 3 else (low_s, width_s)
        return [anchor * (elapsed_s - low_s), anchor * (elapsed_s - low_s) + low_s]

    return [found for anchor in (0.0, 0.5, 1.0) if (found := widest(anchor))[1] > found[0]]


def _record_ends(lanes: IntArray, ends_s: FloatArray, rests: Mapping[int, Rest], nodes: int) -> list[float | None]:
    """Return for each node the time at which its record of single spans ends.

    The time is None if the record covers the whole run.
    """
    found: list[float | None] = [None] * nodes
    for rank in rests:
        if rank < nodes:
            found[rank] = float(ends_s[lanes // len(KINDS) == rank].max(initial=0.0))
    return found


def _shares(
    lanes: IntArray,
    starts_s: FloatArray,
    ends_s: FloatArray,
    elapsed_s: float,
    rests: Mapping[int, Rest],
    nodes: int,
    parts: int,
) -> npt.NDArray[np.uint8]:
    """Return the level of the share that spans cover, by node, kind and part of the run."""
    edges_s = np.linspace(0.0, elapsed_s, parts + 1)
    levels = np.zeros((nodes * len(KINDS), parts), dtype=np.uint8)
    order = np.lexsort((starts_s, lanes))
    firsts = np.searchsorted(lanes[order], np.arange(nodes * len(KINDS) + 1))
    for lane in range(len(levels)):
        own = order[firsts[lane] : firsts[lane + 1]]
        shares = covered(starts_s[own], ends_s[own], edges_s)
        rank, kind = divmod(lane, len(KINDS))
        if (rest := rests.get(rank)) is not None and kind == 0:
            shares = shares + rest_shares(rest, edges_s)
        levels[lane] = np.ceil(LEVELS * np.sqrt(np.clip(shares, 0.0, 1.0)))
        if rest is not None and kind > 0:
            levels[lane, edges_s[1:] > ends_s[lanes // len(KINDS) == rank].max(initial=0.0)] = UNKNOWN
    return levels
