"""Generate text on a cluster: place the model, run the serving program on a backend, and collect the answer.

It imports no backend: as for experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simcluster.errors import Problem, RunError, UsageError
from simcluster.experiment.job import ClusterJob, places
from simcluster.inference.engine.scheduler import Scheduler
from simcluster.inference.engine.stage import UNKNOWN
from simcluster.inference.request import Reason
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.serving.desks import BEGAN, EMPTY, END, PREEMPTIONS, REASONS, TOKEN
from simcluster.serving.digest import ids_sha256
from simcluster.serving.placing import names_of
from simcluster.serving.setup import Layout, Setup
from simcluster.topology import Topology
from simcluster.watching.board import RunInfo
from simcluster.watching.telling import NodeRows

PROGRAM = "simcluster.serving.program:answer"


@dataclass(frozen=True)
class Answer:
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
class Answers:
    """The answers by id, the placement, the nodes' parts, and how often a sequence lost its blocks to an older one."""

    answers: Mapping[str, Answer]
    layout: Layout
    nodes: tuple[NodeUse, ...]
    elapsed_s: float
    preemptions: int
    record: RunRecord = field(repr=False)


def answer_all(
    setup: Setup,
    topology: Topology,
    *,
    backend: str = "sim",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_token: Callable[[str, int], None] | None = None,
) -> Answers:
    """Answer the requests of *setup* on *backend*. *on_token* is called with (id, token) as they come.

    Raises UsageError for requests that can never be answered, RunError if a node is lost.
    """
    scheduler = Scheduler(setup.limits)
    refused = [Problem(f"request {one.id}", why, "") for one in setup.requests if (why := scheduler.refusal(one))]
    if refused:
        raise UsageError(refused)
    given = dict(options or {})
    addresses, remotes = places(topology, given) if backend == "sockets" else ([], [])
    live = None if on_token is None else _Live(on_token)
    job = ClusterJob(
        names=topology.workers,
        config_json=setup.written(),
        seed=seed,
        program=PROGRAM,
        addresses=addresses,
        remotes=remotes,
        topology=topology,
        options=given,
        follower=live,
    )
    record = run_nodes(job, backend)
    if live is not None:
        live.look(lambda: [NodeRows(node.name, node.metrics, (), False) for node in record.nodes])
    return _answers(setup, topology, record)


def run_nodes(job: ClusterJob, backend: str) -> RunRecord:
    """Run *job* on *backend*. Raise RunError if it failed."""
    record: RunRecord = importlib.import_module(f"simcluster_backends.{backend}").run_cluster(job)
    if record.error is not None:
        raise record.error if isinstance(record.error, RunError) else RunError(str(record.error))
    return record


class _Live:
    """Follows a run and calls *on_token* for each new token, in order."""

    def __init__(self, on_token: Callable[[str, int], None]) -> None:
        self._on_token, self.offset_s = on_token, 0.0
        self._read: dict[str, int] = {}

    def begin(self, run: RunInfo) -> None:
        self._read = {}

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        for node in rows():
            count = len(node.metrics)
            for row in node.metrics[self._read.get(node.name, 0) : count]:
                if row.name.startswith(TOKEN):
                    self._on_token(row.name.removeprefix(TOKEN), int(row.value))
            self._read[node.name] = count


def _answers(setup: Setup, topology: Topology, record: RunRecord) -> Answers:
    layout, first = setup.layout, record.nodes[setup.layout.ranks[0]]
    tokens: dict[str, list[tuple[float, int]]] = {one.id: [] for one in setup.requests}
    reasons: dict[str, Reason] = {}
    began_s, preemptions = 0.0, 0
    for row in first.metrics:
        if row.name.startswith(TOKEN):
            tokens[row.name.removeprefix(TOKEN)].append((row.time_s, int(row.value)))
        elif row.name.startswith(END):
            reasons[row.name.removeprefix(END)] = REASONS[int(row.value)]
        elif row.name == BEGAN:
            began_s = row.time_s
        elif row.name == PREEMPTIONS:
            preemptions = int(row.value)
    found = {
        one.id: Answer(
            one.id,
            tuple(token for _, token in tokens[one.id]),
            tuple(time_s - began_s - one.arrival_s for time_s, _ in tokens[one.id]),
            reasons[one.id],
        )
        for one in setup.requests
    }
    nodes = tuple(
        _use(record.nodes[rank], name, layers)
        for rank, name, layers in zip(layout.ranks, names_of(layout, topology), layout.layers, strict=True)
    )
    return Answers(found, layout, nodes, record.elapsed_s, preemptions, record)


def _use(record: NodeRecord, name: str, layers: int) -> NodeUse:
    last = {row.name: row.value for row in record.metrics}
    weights, cache = last["weight_bytes"], last["cache_bytes"]
    peak = weights + cache if record.peak_rss_bytes is None else record.peak_rss_bytes
    busy_s = record.compute_s - last["loading_s"]
    return NodeUse(name, layers, weights, cache, busy_s, record.bytes_sent, peak, last.get(EMPTY, 0.0))
