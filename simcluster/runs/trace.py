"""Write a run as a Chrome trace, which Perfetto opens, and read back the parts that plots need.

Each node is a process (pid = rank), and each lane a thread: "compute", "send", "recv", and for a
script "call", "wait" and "step". After the nodes there is a process for faults and one for
re-formed groups of ranks, if there were any. Spans of one thread must nest, but the sends and
receives of a node may overlap. So an overlapping span goes to the first free lane: "send 2", "send
3", ... Times are rounded to nanoseconds, the resolution of Perfetto's clock, so that adjacent spans
do not overlap by a rounding error of the format.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from simcluster.runs import words
from simcluster.runs.record import LISTED, NodeRecord, RunRecord, Span, SpanKind, regroups
from simcluster.runs.spans import PARTS, Rest

Event = dict[str, Any]
"""One event of a Chrome trace, as JSON."""

Rows = Sequence[Mapping[str, Any]]
"""The rows of faults, or of re-formed groups, in summary.json."""

KINDS: tuple[SpanKind, ...] = ("compute", "send", "recv")

CALL_KINDS: tuple[SpanKind, ...] = ("call", "wait", "step")
"""Kinds of spans of a script's calls and steps, which overlap the spans that they consist of."""

COUNTERS = ("loss", "eval_loss", "eval_accuracy", "staleness")
"""Metrics that Perfetto shows as counter tracks."""


def events(record: RunRecord) -> Iterator[Event]:
    """Yield all events of the trace of *record*: a long run has too many for a list."""
    few = len(record.nodes) <= LISTED
    for node in record.nodes:
        if few or not node.is_idle:
            yield from _process(node)
    yield from trace_events(record.extra.get("faults", ()), record.elapsed_s, len(record.nodes))
    yield from group_events(regroups(record.nodes), len(record.nodes) + 1)


