"""Calibrates a cluster: runs the measuring program on a backend and fits what it noted.

It imports no backend: the one line that turns a name into a module does so at run time, as for experiments.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcluster.calibrate.fit import (
    Value,
    WayFit,
    bottlenecks,
    fit_way,
    least_bandwidths,
    middle,
    quartiles,
    spread_over_links,
)
from simcluster.calibrate.rounds import Rounds, undisturbed
from simcluster.calibrate.samples import Row, pairs_of, rows_of, work_of
from simcluster.errors import Problem, RunError, UsageError
from simcluster.experiment.job import ClusterJob
from simcluster.experiment.places import places
from simcluster.experiment.read import read_experiment
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology, load

PROGRAM = "simcluster.calibrate.measure:measure"


@dataclass(frozen=True)
class LinkFit:
    """A measured link. *is_bottleneck*: of some way; else it is at least as fast as *bandwidth_Bps* says.

    *both_ways* is the share of the bandwidth that each direction has when both are used.
    """

    name: str
    latency_s: float
    bandwidth_Bps: Value
    is_bottleneck: bool
    both_ways: Value


@dataclass(frozen=True)
class NodeFit:
    """A measured node: seconds by kind of work and FLOPs; overheads per message, None where it has no peer.

    *send_buffer_bytes* it is rid of at once, at least, whoever they are for.
    """

    name: str
    work: Mapping[str, Mapping[int, Value]]
    send_overhead_s: Value | None
    recv_overhead_s: Value | None
    send_buffer_bytes: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """Measurements of *topology*. Links that no two workers talk over are left out.

    *rounds* are the undisturbed ones; each was measured like the whole, and shows how far such numbers spread.
    """

    topology: Topology
    ways: tuple[WayFit, ...]
    links: Mapping[int, LinkFit]
    nodes: Mapping[str, NodeFit]
    elapsed_s: float
    rounds: Rounds


def calibrate(
    topology: str | Path | Mapping[str, Any] | Topology,
    *,
    backend: str = "sockets",
    workload: str | Mapping[str, Any] | None = "mnist_mlp",
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Calibration:
    """Measures every link and every device of *topology* on *backend*.

    *workload* is what an experiment has under this key, *overrides* are an experiment's dotted keys; without a
    workload devices are left alone. *options* are the backend's own: a rendezvous and a key for nodes started by hand.
    Raises UsageError for a wrong request, RunError if a node or a connection is lost.
    """
    experiment = {
        "name": "calibration",
        "topology": load(topology).document,
        "algorithm": "all_reduce_dp",
        "workload": workload or "quadratic",
        "stop": {"steps": 1},
    }
    plan = read_experiment(experiment, overrides, seed=seed, backend=backend)
    workers = plan.topology.workers
    if len(workers) < 2 and workload is None:
        raise UsageError(Problem("topology", f"{len(workers)} worker", "two, or a workload to measure"))
    given = dict(options or {})
    addresses, remotes = places(plan.topology, given) if plan.backend == "sockets" else ([], [])
    job = ClusterJob(
        names=workers,
        config_json=json.dumps(
            {"experiment": plan.document, "work": workload is not None, "real": plan.backend != "sim"}
        ),
        seed=seed,
        program=PROGRAM,
        addresses=addresses,
        remotes=remotes,
        topology=plan.topology,
        options=given,
    )
    record: RunRecord = importlib.import_module(f"simcluster_backends.{plan.backend}").run_cluster(job)
    if record.error is not None:
        failure = record.error if isinstance(record.error, RunError) else RunError(str(record.error))
        failure.seed = seed
        raise failure
    return evaluate(plan.topology, record)


def evaluate(topology: Topology, record: RunRecord) -> Calibration:
    """Return what *record*, of a run of the measuring program on *topology*, says."""
    rounds = undisturbed(rows_of(record.nodes))
    return fitted(topology, rounds.rows, rounds, record.elapsed_s)


def fitted(topology: Topology, rows: Sequence[Row], rounds: Rounds, elapsed_s: float) -> Calibration:
    """Fit *rows*, which are those of all *rounds* or of one."""
    pairs = pairs_of(rows)
    ways = tuple(fit_way(pairs[a, b], pairs[b, a]) for a, b in pairs if a < b)
    nodes = {name: _node(name, rank, rows, ways) for rank, name in enumerate(topology.workers)}
    return Calibration(topology, ways, _links(topology, ways), nodes, elapsed_s, rounds)


def _links(topology: Topology, ways: tuple[WayFit, ...]) -> dict[int, LinkFit]:
    index = {link.name: position for position, link in enumerate(topology.links)}
    crossed = [
        [index[hop.link.name] for hop in topology.route(topology.workers[way.a], topology.workers[way.b])]
        for way in ways
    ]
    bandwidths_Bps = [way.bandwidth_Bps.value for way in ways]
    latencies_s = spread_over_links(
        crossed, [way.latency_s for way in ways], [link.latency_s for link in topology.links]
    )
    least_Bps = least_bandwidths(crossed, bandwidths_Bps, len(topology.links))
    telling = bottlenecks(crossed, bandwidths_Bps, len(topology.links))
    found = {}
    for position, link in enumerate(topology.links):
        if least_Bps[position]:
            told = telling[position]
            bandwidth = middle([bandwidths_Bps[way] for way in told] or [least_Bps[position]])
            both_ways = middle([ways[way].both_ways.value for way in told] or [1.0])
            found[position] = LinkFit(link.name, latencies_s[position], bandwidth, bool(told), both_ways)
    return found


def _node(name: str, rank: int, rows: Sequence[Row], ways: tuple[WayFit, ...]) -> NodeFit:
    """A node's overheads are between those that its ways tell."""
    own = [(way, 0 if way.a == rank else 1) for way in ways if rank in (way.a, way.b)]
    work = {
        kind: {flops: quartiles(seconds) for flops, seconds in samples.items()}
        for kind, samples in work_of(rows, rank).items()
    }
    if not own:
        return NodeFit(name, work, None, None)
    return NodeFit(
        name,
        work,
        middle([way.send_overheads_s[end].value for way, end in own]),
        middle([way.recv_overheads_s[end].value for way, end in own]),
        min(way.send_buffers_bytes[end] for way, end in own),
    )
