"""After a run, suggest settings that would have made it far faster, with the time that it then takes.

Cheap estimates from the run's own numbers choose a setting, and a timing-only simulation of at most
STEPS steps finds its time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import NamedTuple, get_args, get_type_hints

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.algorithms.model_parallel.placement import StageSearch
from simcluster.backend import simulator
from simcluster.collectives.schedules import ScheduleOf
from simcluster.documents.yaml import parse_value
from simcluster.errors import NeedsValues, UsageError
from simcluster.experiment.interval import TIMED
from simcluster.experiment.node import remember
from simcluster.experiment.read.batches import by_device
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.fit import a_replica
from simcluster.experiment.read.read import read_experiment
from simcluster.job import ClusterJob
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT
from simcluster.runs.record import RunRecord
from simcluster.runs.steps import steps_of
from simcluster.topology.replicas import rounds_of

FAR = 1.5
"""A hint is shown only if a step would be at least this many times faster."""

FAR_OF_SCHEDULES = 3.0
"""The same for a schedule. For small vectors, which another one suits, twice as fast is common and
matters little.
"""

MOST_WORKERS = 16
"""With more workers no hints are computed: that would take too long."""

MOST_MESSAGES = 2000
"""With more messages in a step no schedules are tried: each would take as long as the run."""

STEPS = 10
"""Limit on the steps that are simulated with another setting, up to a whole round of local steps."""


class Suggestion(NamedTuple):
    """A *value* of the setting *key*, as written in YAML, and the estimated seconds of a step with it."""

    key: str
    value: str
    step_s: float


def hints_of(plan: Experiment, record: RunRecord) -> list[str]:
    """Return a line for each setting with which the simulated run of *plan* would be at least FAR
    times as fast.

    *record* is the record of the run. For a script, the line says why its time has no interval.
    """
    size = len(plan.topology.workers)
    if plan.backend != "sim" or record.error is not None or not 1 < size <= MOST_WORKERS:
        return []
    if plan.algorithm_name == SCRIPT:
        rounds = rounds_of(plan.topology)
        return [f"no interval around the time: it would take {rounds} more runs of the script"] if rounds else []
    steps, _ = steps_of(record)
    found = [*_of_order(plan), *_of_batches(plan, record, steps), *_of_schedule(plan, record, steps)] if steps else []
    return [line for each in found if (line := _line(plan, each, record.elapsed_s / steps, steps))]


def _of_order(plan: Experiment) -> Iterator[Suggestion]:
    """Suggest `order: auto` if stages in another order of nodes would be faster, perhaps on fewer
    nodes, unless the user has chosen the order.
    """
    if facts_of(plan.algorithm).places is None:
        return
    settings = plan.algorithm_settings
    size = len(plan.topology.workers)
    replica = a_replica(plan.workload, size, plan.steps, "none") if settings["order"] is None else None
    if replica is None:
        return
    given = {key: plan.by_topology.get(f"algorithm.{key}", value) for key, value in settings.items()}
    search = StageSearch(replica, given, plan.topology)
    then_s = search.step_s(search.fastest(whole=plan.checkpoint is not None))
    if then_s * FAR <= search.step_s(range(size)):
        yield Suggestion("algorithm.order", "auto", then_s)


def _of_batches(plan: Experiment, record: RunRecord, steps: int) -> Iterator[Suggestion]:
    """Suggest batch sizes by speed if they would be faster than equal ones.

    Nothing is computed unless the work of the slowest node takes half of a step.
    """
    facts, names = facts_of(plan.algorithm), plan.topology.workers
    if facts.places is not None or facts.evenly(plan.algorithm_settings) or not _can_try(plan):
        return
    sizes = plan.workload.sizes(len(names))
    step_s = record.elapsed_s / steps
    works_s = [node.compute_s / steps for node in record.nodes]
    slowest_s = max(works_s)
    if not isinstance(plan.document["workload"].get("batch_size"), int):
        return
    if not step_s / 2 <= slowest_s <= step_s or slowest_s * len(works_s) < FAR * sum(works_s):
        return
    replica = a_replica(plan.workload, len(names), plan.steps, "none")
    if replica is None:
        return
    shares = by_device(replica, sum(sizes), plan.topology)
    then_s = step_s - slowest_s + max(
        work_s * share / size for work_s, share, size in zip(works_s, shares, sizes, strict=True)
    )  # fmt: skip
    yield Suggestion("workload.batch_size", f"{{total: {sum(sizes)}, by: device}}", then_s)


def _of_schedule(plan: Experiment, record: RunRecord, steps: int) -> Iterator[Suggestion]:
    """Suggest the schedule of the all-reduce with the fastest first round.

    Nothing is simulated unless the nodes mostly wait for messages.
    """
    if plan.algorithm_name not in ALGORITHMS:  # the hints of own functions may name types that do not exist
        return
    hints = get_args(get_type_hints(plan.algorithm, include_extras=True).get("schedule"))
    names = [name for each in hints if isinstance(each, ScheduleOf) and each.op == "all_reduce" for name in each.names]
    busiest_s = max(node.compute_s for node in record.nodes)
    if not names or busiest_s * FAR > record.elapsed_s or not _can_try(plan):
        return
    if sum(node.messages_sent for node in record.nodes) > MOST_MESSAGES * steps:
        return
    key = "algorithm.schedule"
    found = [Suggestion(key, name, _simulated_s(plan, key, name, min(steps, _round(plan)))) for name in names]
    best = min(found, key=lambda each: each.step_s)
    if best.step_s * FAR_OF_SCHEDULES <= record.elapsed_s / steps:
        yield best


def _round(plan: Experiment) -> int:
    """Return the number of steps from one exchange to the next."""
    return int(plan.algorithm_settings.get("interval", 1))


def _can_try(plan: Experiment) -> bool:
    """Return whether a timing-only run is cheap.

    It is not for a large model with values: counting costs would take longer than many runs, and
    import torch's compiler.
    """
    return plan.numerics == "none" or plan.workload.is_small(sum(plan.workload.sizes(len(plan.topology.workers))))


def _line(plan: Experiment, found: Suggestion, now_s: float, steps: int) -> str:
    """Return the line for *found*, with the simulated time if it is cheap; "" if it is not far
    faster than *now_s*.
    """
    then_s, about = found.step_s, "about "
    if then_s * FAR <= now_s and _can_try(plan):
        few = min(steps, -(-STEPS // _round(plan)) * _round(plan))
        then_s, about = _simulated_s(plan, found.key, found.value, few), "about " if few < steps else ""
    if then_s * FAR > now_s:
        return ""
    key = found.key.rpartition(".")[2]
    how = f"'{found.key}={found.value}'" if " " in found.value else f"{found.key}={found.value}"
    times = f"{about}{words.seconds(then_s)} in place of {words.seconds(now_s)}"
    return f"with {key}: {found.value} a step would take {times}, {now_s / then_s:.3g} times faster: --set {how}"


def _simulated_s(plan: Experiment, key: str, value: str, steps: int) -> float:
    """Return the seconds of a step in a timing-only run of *steps* steps, with *value* for *key*.

    Return infinity if the algorithm needs values.
    """
    document = plan.document | TIMED | {"checkpoint": None, "stop": {"steps": steps}, "evaluate_every": steps}
    kept = {name: given for name, given in document.items() if given is not None}
    changes = {**plan.by_topology, key: parse_value(value)}
    try:
        other = read_experiment(kept, changes)
    except (NeedsValues, UsageError):
        return math.inf
    job = ClusterJob(
        names=other.topology.workers, config_json=json.dumps(other.document), seed=plan.seed, topology=other.topology,
        faults=other.faults, worlds=other.worlds,
    )  # fmt: skip
    remember(job.config_json, other)
    record = simulator().run_cluster(job)
    return math.inf if record.error is not None else record.elapsed_s / steps
