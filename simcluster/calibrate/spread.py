"""The spread of a calibration's rounds, as factors of its medians, and the error of rehearsed steps."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from simcluster.calibrate.rehearsal import pattern_of
from simcluster.calibrate.run import Calibration, LinkFit, NodeFit, fitted
from simcluster.calibrate.samples import STEP, STREAM, SWAP, SWAP_MESSAGES, WORK, Row, rows_of
from simcluster.experiment.job import ClusterJob
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology, load
from simcluster.topology.model.spread import spread_block
from simcluster.topology.read.spread import MOST_FACTOR
from simcluster.topology.replicas import replica, rounds_of
from simcluster.units import write_latency

PROGRAM = "simcluster.calibrate.rehearsal:run"

LEAST_STARTUP_S = 1e-6
"""A smaller start-up is noise."""

LEAST_S = 1e-9
"""A smaller latency or overhead has no meaningful spread."""


def add_spread(document: dict[str, Any], calibration: Calibration, ack_share: Callable[[float], float]) -> None:
    """Add the spread of every measured number to *document*; *ack_share* takes a link's both-ways share."""
    rounds = calibration.rounds
    each = [fitted(calibration.topology, rounds.of(number), rounds, 0.0) for number in rounds.kept]
    if len(each) < 2:
        return
    for position, link in calibration.links.items():
        found = [fit.links[position] for fit in each]
        if block := spread_block(_of_link(link, found, ack_share)):
            document["links"][position]["spread"] = block
    for name, node in calibration.nodes.items():
        if block := spread_block(_of_node(node, [fit.nodes[name] for fit in each])):
            document["nodes"][name]["spread"] = block
    topology = load(document)
    rehearsed = [_rehearsed(topology, rounds.rows, index, number) for index, number in enumerate(rounds.kept)]
    document |= spread_block({"misfit": [misfit for misfit, _ in rehearsed]})
    if any(startup_s for _, startup_s in rehearsed):
        document["startup"] = [write_latency(float(f"{startup_s:.4g}")) for _, startup_s in rehearsed]


def _of_link(link: LinkFit, found: Sequence[LinkFit], ack_share: Callable[[float], float]) -> dict[str, list[float]]:
    measured = {"latency": _factors(link.latency_s, [fit.latency_s for fit in found])}
    if link.is_bottleneck:
        bandwidths = [fit.bandwidth_Bps.value for fit in found]
        measured["bandwidth"] = _factors(link.bandwidth_Bps.value, bandwidths)
        shares = [max(1e-3, ack_share(fit.both_ways.value)) for fit in found]
        measured["ack_share"] = _factors(ack_share(link.both_ways.value), shares)
    return measured


def _of_node(node: NodeFit, found: Sequence[NodeFit]) -> dict[str, list[float]]:
    fits = (node, *found)
    overheads = {
        "send_overhead": [fit.send_overhead_s.value if fit.send_overhead_s else 0.0 for fit in fits],
        "recv_overhead": [fit.recv_overhead_s.value if fit.recv_overhead_s else 0.0 for fit in fits],
    }
    measured = {
        key: [max(factor, 1e-3) for factor in _factors(whole_s, each_s)]
        for key, (whole_s, *each_s) in overheads.items()
    }
    if node.work:
        measured["profile"] = _factors(_work_s(node), [_work_s(fit) for fit in found])
    return measured


def _work_s(node: NodeFit) -> float:
    """Return the work of one step: the mean where a kind of work was measured in several sizes."""
    return sum(fmean(value.value for value in points.values()) for points in node.work.values() if points)


def _factors(whole: float, rounds: Sequence[float]) -> list[float]:
    """Return the factor of each round, at most the limit of a topology: a disturbed round can fit an absurd rate."""
    return [min(value / whole, MOST_FACTOR) for value in rounds] if whole >= LEAST_S else [1.0] * len(rounds)


def _rehearsed(topology: Topology, rows: Sequence[Row], index: int, number: int) -> tuple[float, float]:
    """Return the error of the fitted numbers in round *number*, the *index*-th: the factor of a busy step, the extra
    seconds after idling.
    """
    if not any(row.parts[0] == STEP for row in rows):
        return 1.0, 0.0
    cluster = load(replica(topology, index)) if rounds_of(topology) else topology
    own = [row for row in rows if row.number == number]
    simulated = rows_of(_simulated(cluster, own, number).nodes)
    (step_s, steps_s), (swap_s, swaps_s) = (
        [fmean(row.seconds for row in found if row.parts[0] == what) for found in (own, simulated)]
        for what in (STEP, SWAP)
    )
    startup_s = max(0.0, swap_s - swaps_s)
    return min(step_s / steps_s, MOST_FACTOR), startup_s if startup_s >= LEAST_STARTUP_S else 0.0


def _simulated(topology: Topology, rows: Sequence[Row], number: int) -> RunRecord:
    """Simulate the rehearsal of round *number*, with the work and the messages of *rows*."""
    sizes: list[dict[str, int]] = [{} for _ in topology.workers]  # by rank, the bytes of its messages to each peer
    work: list[list[tuple[str, int]]] = [[] for _ in topology.workers]  # by rank, each piece of the step in order
    most = {row.rank: row.parts[2] for row in rows if row.parts[0] == STEP}
    for row in rows:
        what, where, size = row.parts
        if what == WORK:
            work[row.rank].append((where, size))
        elif what == STREAM:
            for a, b in ((row.rank, int(where)), (int(where), row.rank)):
                sizes[a][str(b)] = min(SWAP_MESSAGES * size, most[a])
    config = {"pattern": pattern_of(number), "work": work, "sizes": sizes}
    job = ClusterJob(topology.workers, json.dumps(config), program=PROGRAM, topology=topology)
    record: RunRecord = importlib.import_module("simcluster_backends.sim").run_cluster(job)
    if record.error is not None:
        raise record.error
    return record
