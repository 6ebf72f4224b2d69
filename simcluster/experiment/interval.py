"""Find the uncertainty of a predicted time: repeat the run on replicas of a calibrated topology.

A calibration measured its cluster in n rounds. Replica i has all numbers of round i, so parts that
were slow together stay slow together. All replicas have the same random draws (jitter, stragglers),
which are keyed by the run's seed. A real run counts as one more round: its place among the n others
is equally likely to be any of the n + 1. So it lies between their minimum and maximum with
probability (n - 1) / (n + 1), which is 0.9 for n = 19; the quantiles in between follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from simcluster.backend import simulator
from simcluster.errors import NeedsValues, UsageError
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
"""The probability with which a real run should lie in the interval."""

REPLICAS = "replicas"
"""The option with the number of replicas; the backend never sees it."""

TIMED = {"numerics": "none", "evaluate_consensus": None, "observe": None}
"""Settings that make an experiment timing-only."""

UNREHEARSED = 0.02
"""The fraction by which training may differ from the steps that a calibration rehearses; see
docs/fidelity.md.
"""

LEAST_MISFIT, MOST_MISFIT = 0.87, 1.15
"""The trusted range of (measured / predicted) for the rehearsed steps of a calibration.

Outside it, every prediction is in doubt.
"""


def take_option(plan: Experiment, options: dict[str, Any]) -> int:
    """Remove the number of replicas from *options* and return it.

    The default is the number of calibration rounds, 0 without a calibration. Raise UsageError for
    an invalid number.
    """
    rounds = rounds_of(plan.topology) if plan.backend == "sim" else 0
    if plan.algorithm_name == SCRIPT:
        if options.get(REPLICAS):
            expected = "0: the interval of a script takes whole runs of it; sweep it over topologies"
            raise UsageError("replicas", repr(options[REPLICAS]), expected)
        rounds = 0
    if REPLICAS not in options or plan.backend != "sim":
        return rounds
    wanted = options.pop(REPLICAS)
    if type(wanted) is not int or wanted < 0 or wanted == 1:
        raise UsageError("replicas", repr(wanted), "0 for no interval, or a whole number of at least 2")
    if wanted and not rounds:
        expected = "a calibrated topology, with the spread of its numbers: see `simcluster calibrate`"
        raise UsageError("replicas", f"{wanted} for {plan.topology.name}, which has no spread", expected)
    return wanted


def intervals(plan: Experiment, job: ClusterJob, count: int) -> dict[str, dict[str, Any]]:
    """Return the intervals of *plan*'s times, from *count* replicas, as keys of summary.json.

    *job* is the job of the run itself.
    """
    rounds = _rounds(rounds_of(plan.topology), count, plan.seed)
    try:
        found = [_times(plan, job, number, TIMED) for number in rounds]
    # The algorithm depends on computed values, so repeat the run with real numerics.
    except (NeedsValues, UsageError):
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
    """Return a warning if the rehearsed steps of a calibration were far off their prediction."""
    middle = median(topology.misfit) if topology.misfit else 1.0
    if LEAST_MISFIT <= middle <= MOST_MISFIT:
        return []
    text = (
        f"the model explains {words.share(1 / middle)} of the measured time: steps rehearsed to calibrate "
        f"{topology.name} took {middle:.2f} times their prediction; the interval includes that, the time does not"
    )
    return [warned(MISFIT, text)]


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Return {level, low, high, replicas}: a new value is from low to high with probability level.

    A new value is below the i-th smallest of n with probability i / (n + 1). With too few values
    for LEVEL, the interval is their range, and level is the probability of the range.
    """
    n = len(values)
    reached = min(LEVEL, (n - 1) / (n + 1))
    # The method "weibull" puts the i-th smallest of n values at i / (n + 1).
    low, high = np.quantile(values, [(1 - reached) / 2, (1 + reached) / 2], method="weibull")
    return {"level": reached, "low": float(low), "high": float(high), "replicas": [float(value) for value in values]}


def _rounds(rounds: int, count: int, seed: int) -> list[int]:
    """Return the number of the round for each of *count* replicas.

    If *count* equals *rounds*, return all rounds in order. Otherwise draw rounds at random, and
    draw none again before all have been drawn.
    """
    if count == rounds:
        return list(range(rounds))
    random = numpy_stream(seed, "replicas")
    drawn = list[int]()
    while len(drawn) < count:
        drawn += [int(number) for number in random.permutation(rounds)]
    return drawn[:count]


def _times(plan: Experiment, job: ClusterJob, number: int, changed: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return (seconds of the run, seconds of its mean step) on the replica of round *number*.

    Both are corrected by the misfit of this round. *changed* are settings that replace *plan*'s.
    """
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
        raise record.error
    factor = cluster.misfit[number] if cluster.misfit else 1.0
    startup_s = cluster.startup_s[number] if cluster.startup_s else 0.0
    step_s = _step_s(record)
    return record.lasted_s * factor + startup_s, None if step_s is None else step_s * factor


def _step_s(record: RunRecord) -> float | None:
    """Return the mean seconds per step of rank 1, or of a single rank; None if it made fewer than
    two steps.

    The steps of rank 0, if it is a parameter server, are those of all workers.
    """
    node = record.nodes[min(1, len(record.nodes) - 1)]
    if node.first_step is None or node.last_step is None or node.first_step[0] == node.last_step[0]:
        return None
    (first, began_s), (last, ended_s) = node.first_step, node.last_step
    return (ended_s - began_s) / (last - first)
