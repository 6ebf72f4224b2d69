"""Checks of the ranks' data: disjoint and complete shards, equal batch sizes, equal numbers of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed
from simcluster.verify.verdict import Check
from simcluster.workloads import Samples, Workload, quadratic
from simcluster.workloads.partition import Indices

LOOKED_AT = 1024
"""Number of samples dealt out to see who gets them."""

SHARDS, CLIPPING, BIRTH = "shards", "clipping", "initial weights"


def shards(subject: Subject) -> Iterator[Check]:
    """Check that each sample belongs to one rank, and that ranks with unequal shards take equally many steps."""
    samples = subject.model.train_samples
    model = replace(subject.model, train=Samples(samples.inputs[:LOOKED_AT], samples.targets[:LOOKED_AT]))
    for size in subject.several:
        wrong = _uneven_steps(size) or _ledger(model, size, subject.seed)
        if wrong:
            yield failed(SHARDS, f"N = {size}: {wrong}")
            return
    total = len(model.train_samples)
    told = f"each of {total} samples is on one rank; equally many batches on every rank"
    yield held(SHARDS, f"N = {listed(subject.several)}: {told}")


def _ledger(model: Workload, size: int, seed: int) -> str:
    """Describe samples that the batches show at no rank or at several."""
    owners: Counter[bytes] = Counter()
    for rank in range(size):
        replica = model.replica(rank, size, seed, 1)
        held_here = replica.shard_size
        passes = model.replica(rank, size, seed, -(-held_here // model.batch_size))
        seen: set[bytes] = set()
        for batch in passes.batches():
            if len(batch) != model.batch_size:
                return f"rank {rank} has a batch of {len(batch)}, not of {model.batch_size}"
            pairs = zip(batch.inputs, batch.targets, strict=True)
            seen |= {x.numpy().tobytes() + y.numpy().tobytes() for x, y in pairs}
        owners.update(seen)
    shared = sum(count > 1 for count in owners.values())
    kinds = {
        x.numpy().tobytes() + y.numpy().tobytes()
        for x, y in zip(model.train_samples.inputs, model.train_samples.targets, strict=True)
    }
    if shared and len(kinds) == len(model.train_samples):
        return f"{shared} samples are on more than one rank"
    if missing := len(kinds - owners.keys()):
        return f"{missing} of {len(kinds)} samples are on no rank"
    return ""


def _uneven_steps(size: int) -> str:
    """Describe unequal numbers of steps of ranks with unequal shards."""

    def deal(targets: npt.NDArray[np.generic], parts: int, rng: np.random.Generator) -> list[Indices]:
        cuts = [16 * (part + 1) * (part + 2) // 2 for part in range(parts - 1)]  # shards of 16, 32, 48, ...
        return [np.asarray(part) for part in np.split(np.arange(len(targets)), cuts)]

    workload = replace(quadratic(features=2, samples=1024, batch_size=4), partition=deal)
    counts = [sum(1 for _ in workload.replica(rank, size, 0, epochs=1).batches()) for rank in range(size)]
    return "" if len(set(counts)) == 1 else f"ranks with unequal shards take {listed(counts)} steps in an epoch"


def clipping(subject: Subject) -> Iterator[Check]:
    """Check that a step with too large a gradient equals the step with the clipped gradient."""
    limit = 1e-3
    plain, clipped = (replace(subject.model, clip_norm=norm).replica(0, 1, subject.seed, 1) for norm in (None, limit))
    gradients = [torch.ones_like(parameter) for parameter in plain.parameters]
    norm = float(torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt())
    plain.apply([gradient * (limit / norm) for gradient in gradients])
    clipped.apply(gradients)
    off = max(_off(a, b) for a, b in zip(clipped.parameters, plain.parameters, strict=True))
    told = f"a gradient of norm {norm:.3g} under clip_norm {limit:g} takes the step of one of norm {limit:g}"
    if off <= subject.rounding:
        yield held(CLIPPING, told)
    else:
        yield failed(CLIPPING, f"it does not hold that {told}: weights differ by {off:.2g}")


def _off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max()) if found.numel() else 0.0


def birth(subject: Subject) -> Iterator[Check]:
    """Check that all ranks start with the same weights."""
    size = max(subject.sizes)
    replicas = [subject.model.replica(rank, size, subject.seed, 1) for rank in range(size)]
    others = _unlike(replicas[0].parameters, [replica.parameters for replica in replicas])
    if others:
        yield failed(BIRTH, f"N = {size}: rank {listed(others)} starts with other weights than rank 0")
    else:
        yield held(BIRTH, f"N = {size}: every rank is born with the same bits")


def _unlike(first: Sequence[torch.Tensor], all_of_them: Sequence[Sequence[torch.Tensor]]) -> list[int]:
    return [
        rank
        for rank, weights in enumerate(all_of_them)
        if not all(torch.equal(mine, other) for mine, other in zip(weights, first, strict=True))
    ]
