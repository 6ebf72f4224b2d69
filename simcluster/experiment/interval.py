"""The uncertainty of a predicted time: the run again, timing only, on replicas of its calibrated topology.

A calibration measured its cluster in n rounds. Replica i has all numbers of round i, so what was slow together stays
slow together. Each replica meets the same draws (jitter, stragglers), which are keyed by the run's seed. A run counts
as one more such round: it is equally likely to take any of the n + 1 places among the n others. So it lies between
their minimum and maximum with probability (n - 1) / (n + 1), which is 0.9 for n = 19; the quantiles in between follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from simcluster.backend import simulator
from simcluster.errors import NeedsValues, Problem, RunError, UsageError
from simcluster.experiment.node import remember
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.job import ClusterJob
from simcluster.rng import numpy_stream
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT
from simcluster.runs.doubts import MISFIT, Warned, warned
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology
from simcluster.topology.replicas import replica, rounds_of

LEVEL = 0.9
REPLICAS = "replicas"
"""The option of the simulator that is taken before its backend sees the others."""

TIMED = {"numerics": "none", "evaluate_consensus": None, "observe": None}
"""Settings of an experiment that only needs timing."""

UNREHEARSED = 0.02
"""The share by which training may differ from the steps that a calibration rehearses: see docs/fidelity.md."""

LEAST_MISFIT, MOST_MISFIT = 0.87, 1.15
"""If the rehearsed steps of a calibration took another share of their prediction, every prediction is in doubt."""


def take_option(plan: Experiment, options: dict[str, Any]) -> int:
    """Take the number of replicas out of *options*; the default is the number of calibration rounds, 0 without any."""
    rounds = rounds_of(plan.topology) if plan.backend == "sim" else 0
    if plan.algorithm_name == SCRIPT:
        if options.get(REPLICAS):
            expected = "0: the interval of a script takes whole runs of it; sweep it over topologies"
            raise UsageError(Problem("replicas", repr(options[REPLICAS]), expected))
        rounds = 0
    if REPLICAS not in options or plan.backend != "sim":
        return rounds
    wanted = options.pop(REPLICAS)
    if type(wanted) is not int or wanted < 0 or wanted == 1:
        raise UsageError(Problem("replicas", repr(wanted), "0 for no interval, or a whole number of at least 2"))
    if wanted and not rounds:
        expected = "a calibrated topology, with the spread of its numbers: see `simcluster calibrate`"
        raise UsageError(Problem("replicas", f"{wanted} for {plan.topology.name}, which has no spread", expected))
    return wanted


def intervals(plan: Experiment, job: ClusterJob, count: int) -> dict[str, dict[str, Any]]:
    """Return the interval keys of summary.json for the times of *plan*; *job* is the job of its run."""
    rounds = _rounds(rounds_of(plan.topology), count, plan.seed)
    try:
        found = [_times(plan, job, number, TIMED) for number in rounds]
    except (NeedsValues, UsageError):  # its behaviour depends on the values it computes
        found = [_times(plan, job, number, {}) for number in rounds]
    elapsed_s, steps_s = zip(*found, strict=True)
    keys = {"elapsed_interval_s": _widened(interval(elapsed_s))}
    known_s = [step_s for step_s in steps_s if step_s is not None]
    if len(known_s) == len(found):
        keys["step_interval_s"] = _widened(interval(known_s))
    return keys


def _widened(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"low": found["low"] * (1 - UNREHEARSED), "high": found["high"] * (1 + UNREHEARSED)}


def doubts_of(topology: Topology) -> list[Warned]:
    """Return a warning if the steps that the calibration of *topology* rehearsed took far from their predicted time."""
    middle = median(topology.misfit) if topology.misfit else 1.0
    if LEAST_MISFIT <= middle <= MOST_MISFIT:
        return []
    text = (
        f"the model explains {words.share(1 / middle)} of the measured time: steps rehearsed to calibrate "
        f"{topology.name} took {middle:.2f} times their prediction; the interval includes that, the time does not"
    )
    return [warned(MISFIT, text)]


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Return {level, low, high, replicas}: the next such value lies inside with probability *level*.

    Among n values, a new one is below the i-th smallest with probability i / (n + 1). Too few cannot reach LEVEL: then
    the interval is their range, with its own level.
    """
    n = len(values)
    reached = min(LEVEL, (n - 1) / (n + 1))
    low, high = np.quantile(values, [(1 - reached) / 2, (1 + reached) / 2], method="weibull")
    return {"level": reached, "low": float(low), "high": float(high), "replicas": [float(value) for value in values]}


def _rounds(rounds: int, count: int, seed: int) -> list[int]:
    """Return the replicas' rounds: all in order if the counts agree, else drawn, none twice before all are used."""
    if count == rounds:
        return list(range(rounds))
    random, drawn = numpy_stream(seed, "replicas"), list[int]()
    while len(drawn) < count:
        drawn += [int(number) for number in random.permutation(rounds)]
    return drawn[:count]


def _times(plan: Experiment, job: ClusterJob, number: int, changed: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return (elapsed, mean step) of the run on one round's replica, plus the calibration's known misfit."""
    cluster = plan.topology
    document = {**plan.document, "topology": replica(cluster, number), **changed, "checkpoint": None}
    again = read_experiment({key: value for key, value in document.items() if value is not None})
    alone = replace(
        job, config_json=json.dumps(again.document), topology=again.topology, keeping=None, watcher=None, follower=None,
        on_progress=None, on_output=None, again=None,
    )  # fmt: skip
    remember(alone.config_json, again)
    record = simulator().run_cluster(alone)
    if record.error is not None:
        raise record.error if isinstance(record.error, RunError) else RunError(str(record.error))
    factor = cluster.misfit[number] if cluster.misfit else 1.0
    startup_s = cluster.startup_s[number] if cluster.startup_s else 0.0
    step_s = _step_s(record)
    return record.lasted_s * factor + startup_s, None if step_s is None else step_s * factor


def _step_s(record: RunRecord) -> float | None:
    """Return the mean step time of the observed rank; a parameter server's steps are its workers' combined."""
    node = record.nodes[min(1, len(record.nodes) - 1)]
    if node.first_step is None or node.last_step is None or node.first_step[0] == node.last_step[0]:
        return None
    (first, began_s), (last, ended_s) = node.first_step, node.last_step
    return (ended_s - began_s) / (last - first)
