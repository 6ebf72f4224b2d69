"""Running statistics: the model that stands for the run has those of all ranks' batches, not of its own."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from simcluster.algorithms.facts import facts_of
from simcluster.experiment.job import ClusterJob
from simcluster.experiment.node import remember
from simcluster.runs.record import RunRecord
from simcluster.runs.summary import LOSS
from simcluster.verify.running import as_json
from simcluster.verify.running_mean import SPREAD
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import Failed, NotClaimed, expect

STEPS = 60
NEAR = 0.75
"""Limit on the distance from the mean of all, relative to that of rank 0's own samples."""

WORKLOAD = as_json({"path": f"{Path(__file__).parent.parent / 'running_mean.py'}:running_mean"})


def travel(subject: Subject) -> str:
    """Check that rank 0 ends with about the mean of all ranks' running statistics, where their samples differ."""
    size = subject.middle
    plan = subject.runner.plan(subject.request(size, workload="", steps=STEPS))
    if facts_of(plan.algorithm).running == "none":
        raise NotClaimed("every rank trains on all ranks' batches")
    if size == 1:
        raise NotClaimed("one rank has no other statistics than its own")
    plan = subject.runner.plan(subject.request(size, workload=WORKLOAD, steps=STEPS))
    config_json = json.dumps(plan.document)
    remember(config_json, plan)
    job = ClusterJob(plan.topology.workers, config_json, seed=plan.seed, topology=plan.topology)
    record: RunRecord = importlib.import_module("simcluster_backends.sim").run_cluster(job)
    if record.error is not None:
        raise Failed(f"N = {size}: {type(record.error).__name__}: {record.error}")
    if not any(node.messages_sent for node in record.nodes):
        raise NotClaimed("it sends nothing")
    losses = [metric.value for metric in record.nodes[0].metrics if metric.name == LOSS]
    apart, own = losses[-1] ** 0.5, SPREAD * (1 - 1 / size)
    told = (
        f"N = {size}, {STEPS} steps: rank 0's running mean is {apart:.3g} from that of all samples, its own {own:.3g}"
    )
    return expect(apart <= NEAR * own, told)
