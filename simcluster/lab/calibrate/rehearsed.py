"""Simulate the rehearsed steps of a calibration, to find the error of the fitted numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from simcluster.backend import simulator
from simcluster.job import ClusterJob
from simcluster.lab.calibrate.rehearsal import pattern_of
from simcluster.lab.calibrate.samples import STEP, STREAM, SWAP, SWAP_MESSAGES, WORK, SampleRow, rows_of
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology, load
from simcluster.topology.read.spread import MOST_FACTOR
from simcluster.topology.replicas import replica, rounds_of

PROGRAM = "simcluster.lab.calibrate.rehearsal:run"
LEAST_STARTUP_S = 1e-6
"""Limit below which a start-up or wake-up time counts as noise."""

FIRST_WAKEUP_S = 300e-6
MOST_WAKEUP_S = 10e-3
FITS = 4
"""The first and the longest wait to try, and the number of tries.

Kernels schedule a waiting thread within milliseconds.
"""


def wakeup_of(topology: Topology, own: Mapping[int, Sequence[SampleRow]]) -> float:
    """Return the seconds that a woken thread waits for a busy core, fitted to measured steps.

    *own* maps each round to its rows. A kernel lets a running thread continue for a while before it
    switches. A step's time grows almost in proportion to this wait, so the secant method needs few
    simulations. Return the wait with the smallest error.
    """
    own = {number: rows for number, rows in own.items() if any(row.parts[0] == STEP for row in rows)}

    def missing_s(wakeup_s: float) -> float:
        machines = {name: machine._replace(wakeup_s=wakeup_s) for name, machine in topology.machines.items()}
        there = replace(topology, machines=machines)
        found = (rows_of(_simulated(there, rows, number).nodes) for number, rows in own.items())
        return median(
            _mean_s(rows, STEP) - _mean_s(again, STEP) for rows, again in zip(own.values(), found, strict=True)
        )

    if not own or (before := missing_s(0.0)) <= 0.0:
        return 0.0
    tried = {0.0: before}
    before_s = 0.0
    wakeup_s = FIRST_WAKEUP_S
    while len(tried) <= FITS and wakeup_s not in tried:
        tried[wakeup_s] = missing = missing_s(wakeup_s)
        slope = (missing - before) / (wakeup_s - before_s)
        if slope >= 0.0:
            break
        before_s = wakeup_s
        before = missing
        wakeup_s = min(max(0.0, wakeup_s - missing / slope), MOST_WAKEUP_S)
    return min(tried, key=lambda each_s: abs(tried[each_s]))


def _mean_s(rows: Sequence[SampleRow], what: str) -> float:
    return fmean(row.seconds for row in rows if row.parts[0] == what)


def rehearsed_again(topology: Topology, own: Sequence[SampleRow], index: int, number: int) -> tuple[float, float]:
    """Return the error of the fitted numbers in round *number*, which has the rows *own*.

    The error has two numbers: the ratio of a step's measured time to its simulated time, and the
    additional seconds of an exchange after an idle time. They are 1 and 0 if the round has no
    rehearsed step. *index* is the round's index among the kept rounds.
    """
    if not any(row.parts[0] == STEP for row in own):
        return 1.0, 0.0
    cluster = load(replica(topology, index)) if rounds_of(topology) else topology
    simulated = rows_of(_simulated(cluster, own, number).nodes)
    misfit = _mean_s(own, STEP) / _mean_s(simulated, STEP)
    startup_s = max(0.0, _mean_s(own, SWAP) - _mean_s(simulated, SWAP))
    return min(misfit, MOST_FACTOR), startup_s if startup_s >= LEAST_STARTUP_S else 0.0


def _simulated(topology: Topology, rows: Sequence[SampleRow], number: int) -> RunRecord:
    """Simulate the rehearsal of round *number*, with the work and the messages of *rows*."""
    sizes: list[dict[str, int]] = [{} for _ in topology.workers]  # by rank: peer -> bytes
    # rank -> its pieces of work, as (kind, FLOPs)
    gradients: list[list[tuple[str, int]]] = [[] for _ in topology.workers]
    applied: list[list[tuple[str, int]]] = [[] for _ in topology.workers]
    most = {row.rank: row.parts[2] for row in rows if row.parts[0] == STEP}
    for row in rows:
        what, where, size = row.parts
        if what == WORK:
            (applied if where.endswith("/apply") else gradients)[row.rank].append((where, size))
        elif what == STREAM:
            for a, b in ((row.rank, int(where)), (int(where), row.rank)):
                sizes[a][str(b)] = min(SWAP_MESSAGES * size, most[a])
    # Rows are grouped by kind: pair each gradient with the apply of the same step. A rank may have
    # fewer steps than another if a row was replaced, so all ranks take the smallest number.
    by_step = [list(zip(*pieces, strict=False)) for pieces in zip(gradients, applied, strict=True)]
    steps = max(1, min(map(len, by_step)))
    work = [[piece for step in of for piece in step] for of in by_step]
    config = {"pattern": pattern_of(number), "steps": steps, "work": work, "sizes": sizes}
    job = ClusterJob(topology.workers, json.dumps(config), program=PROGRAM, topology=topology)
    record = simulator().run_cluster(job)
    if record.error is not None:
        raise record.error
    return record
