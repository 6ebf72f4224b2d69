"""Answer requests on a cluster: run the serving program on a backend, then collect the answers.

This module imports no backend. As in experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
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
from simcluster.lm.serving.desk.offline_requests import BEGAN, COUNTS, EMPTY, PREFILLED
from simcluster.lm.serving.placement import while_answering
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.runs.answer_rows import AnswerRow, EndRecord, Reason, TokenRecord
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.topology import Topology
from simcluster.watching.board import RunInfo
from simcluster.watching.telling import NodeRows

PROGRAM = "simcluster.lm.serving.program:answer"


@dataclass(frozen=True)
class TimedAnswer:
    """The *tokens* of an answer, and their times in seconds from the arrival of the request.

    *times_s* is empty if the request was refused.
    """

    id: str
    tokens: tuple[int, ...]
    times_s: tuple[float, ...]
    reason: Reason

    @property
    def ttft_s(self) -> float | None:
        return self.times_s[0] if self.times_s else None

    @property
    def tpot_s(self) -> float | None:
        """The mean time per token after the first, or None if there is no second token."""
        count = len(self.times_s) - 1
        return (self.times_s[-1] - self.times_s[0]) / count if count > 0 else None

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the token ids as little-endian 32-bit numbers; None if one is unknown."""
        if UNKNOWN in self.tokens:
            return None
        return ids_sha256(self.tokens)


@dataclass(frozen=True)
class NodeUse:
    """A node's share of a run: its layers, memory, work and sent bytes.

    *peak_memory_bytes* is the peak of the memory of the node's process, which used
    *empty_memory_bytes* before it loaded its part. In the simulator, the peak is weights plus
    cache.
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
    """The *answers* by request id, the first *layout*, and the shares of the *nodes* that served.

    *preemptions* counts how often a sequence lost its blocks to an older one. *proposed* counts the
    guesses that the model checked, *accepted* the right ones. *lost* maps each lost node to the
    reason. *prefilled* counts the tokens that passed the model in chunks, on the nodes that served
    to the end; a token is counted again if its cache was lost.
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
    """Answer the requests of *setup* on *backend*, under the faults of `simcluster.faults()`.

    *on_token* is called with (request id, token) when a token arrives; on torch, it is called at
    the end of the run. Every node runs *program*, "module:function".

    Raise UsageError if a request can never be answered or a fault is invalid. Raise RunError if a
    lost node leaves too little memory for the model (on torch: if any busy node is lost). On torch,
    ranks other than 0 raise WrittenElsewhere if a launcher has started them.
    """
    if backend == "sim":
        topology = while_answering(topology, setup, len(setup.requests))
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
        live.look(lambda: [NodeRows(node.name, (), (), False, node.answers) for node in record.nodes])
    return _answers(setup, topology, record)


def faults_on(topology: Topology, seed: int = 0) -> tuple[Fault, ...]:
    """Return the faults of `simcluster.faults()` on *topology*.

    Raise UsageError if any is invalid.
    """
    reading = DocumentReading(Document({"faults": planned()}))
    found = read_faults(reading, topology, seed)
    if reading.problems:
        raise UsageError(reading.problems)
    return found


def recovering(setup: Setup, backend: str, faults: Sequence[Fault]) -> Setup:
    """Return *setup*, without its recovery if *backend* does not need one.

    The simulator needs it only if *faults* can lose nodes. torch never needs it, because a run on
    torch ends when it loses a node.
    """
    recovers = any(map(may_lose, faults)) if backend == "sim" else backend != "torch"
    return setup if recovers else replaced(setup, recovery=None)


def run_nodes(job: ClusterJob, backend: str, requests: Collection[str] | None = None) -> RunRecord:
    """Run *job* on *backend*. Raise RunError if it failed, or if one of *requests* has no answer.

    The loss of a node is not a failure if all *requests* have their answers.
    """
    record = backend_named(backend).run_cluster(job)
    error = record.error
    ended = {row.request for row in _answer_rows(record) if isinstance(row, EndRecord)}
    left = sorted(one for one in requests or () if one not in ended)
    if not left and (error is None or (requests and isinstance(error, PeerLost))):
        return record
    if error is None:
        # The node with the desk was lost with its last rows, after it had ended the other nodes.
        raise RunError(f"requests without an answer: found {len(left)}, such as {left[0]!r}, expected none")
    raise error if isinstance(error, RunError) else RunError(str(error))


class _TokenFollower:
    """A follower of a run that calls *on_token* once for each new token, in order.

    After a loss, another first node may record tokens again. These are skipped.
    """

    def __init__(self, on_token: Callable[[str, int], None]) -> None:
        self._on_token = on_token
        self.offset_s = 0.0
        self.config: Mapping[str, Any] = {}
        self._read: dict[str, int] = {}
        self._shown: dict[str, int] = {}

    def begin(self, run: RunInfo) -> None:
        self._read = {}

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        for node in rows():
            count = len(node.answers)
            for row in node.answers[self._read.get(node.name, 0) : count]:
                if isinstance(row, TokenRecord) and row.number == self._shown.get(row.request, 0) + 1:
                    self._shown[row.request] = row.number
                    self._on_token(row.request, row.token)
            self._read[node.name] = count


def _answers(setup: Setup, topology: Topology, record: RunRecord) -> ServingResult:
    layout = setup.layout
    tokens: dict[str, dict[int, tuple[float, int]]] = {one.id: {} for one in setup.requests}
    reasons: dict[str, Reason] = {}
    counts = dict.fromkeys((*COUNTS, PREFILLED), 0)
    # After a loss, another first node may have recorded tokens again: use the first record.
    for row in _answer_rows(record):
        if isinstance(row, TokenRecord):
            tokens[row.request].setdefault(row.number, (row.time_s, row.token))
        else:
            reasons.setdefault(row.request, row.reason)
    for count in (row for node in record.nodes for row in node.metrics if row.name in counts):
        counts[count.name] += int(count.value)  # each node with a desk or an engine has counts
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


def _answer_rows(record: RunRecord) -> list[AnswerRow]:
    """Return the tokens and the ends of all answers, in order of time."""
    return sorted((row for node in record.nodes for row in node.answers), key=attrgetter("time_s"))


def _has_part(record: NodeRecord) -> bool:
    """Return whether the node of *record* had a part of the model and served to the end."""
    return any(row.name == "cache_bytes" for row in record.metrics)


def _use(record: NodeRecord, name: str) -> NodeUse:
    last = {row.name: row.value for row in record.metrics}
    weights, cache = last["weight_bytes"], last["cache_bytes"]
    peak = weights + cache if record.peak_rss_bytes is None else record.peak_rss_bytes
    busy_s = record.compute_s - last["loading_s"]
    return NodeUse(name, int(last["layers"]), weights, cache, busy_s, record.bytes_sent, peak, last.get(EMPTY, 0.0))