def description(record: RunRecord, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a trace other than its events, with *other* data.

    "rest" has the sums of spans by rank.
    """
    rests = {str(node.rank): asdict(node.rest) for node in record.nodes if node.rest is not None}
    if not rests:
        return {"displayTimeUnit": "ms", "otherData": dict(other)}
    summed = sum(rest["spans"] for rest in rests.values())
    note = f"{summed} later spans are summed up: see the counters 'busy (%)' and 'sent (bytes)' of each node"
    return {"displayTimeUnit": "ms", "otherData": {**other, "note": note}, "rest": rests}


def nanoseconds(time_s: float) -> int:
    return round(time_s * 1e9)


def _process(node: NodeRecord) -> Iterator[Event]:
    yield _about("process_name", node.rank, 0, name=f"{node.rank} {node.name}")
    yield _about("process_sort_index", node.rank, 0, sort_index=node.rank)
    # Threads are numbered from 1, kind by kind, since viewers use thread 0 for the process itself.
    first_tid = 1
    for kind in (*KINDS, *CALL_KINDS):
        spans = sorted((span for span in node.spans if span.kind == kind), key=lambda span: span[1:])
        lanes = assign_lanes(spans)
        count = max(lanes, default=-1) + 1
        for lane in range(count):
            yield _about("thread_name", node.rank, first_tid + lane, name=kind if lane == 0 else f"{kind} {lane + 1}")
        for span, lane in zip(spans, lanes, strict=True):
            start_ns, end_ns = nanoseconds(span.start_s), nanoseconds(span.end_s)
            times = {"ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3}
            place = {"pid": node.rank, "tid": first_tid + lane}
            args = {"tag": span.tag, "bytes": span.size_bytes} | ({"peer": span.peer} if span.peer >= 0 else {})
            yield {"ph": "X", "cat": kind, "name": span.tag or kind, **times, **place, "args": args}
        first_tid += count
    for metric in node.metrics:
        if metric.name in COUNTERS and math.isfinite(metric.value):
            yield _counter(metric.name, metric.time_s, node.rank, metric.value)
    # The spans that are summed up become counters with one value per part. The last value is that
    # of the first part after which all are empty: it sets the counter to zero. If the width is 0,
    # all these spans are receives.
    rest = node.rest
    if rest is not None and rest.width_s:
        after = max((part + 1 for part in range(PARTS) if rest.busy_s[part] or rest.sent_bytes[part]), default=0)
        for part in range(min(after + 1, PARTS)):
            time_s = part * rest.width_s
            yield _counter("busy (%)", time_s, node.rank, 100 * rest.busy_s[part] / rest.width_s)
            yield _counter("sent (bytes)", time_s, node.rank, rest.sent_bytes[part])


def _about(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "ts": 0, "pid": pid, "tid": tid, "args": args}


def _counter(name: str, time_s: float, pid: int, value: float) -> Event:
    return {"ph": "C", "name": name, "ts": nanoseconds(time_s) / 1e3, "pid": pid, "tid": 0, "args": {name: value}}


class Band(NamedTuple):
    """One period during which a fault was active; it ends with the run at the latest."""

    label: str
    start_s: float
    end_s: float
    is_moment: bool


def bands(rows: Rows, elapsed_s: float) -> list[Band]:
    """Return the bands of all faults in *rows*, in their order; the run ends at *elapsed_s*."""
    found = []
    for row in rows:
        kind = row["kind"]
        label = f"{'not there before its join' if kind == 'join' else kind}: {row['target']}"
        for start_s, end_s in row["spells_s"]:
            found.append(Band(label, start_s, max(start_s, elapsed_s) if end_s is None else end_s, kind == "crash"))
    return found


def trace_events(rows: Rows, elapsed_s: float, pid: int) -> Iterator[Event]:
    """Yield a process *pid* named faults: a thread for each fault, a span for each band."""
    if rows:
        yield _about("process_name", pid, 0, name="faults")
    for thread, row in enumerate(rows, start=1):
        for band in bands([row], elapsed_s):
            start_ns, end_ns = nanoseconds(band.start_s), nanoseconds(band.end_s)
            shape = {"ph": "i", "s": "g"} if band.is_moment else {"ph": "X", "dur": (end_ns - start_ns) / 1e3}
            place = {"ts": start_ns / 1e3, "pid": pid, "tid": thread}
            yield {**shape, "cat": "fault", "name": band.label, **place, "args": dict(row["plan"])}


def group_events(rows: Rows, pid: int) -> Iterator[Event]:
    """Yield the events of a process *pid* named groups: an instant for each re-formed group."""
    if rows:
        yield _about("process_name", pid, 0, name="groups")
    for row in rows:
        name = f"{words.plural(len(row['members']), 'rank')} from step {row['step']}"
        place = {"ts": nanoseconds(row["time_s"]) / 1e3, "pid": pid, "tid": 1}
        args = {key: row[key] for key in ("lost", "joined", "members")}
        yield {"ph": "i", "s": "g", "cat": "regroup", "name": name, **place, "args": args}


def assign_lanes(spans: list[Span]) -> list[int]:
    """Return the lowest free lane for each of *spans*, which are sorted by start."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    lanes = []
    for span in spans:
        start_ns = nanoseconds(span.start_s)
        while busy and busy[0][0] <= start_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (nanoseconds(span.end_s), lane))
        lanes.append(lane)
    return lanes


def rests_of(trace: Mapping[str, Any]) -> dict[int, Rest]:
    """Return rank -> sum of the spans that *trace* does not list; empty if it lists all."""
    return {int(rank): Rest(**rest) for rank, rest in trace.get("rest", {}).items()}


def spans_of(trace: Mapping[str, Any], kinds: Collection[str] = KINDS) -> list[tuple[int, Span]]:
    """Return (rank, span) for each span of *kinds* in *trace*; times are rounded to 1 ns."""
    found = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in kinds:
            args = event["args"]
            end_s = round(event["ts"] * 1e3 + event["dur"] * 1e3) / 1e9
            span = Span(event["cat"], event["ts"] / 1e6, end_s, args.get("peer", -1), args["tag"], args["bytes"])
            found.append((event["pid"], span))
    return found
