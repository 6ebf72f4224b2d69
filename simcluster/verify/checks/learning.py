"""Learning: the loss falls, every parameter is trained on some rank, and replicas that should agree do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from simcluster.verify.running import Done, names_of
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed
from simcluster.verify.verdict import Check
from simcluster.workloads import Samples

LEARNS, ARRIVES, AGREE = "learns", "the gradient arrives", "replicas agree"

LAYERS = '{"name": "mnist_mlp", "hidden": 12, "batch_size": 8, "learning_rate": 0.05}'
"""A model with more than one parameter."""
JUDGED = 256
"""Number of samples in a loss."""


def learns(subject: Subject) -> Iterator[Check]:
    size = max(subject.sizes)
    done = subject.run(size)
    if done.error is not None:
        yield failed(LEARNS, f"N = {size}: {done.failure}")
        return
    before, after = loss_before_and_after(subject, done)
    told = f"N = {size}, {done.plan.steps} steps: rank 0's loss goes from {before:.4g} to {after:.4g}"
    yield (held if after < before else failed)(LEARNS, told)


def arrives(subject: Subject) -> Iterator[Check]:
    """Check that every rank trains some parameters, and that each parameter is trained somewhere."""
    size = subject.middle
    if subject.claim is not None and subject.claim.workload is not None:
        done = subject.run(size)
    else:
        done = subject.run(size, workload=LAYERS)
    if done.error is not None:
        yield failed(ARRIVES, f"N = {size}: {done.failure}")
        return
    born, names = done.plan.workload.replica(0, size, done.plan.seed, 1).snapshot(), names_of(done.plan)
    moved = [
        [not torch.equal(mine, initial) for mine, initial in zip(weights, born, strict=True)] if weights else []
        for weights in done.weights
    ]
    idle = [rank for rank, found in enumerate(moved) if not any(found)]
    stuck = [name for index, name in enumerate(names) if not any(found[index] for found in moved if found)]
    if idle:
        yield failed(ARRIVES, f"N = {size}: nothing moves on rank {listed(idle)}")
    elif stuck:
        yield failed(ARRIVES, f"N = {size}: {listed(stuck)} never {'moves' if len(stuck) == 1 else 'move'}")
    else:
        everywhere = sum(all(found) for found in moved)
        yield held(ARRIVES, f"N = {size}: all {len(names)} parameters move; every one of them on {everywhere} ranks")


def agree(subject: Subject) -> Iterator[Check]:
    """Check that final replicas agree to the bit, if claimed."""
    if subject.claim is None or not subject.claim.replicas_agree:
        yield not_claimed(AGREE, "it is not claimed that they do")
        return
    for size in subject.several:
        done = subject.run(size)
        if done.error is not None:
            yield failed(AGREE, f"N = {size}: {done.failure}")
            return
        others = [node.rank for node in done.nodes if node.weights_sha256 != done.nodes[0].weights_sha256]
        if others:
            yield failed(AGREE, f"N = {size}: rank {listed(others)} ends with other weights than rank 0")
            return
    yield held(AGREE, f"N = {listed(subject.several)}: all ranks end with the same bits")


def loss_before_and_after(subject: Subject, done: Done) -> tuple[float, float]:
    """Return rank 0's loss before and after, on held-out samples, or else on training samples."""
    workload, after = done.plan.workload, done.weights[0]
    if after is None:
        return 0.0, float("inf")
    samples = workload.test_samples or workload.train_samples
    some = Samples(samples.inputs[:JUDGED], samples.targets[:JUDGED])
    replica = replace(workload, test=some).replica(0, len(done.nodes), done.plan.seed, 1)
    return replica.evaluate()["loss"], replica.evaluate_weights(after)["loss"]
