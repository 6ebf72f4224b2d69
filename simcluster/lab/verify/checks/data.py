"""Checks of the ranks' data: disjoint and complete shards, equal batch sizes and step counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import expect, listed
from simcluster.workloads import Batch, Samples, Workload, quadratic
from simcluster.workloads.data.partition import Indices, deals_each_epoch, dealt_samples, tail_of

LOOKED_AT = 1024
"""Limit on the number of samples that the check distributes to the ranks."""


def shards(subject: Subject) -> str:
    """Check that each sample is on one rank, and that unequal shards give equally many steps."""
    samples = subject.model.train_samples
    model = replace(subject.model, train=samples.first(LOOKED_AT))
    for size in subject.several:
        wrong = _uneven_steps(size) or _ledger(model, size, subject.seed)
        expect(not wrong, f"N = {size}: {wrong}")
    told = f"each of {len(model.train_samples)} samples is on one rank; equally many batches on every rank"
    if deals_each_epoch(model.partition) or tail_of(model.partition) != "keep":
        told = f"{len(model.train_samples)} samples are dealt as the partition says; equally many batches on every rank"
    return f"N = {listed(subject.several)}: {told}"


def _ledger(model: Workload, size: int, seed: int) -> str:
    """Describe a batch of a wrong size, samples on several ranks or none, or a deal that a resumed
    rank would not repeat; "" if all is well.

    If the samples are dealt again each epoch, the first two epochs count.
    """
    samples, epochs = len(model.train_samples), 2 if deals_each_epoch(model.partition) else 1
    drawn: list[list[bytes]] = []
    for rank in range(size):
        shard_size = model.replica(rank, size, seed, 1).shard_size
        steps = -(-epochs * shard_size // model.batch_size)
        batches = list(model.replica(rank, size, seed, steps).batches())
        if odd := next((batch for batch in batches if len(batch) != model.batch_size), None):
            return f"rank {rank} has a batch of {len(odd)}, not of {model.batch_size}"
        kinds = [_kinds(batch) for batch in batches]
        late = steps - 1
        if [_kinds(batch) for batch in model.replica(rank, size, seed, steps).batches(late)] != kinds[late:]:
            return f"rank {rank} draws other samples in its batch {late} if it resumes there"
        drawn.append([kind for batch in kinds for kind in batch][: epochs * shard_size])
    passes = [[set(own[at * len(own) // epochs :][: len(own) // epochs]) for own in drawn] for at in range(epochs)]
    dealt = dealt_samples(samples, size, tail_of(model.partition))
    wrong_passes = (_wrong_pass(owners, model.train_samples, dealt) for owners in passes)
    if wrong := next(filter(None, wrong_passes), ""):
        return wrong
    if size > 1 and epochs > 1 and passes[0] == passes[1]:
        return "every rank has the samples of the epoch before, though they are dealt again"
    return ""


def _wrong_pass(owned: list[set[bytes]], samples: Samples, dealt: int) -> str:
    """Describe samples that are on several of the ranks or on none in one epoch, which deals
    *dealt* samples; *owned* are the samples of each rank. Return "" if all is well.
    """
    owners = Counter(kind for own in owned for kind in own)
    kinds = set(_kinds(samples))
    shared = sum(count > 1 for count in owners.values())
    if shared > max(0, dealt - len(samples)) and len(kinds) == len(samples):
        return f"{shared} samples are on more than one rank"
    missing = len(kinds - owners.keys())
    return f"{missing} of {len(kinds)} samples are on no rank" if missing > max(0, len(samples) - dealt) else ""


def _kinds(samples: Samples | Batch) -> list[bytes]:
    """Return each of *samples* as bytes."""
    return [b"".join(part.numpy().tobytes() for part in parts) for parts in zip(*samples.tensors, strict=True)]


def _uneven_steps(size: int) -> str:
    """Describe how ranks with unequal shards differ in their number of steps; "" if they do not."""

    def deal(targets: npt.NDArray[np.generic], parts: int, rng: np.random.Generator) -> list[Indices]:
        cuts = [16 * (part + 1) * (part + 2) // 2 for part in range(parts - 1)]  # shards of 16, 32, 48, ...
        return [np.asarray(part) for part in np.split(np.arange(len(targets)), cuts)]

    workload = replace(quadratic(features=2, samples=1024, batch_size=4), partition=deal)
    counts = [sum(1 for _ in workload.replica(rank, size, 0, epochs=1).batches()) for rank in range(size)]
    return "" if len(set(counts)) == 1 else f"ranks with unequal shards take {listed(counts)} steps in an epoch"


def clipping(subject: Subject) -> str:
    """Check that a gradient over the limit takes the same step as the clipped gradient."""
    limit = 1e-3
    plain, clipped = (replace(subject.model, clip_norm=norm).replica(0, 1, subject.seed, 1) for norm in (None, limit))
    gradients = [torch.ones_like(parameter) for parameter in plain.parameters]
    norm = float(torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt())
    plain.apply([gradient * (limit / norm) for gradient in gradients])
    clipped.apply(gradients)
    pairs = zip(clipped.parameters, plain.parameters, strict=True)
    off = max(float((found - expected).abs().max()) if found.numel() else 0.0 for found, expected in pairs)
    told = f"a gradient of norm {norm:.3g} under clip_norm {limit:g} takes the step of one of norm {limit:g}"
    expect(off <= subject.rounding, f"it does not hold that {told}: weights differ by {off:.2g}")
    return told


def birth(subject: Subject) -> str:
    """Check that all ranks start with the same weights."""
    size = max(subject.sizes)
    first, *rest = (subject.model.replica(rank, size, subject.seed, 1).weights_sha256() for rank in range(size))
    others = [rank for rank, digest in enumerate(rest, start=1) if digest != first]
    expect(not others, f"N = {size}: rank {listed(others)} starts with other weights than rank 0")
    return f"N = {size}: every rank is born with the same bits"
