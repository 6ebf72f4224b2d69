"""Types and bounds of the files in a run directory, which may come from elsewhere.

They are checked once, when the files are read. Keys that are not named here are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from simcluster.runs.spans import PARTS
from simcluster.runs.trace import CALL_KINDS, KINDS

MOST_NODES = 100_000
MOST_RANKS = 2**20
MOST_DEPTH = 32
"""Limit on the nesting of lists and mappings."""

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Time = Annotated[float, Meta(ge=-1e12, le=1e12)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
Amount = Annotated[float, Meta(ge=0, le=1e18)] | None
Number = Annotated[float, Meta(ge=-1e300, le=1e300)] | None
Word = Annotated[str, Meta(max_length=10_000)]
Text = Annotated[str, Meta(max_length=10_000_000)]
Row = dict[str, Any]


class Staleness(Struct):
    mean: float
    max: float


class Error(Struct):
    type: Word
    message: Text
    traceback: Text = ""


class SampleCounts(Struct):
    used: Count
    lost: Count
    repeated: Count


class Checkpoints(Struct):
    written: Count = 0
    last_step: Count | None = None
    run: Word = ""
    incomplete: Count = 0
    happened: list[Row] = []
    failed: list[Row] = []


class ResumeRow(Struct):
    step: Count
    time_s: Seconds
    run: Word = ""
    world_size: Count = 0


class FaultRow(Struct):
    kind: Word
    target: Word
    plan: Row
    spells_s: list[tuple[Time, Time | None]]
    dropped_bytes: Count | None


class RestartRow(Struct):
    error: Text
    begins_again: Word
    lasted_s: Seconds = 0.0


class Regroup(Struct):
    time_s: Seconds
    step: Count
    lost: list[Word]
    joined: list[Word]
    members: list[Word]


class WarningRow(Struct):
    kind: Word
    text: Word
    nodes: list[Word] = []
    at: Word = ""
    step: int = 0


class NodeSummary(Struct):
    rank: Rank
    compute_s: Seconds
    wait_s: Seconds
    bytes_sent: Count
    bytes_received: Count
    messages_sent: Count
    weights_sha256: Word | None
    finished_s: Seconds | None
    joules: Amount = None
    price_usd: Amount = None
    peak_rss_bytes: Count | None = None
    grown_rss_bytes: int | None = None
    predicted_peak_bytes: Count | None = None
    incarnation: Count = 0


class LinkSummary(Struct):
    bytes: Count
    busy_fraction: Annotated[float, Meta(ge=0, le=1e9)]


class RestingNodes(Struct):
    """The nodes of a large run on which nothing happened, in one row: their number and sums.

    *weights_sha256* and *predicted_peak_bytes* are those of the node called *first*.
    """

    nodes: Annotated[int, Meta(gt=0, le=MOST_RANKS)]
    first: Word
    finished_s: Seconds | None = None
    joules: Amount = None
    price_usd: Amount = None
    predicted_peak_bytes: Count | None = None
    weights_sha256: Word | None = None


class Summary(Struct):
    """The content of summary.json."""

    name: Word
    backend: Word
    algorithm: Word
    topology: Word
    seed: int
    status: Literal["done", "failed"]
    elapsed_s: Seconds
    wall_s: Seconds
    steps: Count
    messages_sent: Count
    bytes_sent: Count
    trace_sha256: Word
    version: Word
    versions: dict[str, Word]
    nodes: dict[str, NodeSummary]
    links: dict[str, LinkSummary]
    loss: Number
    accuracy: Number
    weights_sha256: Word | None
    control_bytes: Count = 0
    joules: Amount = None
    price_usd: Amount = None
    numerics: Word = "real"
    perplexity: Number | UnsetType = UNSET
    staleness: Staleness | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    samples: SampleCounts | UnsetType = UNSET
    checkpoints: Checkpoints | UnsetType = UNSET
    resumed: ResumeRow | UnsetType = UNSET
    replay: Row | UnsetType = UNSET
    left_out: list[Word] = []
    lost: dict[str, Word] = {}
    faults: list[FaultRow] = []
    restarts: list[RestartRow] = []
    regroups: list[Regroup] = []
    updates: Count = 0
    resting: RestingNodes | UnsetType = UNSET
    warnings: list[WarningRow] = []


class SpanArgs(Struct):
    tag: Word
    bytes: Count
    peer: Annotated[int, Meta(ge=-1, lt=MOST_RANKS)] = -1


class SpanEvent(Struct):
    """An event in trace.json that is a span of a node's activity."""

    ts: Annotated[float, Meta(ge=-1e18, le=1e18)]
    dur: Annotated[float, Meta(ge=0, le=1e18)]
    pid: Rank
    args: SpanArgs


