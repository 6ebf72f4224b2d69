"""Generate text on a cluster: place the model, run the serving program on a backend, and collect the answer.

It imports no backend: as for experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace as replaced

from simcluster.backend import backend_named
from simcluster.documents.reading import DocumentReading
from simcluster.documents.yaml import Document
from simcluster.errors import PeerLost, Problem, RunError, UsageError
from simcluster.fault_plans.kinds import Fault, may_lose
from simcluster.fault_plans.plan import planned
from simcluster.fault_plans.read import read_faults
from simcluster.job import ClusterJob, places
from simcluster.lm.digest import ids_sha256
from simcluster.lm.engine.stage import UNKNOWN
from simcluster.lm.processor import engine_topology
from simcluster.lm.request import Reason
from simcluster.lm.serving.desk.desks import BEGAN, COUNTS, EMPTY, END, PREFILLED, REASONS, TOKEN
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.topology import Topology
from simcluster.watching.board import RunInfo
from simcluster.watching.telling import NodeRows

PROGRAM = "simcluster.lm.serving.program:answer"


@dataclass(frozen=True)
class TimedAnswer:
    """The tokens of a request, and when they came, in seconds from its arrival. No *times_s*: it was refused."""

    id: str
    tokens: tuple[int, ...]
    times_s: tuple[float, ...]
    reason: Reason

    @property
    def ttft_s(self) -> float | None:
        return self.times_s[0] if self.times_s else None

    @property
    def tpot_s(self) -> float | None:
        """The mean time per token after the first; None if there is no second one."""
        count = len(self.times_s) - 1
        return (self.times_s[-1] - self.times_s[0]) / count if count > 0 else None

    @property
    def sha256(self) -> str | None:
        """A hash of the token ids, as little-endian 32-bit numbers; None if they are unknown."""
        if UNKNOWN in self.tokens:
            return None
        return ids_sha256(self.tokens)


@dataclass(frozen=True)
class NodeUse:
    """The part of a node in a run. *peak_memory_bytes*: of its process, which took *empty_memory_bytes* before it
    loaded its share; in the simulator, of weights and cache.
    """

    node: str
    layers: int
    weight_bytes: float
    cache_bytes: float
    busy_s: float
    sent_bytes: int
    peak_memory_bytes: float
    empty_memory_bytes: float


@dataclass(frozen=True)
class ServingResult:
    """The answers by id, the first placement, the nodes' parts, and how often a sequence lost its blocks to an older
    one. Of the *proposed* guesses those *accepted* were right. *lost*: the nodes that were lost on the way, and why.
    *prefilled*: the tokens that went through the model in chunks, on the nodes that served to the end; a token counts
    again if its cache was lost.
    """

    answers: Mapping[str, TimedAnswer]
    layout: PlacementLayout
    nodes: tuple[NodeUse, ...]
    elapsed_s: float
    preemptions: int
    proposed: int
    accepted: int
    record: RunRecord = field(repr=False)
    lost: Mapping[str, str] = field(default_factory=dict)
    prefilled: int = 0


def answer_all(
    setup: Setup,
    topology: Topology,
    *,
    backend: str = "sim",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_token: Callable[[str, int], None] | None = None,
    program: str = PROGRAM,
) -> ServingResult:
    """Answer the requests of *setup* on *backend*. *on_token* is called with (id, token) as they come; on torch at the
    end. Every node runs *program*, a "module:function".

    The faults of `simcluster.faults()` hold. Raises UsageError for requests that can never be answered, RunError if a
    node is lost without which the model does not fit; on torch any that still has work. There, ranks other than 0
    raise WrittenElsewhere if a launcher has started them.
    """
    topology = engine_topology(topology, backend)
    faults = faults_on(topology, seed)
    setup = recovering(setup, backend, faults)
    refused = [Problem(f"request {one.id}", why, "") for one in setup.requests if (why := setup.limits.refusal(one))]
    if refused:
        raise UsageError(refused)
    given = dict(options or {})
    addresses, remotes = places(topology, given) if backend == "sockets" else ([], [])
    live = None if on_token is None else _TokenFollower(on_token)
    job = ClusterJob(
        names=topology.workers,
        config_json=setup.written(),
        seed=seed,
        program=program,
        addresses=addresses,
        remotes=remotes,
        topology=topology,
        faults=faults,
        options=given,
        follower=live,
    )
    record = run_nodes(job, backend, {one.id for one in setup.requests})
    if live is not None:
        live.look(lambda: [NodeRows(node.name, node.metrics, (), False) for node in record.nodes])
    return _answers(setup, topology, record)


def faults_on(topology: Topology, seed: int = 0) -> tuple[Fault, ...]:
    """Return the faults of `simcluster.faults()` on *topology*. Raise UsageError with all that is wrong."""
    reading = DocumentReading(Document({"faults": planned()}))
    found = read_faults(reading, topology, seed)
    if reading.problems:
        raise UsageError(reading.problems)
    return found


def recovering(setup: Setup, backend: str, faults: Sequence[Fault]) -> Setup:
    """Return *setup*, without its recovery where none is needed: in the simulator without *faults* that lose nodes, and
    on torch, which ends a run that loses one.
    """
    recovers = any(map(may_lose, faults)) if backend == "sim" else backend != "torch"
    return setup if recovers else replaced(setup, recovery=None)


def run_nodes(job: ClusterJob, backend: str, requests: Collection[str] | None = None) -> RunRecord:
    """Run *job* on *backend*. Raise RunError if it failed; a loss is none if all *requests* have their answers."""
    record = backend_named(backend).run_cluster(job)
    error, ended = record.error, {row.name for node in record.nodes for row in node.metrics}
    left = sorted(one for one in requests or () if f"{END}{one}" not in ended)
    if not left and (error is None or (requests and isinstance(error, PeerLost))):
        return record
    if error is None:  # the node with the desk was lost with its last rows, after it had let the others end
        raise RunError(f"requests without an answer: found {len(left)}, such as {left[0]!r}, expected none")
    raise error if isinstance(error, RunError) else RunError(str(error))


class _TokenFollower:
    """Follows a run and calls *on_token* for each new token, in order; another first node may make some again."""

    def __init__(self, on_token: Callable[[str, int], None]) -> None:
        self._on_token, self.offset_s = on_token, 0.0
        self._read: dict[str, int] = {}
        self._shown: dict[str, int] = {}

    def begin(self, run: RunInfo) -> None:
        self._read = {}

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        for node in rows():
            count = len(node.metrics)
            for row in node.metrics[self._read.get(node.name, 0) : count]:
                request = row.name.removeprefix(TOKEN)
                if row.name.startswith(TOKEN) and row.step == self._shown.get(request, 0) + 1:
                    self._shown[request] = row.step
                    self._on_token(request, int(row.value))
            self._read[node.name] = count


def _answers(setup: Setup, topology: Topology, record: RunRecord) -> ServingResult:
    layout = setup.layout
    tokens: dict[str, dict[int, tuple[float, int]]] = {one.id: {} for one in setup.requests}
    reasons: dict[str, Reason] = {}
    counts = dict.fromkeys((*COUNTS, PREFILLED), 0)
    # Another first node may have made tokens again that were out already: the first ones count.
    for row in sorted((row for node in record.nodes for row in node.metrics), key=lambda row: row.time_s):
        if row.name.startswith(TOKEN):
            tokens[row.name.removeprefix(TOKEN)].setdefault(row.step, (row.time_s, int(row.value)))
        elif row.name.startswith(END):
            reasons.setdefault(row.name.removeprefix(END), REASONS[int(row.value)])
        elif row.name in counts:
            counts[row.name] += int(row.value)  # of each node that had the desk, or of each that had an engine
    began = [row.time_s for row in record.nodes[layout.ranks[0]].metrics if row.name == BEGAN]
    began_s = min(began, default=0.0)
    found = {}
    for one in setup.requests:
        rows = [tokens[one.id][step] for step in sorted(tokens[one.id])]
        times_s = tuple(time_s - began_s - one.arrival_s for time_s, _ in rows)
        found[one.id] = TimedAnswer(one.id, tuple(token for _, token in rows), times_s, reasons[one.id])
    used = [rank for rank in layout.ranks if _has_part(record.nodes[rank])]
    used += [node.rank for node in record.nodes if _has_part(node) and node.rank not in used]
    nodes = tuple(_use(record.nodes[rank], topology.workers[rank]) for rank in used)
    lost = dict(record.extra.get("lost", {}))
    return ServingResult(found, layout, nodes, record.elapsed_s, record=record, lost=lost, **counts)


def _has_part(record: NodeRecord) -> bool:
    """Return whether the node of *record* has served to the end."""
    return any(row.name == "cache_bytes" for row in record.metrics)


def _use(record: NodeRecord, name: str) -> NodeUse:
    last = {row.name: row.value for row in record.metrics}
    weights, cache = last["weight_bytes"], last["cache_bytes"]
    peak = weights + cache if record.peak_rss_bytes is None else record.peak_rss_bytes
    busy_s = record.compute_s - last["loading_s"]
    return NodeUse(name, int(last["layers"]), weights, cache, busy_s, record.bytes_sent, peak, last.get(EMPTY, 0.0))
