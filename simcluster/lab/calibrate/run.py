"""Calibrate a cluster: run the measuring program on a backend and fit its samples.

This module imports no backend: as for experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simcluster.backend import backend_named
from simcluster.errors import UsageError
from simcluster.experiment.compute import check_compute
from simcluster.experiment.read.read import read_experiment
from simcluster.job import ClusterJob, places
from simcluster.lab.calibrate import fit
from simcluster.lab.calibrate.fit import MeasuredValue, WayFit, fit_way, middle, quartiles
from simcluster.lab.calibrate.handling import factor_of_handling
from simcluster.lab.calibrate.rounds import CalibrationRounds, undisturbed
from simcluster.lab.calibrate.samples import PRODUCT, SampleRow, accelerator_of, pairs_of, rows_of, work_of
from simcluster.process.intra_op import usable_cores
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology, load

PROGRAM = "simcluster.lab.calibrate.measure:measure"


@dataclass(frozen=True)
class LinkFit:
    """A measured link. *bandwidth_Bps* is a lower bound unless the link *is_bottleneck* of a path.

    *both_ways* is each direction's share of the bandwidth when both are in use.
    """

    name: str
    latency_s: float
    bandwidth_Bps: MeasuredValue
    is_bottleneck: bool
    both_ways: MeasuredValue


@dataclass(frozen=True)
class NodeFit:
    """A measured node: seconds by kind of work and FLOPs, and overheads per message.

    Without a peer, overheads are None. *send_buffer_bytes* is a lower bound on the bytes that the
    node's send buffers take at once, for all peers together. *accelerator* is the kind of
    accelerator that did the work; "" for the CPU. *product* has the CPU seconds of a matrix
    product, in the same form as *work*.
    """

    name: str
    work: Mapping[str, Mapping[int, MeasuredValue]]
    send_overhead_s: MeasuredValue | None
    recv_overhead_s: MeasuredValue | None
    send_buffer_bytes: float = 0.0
    accelerator: str = ""
    product: Mapping[str, Mapping[int, MeasuredValue]] = field(default_factory=dict)

    @property
    def profile(self) -> Mapping[str, Mapping[int, MeasuredValue]]:
        """All measured kinds of work."""
        return {**self.work, **self.product}


@dataclass(frozen=True)
class Calibration:
    """Measurements of *topology*. Links that no two workers use are left out.

    *rounds* are the undisturbed ones; a separate fit of each round shows the spread of the numbers.
    *cores* is this machine's number of cores if all nodes ran as processes on it, else None. *real*
    is False for a simulation.
    """

    topology: Topology
    ways: tuple[WayFit, ...]
    links: Mapping[int, LinkFit]
    nodes: Mapping[str, NodeFit]
    elapsed_s: float
    rounds: CalibrationRounds
    cores: int | None = None
    real: bool = False


def calibrate(
    topology: str | Path | Mapping[str, Any] | Topology,
    *,
    backend: str = "sockets",
    workload: str | Mapping[str, Any] | None = "mnist_mlp",
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    compute: str | None = None,
) -> Calibration:
    """Measure every link and every device of *topology* on *backend*.

    *workload* is that of an experiment; if None, devices are not measured. *overrides* map an
    experiment's dotted keys to values. *options* are those of the backend, such as a rendezvous and
    a key for nodes started by hand. *compute* is the device that every node computes on. Raise
    UsageError for an invalid request, RunError if the measurement fails, such as when a node is
    lost.
    """
    experiment = {
        "name": "calibration",
        "topology": load(topology).document,
        "algorithm": "all_reduce_dp",
        "workload": workload or "quadratic",
        "stop": {"steps": 1},
    }
    plan = read_experiment(experiment, overrides, seed=seed, backend=backend, compute=compute)
    workers = plan.topology.workers
    if len(workers) < 2 and workload is None:
        raise UsageError("topology", f"{len(workers)} worker", "two, or a workload to measure")
    given = dict(options or {})
    check_compute(plan, given)
    addresses, remotes = places(plan.topology, given) if plan.backend == "sockets" else ([], [])
    is_local = plan.backend == "sockets" and not any(addresses) and not any(remotes)
    real = {"real": plan.backend != "sim", "shared": is_local}
    config = {"experiment": plan.document, "work": workload is not None, **real}
    job = ClusterJob(
        names=workers,
        config_json=json.dumps(config),
        seed=seed,
        program=PROGRAM,
        addresses=addresses,
        remotes=remotes,
        topology=plan.topology,
        options=given,
    )
    record = backend_named(plan.backend).run_cluster(job)
    if record.error is not None:
        record.error.seed = seed
        raise record.error
    cores = usable_cores() if is_local else None
    return replace(evaluate(plan.topology, record), cores=cores, real=plan.backend != "sim")


def evaluate(topology: Topology, record: RunRecord) -> Calibration:
    """Return the calibration of *topology* from *record*, a run of the measuring program."""
    rounds = undisturbed(rows_of(record.nodes))
    return fitted(topology, rounds.rows, rounds, record.elapsed_s)


def fitted(topology: Topology, rows: Sequence[SampleRow], rounds: CalibrationRounds, elapsed_s: float) -> Calibration:
    """Fit *rows*, which come from all *rounds* or from a single one."""
    pairs = pairs_of(rows)
    ways = tuple(fit_way(a, b, pairs[a, b], pairs[b, a]) for a, b in pairs if a < b)
    nodes = {name: _node(name, rank, rows, ways) for rank, name in enumerate(topology.workers)}
    overheads = [(node.send_overhead_s, node.recv_overhead_s) for node in nodes.values()]
    factor = factor_of_handling(rows, ways, overheads)
    nodes = {name: _in_steps(node, factor) for name, node in nodes.items()}
    return Calibration(topology, ways, _links(topology, ways), nodes, elapsed_s, rounds)


def _in_steps(node: NodeFit, factor: float) -> NodeFit:
    """Return *node* with the overheads of messages in a step.

    They are *factor* times the overheads in a burst.
    """
    if factor == 1.0 or node.send_overhead_s is None or node.recv_overhead_s is None:
        return node
    send, receive = (overhead.times(factor) for overhead in (node.send_overhead_s, node.recv_overhead_s))
    return replace(node, send_overhead_s=send, recv_overhead_s=receive)


def _links(topology: Topology, ways: tuple[WayFit, ...]) -> dict[int, LinkFit]:
    """Return link's index -> its fit from the paths that cross it.

    Links that no path crosses are left out.
    """
    index = {link.name: position for position, link in enumerate(topology.links)}
    workers = topology.workers
    crossed = [[index[hop.link.name] for hop in topology.route(workers[way.a], workers[way.b])] for way in ways]
    bandwidths_Bps = [way.bandwidth_Bps.value for way in ways]
    expected_s = [link.latency_s for link in topology.links]
    latencies_s = fit.spread_over_links(crossed, [way.latency_s for way in ways], expected_s)
    least_Bps = fit.least_bandwidths(crossed, bandwidths_Bps, len(topology.links))
    telling = fit.bottlenecks(crossed, least_Bps)
    found = {}
    for position, link in enumerate(topology.links):
        if least_Bps[position]:
            told = telling[position]
            bandwidth = middle([bandwidths_Bps[way] for way in told] or [least_Bps[position]])
            both_ways = middle([ways[way].both_ways.value for way in told] or [1.0])
            found[position] = LinkFit(link.name, latencies_s[position], bandwidth, bool(told), both_ways)
    return found


def _node(name: str, rank: int, rows: Sequence[SampleRow], ways: tuple[WayFit, ...]) -> NodeFit:
    """Fit one node; each overhead is the median of those found on the node's paths."""
    own = [(way, 0 if way.a == rank else 1) for way in ways if rank in (way.a, way.b)]
    work, product = (
        {kind: {flops: quartiles(seconds) for flops, seconds in samples.items()} for kind, samples in taken.items()}
        for taken in (work_of(rows, rank), work_of(rows, rank, PRODUCT))
    )
    accelerator = accelerator_of(rows, rank)
    if not own:
        return NodeFit(name, work, None, None, accelerator=accelerator, product=product)
    return NodeFit(
        name,
        work,
        middle([way.send_overheads_s[end].value for way, end in own]),
        middle([way.recv_overheads_s[end].value for way, end in own]),
        min(way.send_buffers_bytes[end] for way, end in own),
        accelerator,
        product,
    )