Parts = Meta(min_length=PARTS, max_length=PARTS)


class RestRow(Struct, forbid_unknown_fields=True):
    """The sum of the spans that a trace does not list; see `simcluster.runs.spans.Rest`."""

    spans: Count
    compute_s: Seconds
    digest: Word
    width_s: Seconds
    busy_s: Annotated[list[Time], Parts]
    sent_bytes: Annotated[list[Count], Parts]


class TraceFile(Struct):
    """The keys of trace.json that are read."""

    traceEvents: list[Row]
    rest: dict[str, RestRow] = {}
    otherData: Row = {}


def summary_of(content: bytes) -> dict[str, Any]:
    """Parse *content* as a summary. Raise ValueError, naming the field, if it is invalid."""
    found = _plain(content)
    told = _as(found, Summary)
    if not 0 < len(told.nodes) <= MOST_NODES:
        raise ValueError(f"{len(told.nodes)} nodes, expected 1 to {MOST_NODES} - at `$.nodes`")
    resting = 0 if told.resting is UNSET else told.resting.nodes
    ranks = {node.rank for node in told.nodes.values()}
    if len(ranks) < len(told.nodes) or max(ranks) >= len(told.nodes) + resting:
        raise ValueError("ranks other than 0, 1, ..., each once - at `$.nodes[...].rank`")
    if told.status == "failed" and told.error is UNSET:
        raise ValueError("nothing for a run that failed - at `$.error`")
    return found


def trace_of(content: bytes, ranks: int) -> dict[str, Any]:
    """Parse *content* as a trace of *ranks* nodes.

    Raise ValueError, naming the field, if it is invalid.
    """
    found = _plain(content)
    told = _as(found, TraceFile)
    if not told.rest.keys() <= {str(rank) for rank in range(ranks)}:
        raise ValueError("ranks that the summary does not have - at `$.rest`")
    for rank, row in told.rest.items():
        if not row.width_s and (any(row.busy_s) or any(row.sent_bytes)):
            raise ValueError(f"activity in parts of no width - at `$.rest[{rank}]`")
    for number, event in enumerate(told.traceEvents):
        words = [event.get(key) for key in (("ph", "cat") if event.get("ph") == "X" else ("ph",))]
        if not all(isinstance(word, str) for word in words):
            raise ValueError(f"an event without ph and cat - at `$.traceEvents[{number}]`")
        if event["ph"] == "X" and event["cat"] in (*KINDS, *CALL_KINDS):
            span = _as(event, SpanEvent, f"$.traceEvents[{number}]")
            if max(span.pid, span.args.peer) >= ranks:
                raise ValueError(f"a rank that the summary does not have - at `$.traceEvents[{number}]`")
    return found


def _plain(content: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("lists or mappings nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no mapping - at `$`")
    # Go through the content level by level: recursion could exceed Python's limit.
    level: list[Any] = [found]
    depth = 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"lists or mappings nested more than {MOST_DEPTH} deep")
        inner = (part for value in level for part in (value.values() if isinstance(value, dict) else value))
        level = [part for part in inner if isinstance(part, (dict, list))]
    return found


def _as(found: Mapping[str, Any], kind: type[Any], place: str = "") -> Any:
    try:
        return msgspec.convert(found, kind)
    except RecursionError:
        raise ValueError("lists or mappings nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}{place and f' - in `{place}`'}") from None
