"""Write a run as a Chrome trace, which Perfetto opens; read back the parts that plots need.

One process per node (pid = rank), one thread per lane: "compute", "send", "recv", and of a script "call", "wait" and
"step"; after them, if there were any, a process for faults and one for re-formed groups of ranks. A device works on one
thing at a time, but sends and receives of a node may overlap, and spans of one thread must nest; so an overlapping span
goes to the first free lane: "send 2", "send 3", ... Times are rounded to nanoseconds, the resolution of Perfetto's
clock, so that adjacent spans do not overlap by a rounding error of the format.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from simcluster.runs import words
from simcluster.runs.record import LISTED, NodeRecord, RunRecord, Span, SpanKind, regroups
from simcluster.runs.spans import PARTS, Rest

KINDS: Final[tuple[SpanKind, ...]] = ("compute", "send", "recv")

CALL_KINDS: Final[tuple[SpanKind, ...]] = ("call", "wait", "step")
"""Kinds of the spans of a script's calls and steps: they overlap the others, which make them up."""

COUNTERS: Final = ("loss", "eval_loss", "eval_accuracy", "staleness")
"""Metrics shown as counter tracks."""


def events(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield the events one by one, since a long run has many."""
    few = len(record.nodes) <= LISTED
    for node in record.nodes:
        if few or not node.is_idle:
            yield from _process(node)
    yield from trace_events(record.extra.get("faults", ()), record.elapsed_s, len(record.nodes))
    yield from group_events(regroups(record.nodes), len(record.nodes) + 1)


def description(record: RunRecord, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace without its events. "rest" has, by rank, the spans that are summed up."""
    rests = {str(node.rank): asdict(node.rest) for node in record.nodes if node.rest is not None}
    if not rests:
        return {"displayTimeUnit": "ms", "otherData": dict(other)}
    summed = sum(rest["spans"] for rest in rests.values())
    note = f"{summed} later spans are summed up: see the counters 'busy (%)' and 'sent (bytes)' of each node"
    return {"displayTimeUnit": "ms", "otherData": {**other, "note": note}, "rest": rests}


def nanoseconds(time_s: float) -> int:
    return round(time_s * 1e9)


def _process(node: NodeRecord) -> Iterator[dict[str, Any]]:
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
    # The rest: one value per part, up to the first of the empty parts at the end.
    rest = node.rest
    if rest is not None and rest.width_s:  # else it sums up nothing but receives
        after = max((part + 1 for part in range(PARTS) if rest.busy_s[part] or rest.sent_bytes[part]), default=0)
        for part in range(min(after + 1, PARTS)):
            time_s = part * rest.width_s
            yield _counter("busy (%)", time_s, node.rank, 100 * rest.busy_s[part] / rest.width_s)
            yield _counter("sent (bytes)", time_s, node.rank, rest.sent_bytes[part])


def _about(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "ts": 0, "pid": pid, "tid": tid, "args": args}


def _counter(name: str, time_s: float, pid: int, value: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "ts": nanoseconds(time_s) / 1e3, "pid": pid, "tid": 0, "args": {name: value}}


class Band(NamedTuple):
    """One spell of a fault; it ends with the run at the latest."""

    label: str
    start_s: float
    end_s: float
    is_moment: bool


def bands(rows: Sequence[Mapping[str, Any]], elapsed_s: float) -> list[Band]:
    """Return every spell of every fault, in the order of the rows."""
    found = []
    for row in rows:
        kind = row["kind"]
        label = f"{'not there before its join' if kind == 'join' else kind}: {row['target']}"
        for start_s, end_s in row["spells_s"]:
            found.append(Band(label, start_s, max(start_s, elapsed_s) if end_s is None else end_s, kind == "crash"))
    return found


def trace_events(rows: Sequence[Mapping[str, Any]], elapsed_s: float, pid: int) -> Iterator[dict[str, Any]]:
    """Yield the process *pid* of a Chrome trace, named faults: a thread for each fault, a span for each spell."""
    if rows:
        yield _about("process_name", pid, 0, name="faults")
    for thread, row in enumerate(rows, start=1):
        for band in bands([row], elapsed_s):
            start_ns, end_ns = nanoseconds(band.start_s), nanoseconds(band.end_s)
            shape = {"ph": "i", "s": "g"} if band.is_moment else {"ph": "X", "dur": (end_ns - start_ns) / 1e3}
            place = {"ts": start_ns / 1e3, "pid": pid, "tid": thread}
            yield {**shape, "cat": "fault", "name": band.label, **place, "args": dict(row["plan"])}


def group_events(rows: Sequence[Mapping[str, Any]], pid: int) -> Iterator[dict[str, Any]]:
    """Yield the process *pid* of a Chrome trace, named groups: an instant for each re-formed group."""
    if rows:
        yield _about("process_name", pid, 0, name="groups")
    for row in rows:
        name = f"{words.plural(len(row['members']), 'rank')} from step {row['step']}"
        place = {"ts": nanoseconds(row["time_s"]) / 1e3, "pid": pid, "tid": 1}
        args = {key: row[key] for key in ("lost", "joined", "members")}
        yield {"ph": "i", "s": "g", "cat": "regroup", "name": name, **place, "args": args}


def assign_lanes(spans: list[Span]) -> list[int]:
    """Return, for each of *spans*, sorted by start, the lowest lane that is free by then."""
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
    """Return, by rank, the spans that were summed up; empty if every span was written."""
    return {int(rank): Rest(**rest) for rank, rest in trace.get("rest", {}).items()}


def spans_of(trace: Mapping[str, Any], kinds: Collection[str] = KINDS) -> list[tuple[int, Span]]:
    """Return (rank, span) for every span of *kinds* of a trace that `events` wrote, in its order; times to 1 ns."""
    found = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in kinds:
            args, end_s = event["args"], round(event["ts"] * 1e3 + event["dur"] * 1e3) / 1e9
            span = Span(event["cat"], event["ts"] / 1e6, end_s, args.get("peer", -1), args["tag"], args["bytes"])
            found.append((event["pid"], span))
    return found
