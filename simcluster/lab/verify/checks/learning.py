"""Checks of learning: the loss falls, every parameter is trained, and replicas agree if claimed."""

from __future__ import annotations

from dataclasses import replace

import torch

from simcluster.lab.verify.running import RunResult, names_of
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect, listed

LAYERS = '{"name": "mnist_mlp", "hidden": 12, "batch_size": 8, "learning_rate": 0.05}'
"""A workload for `arrives`, with a model of several parameters."""
JUDGED = 256
"""Limit on the number of samples for which a loss is evaluated."""


def learns(subject: Subject) -> str:
    """Check that rank 0's loss falls."""
    size = max(subject.sizes)
    done = subject.run(size).ended(f"N = {size}")
    before, after = loss_before_and_after(done)
    told = f"N = {size}, {done.plan.steps} steps: rank 0's loss goes from {before:.4g} to {after:.4g}"
    return expect(after < before, told)


def arrives(subject: Subject) -> str:
    """Check that every rank trains a parameter, and that every parameter is trained on a rank."""
    size = subject.middle
    done = subject.run(size, workload="" if subject.claim.workload else LAYERS).ended(f"N = {size}")
    born = done.plan.workload.replica(0, size, done.plan.seed, 1).snapshot()
    names = names_of(done.plan)
    moved = [
        [not torch.equal(mine, initial) for mine, initial in zip(weights, born, strict=True)] if weights else []
        for weights in done.weights
    ]
    idle = [rank for rank, found in enumerate(moved) if not any(found)]
    expect(not idle, f"N = {size}: nothing moves on rank {listed(idle)}")
    stuck = [name for index, name in enumerate(names) if not any(found[index] for found in moved if found)]
    expect(not stuck, f"N = {size}: {listed(stuck)} never {'moves' if len(stuck) == 1 else 'move'}")
    everywhere = sum(all(found) for found in moved)
    return f"N = {size}: all {len(names)} parameters move; every one of them on {everywhere} ranks"


def agree(subject: Subject) -> str:
    """Check that all ranks end with the same bits, if that is claimed."""
    if not subject.claim.replicas_agree:
        raise NotClaimed("it is not claimed that they do")
    for size in subject.several:
        first, *rest = subject.run(size).ended(f"N = {size}").nodes
        others = [node.rank for node in rest if node.weights_sha256 != first.weights_sha256]
        expect(not others, f"N = {size}: rank {listed(others)} ends with other weights than rank 0")
    return f"N = {listed(subject.several)}: all ranks end with the same bits"


def loss_before_and_after(done: RunResult) -> tuple[float, float]:
    """Return rank 0's loss before and after the run, on held-out samples if there are any."""
    workload = done.plan.workload
    after = done.weights[0]
    if after is None:
        return 0.0, float("inf")
    samples = workload.test_samples or workload.train_samples
    replica = replace(workload, test=samples.first(JUDGED)).replica(0, len(done.nodes), done.plan.seed, 1)
    return replica.evaluate()["loss"], replica.evaluate_weights(after)["loss"]
