"""Partitions of the samples into disjoint shards that cover all samples. No shard is empty.

`iid`, `redeal` and `dirichlet` return one sorted array of sample numbers per shard. With `tail="pad"`
or "drop", shards have equal sizes: a few samples are then in two shards, or in none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simcluster.errors import UsageError

Indices = npt.NDArray[np.int64]

Partition = Callable[..., list[Indices]]
"""A function that is called as partition(targets, shards, rng=rng), such as `iid` or
`partial(dirichlet, alpha=0.5)`.
"""


ALPHA = 0.5

Tail = Literal["keep", "pad", "drop"]
"""The treatment of the samples left over when the shards do not divide the samples."""


def iid(labels: npt.NDArray[Any], shards: int, rng: np.random.Generator, tail: Tail = "keep") -> list[Indices]:
    """Shuffle the samples and deal them evenly.

    The values of *labels* do not matter. *tail*: "keep" deals every sample once, and shard sizes
    differ by at most one. "pad" repeats the first samples until all shards are as large as the
    largest, "drop" leaves out the last samples until all are as small as the smallest, as torch's
    DistributedSampler does with *drop_last* false and true.

    Raise UsageError if *shards* is below 1 or above the number of samples.
    """
    _check_enough(len(labels), shards, 1)
    order = np.resize(rng.permutation(len(labels)), dealt_samples(len(labels), shards, tail))
    return [np.sort(part) for part in np.array_split(order, shards)]


def redeal(labels: npt.NDArray[Any], shards: int, rng: np.random.Generator, tail: Tail = "keep") -> list[Indices]:
    """Deal the samples as `iid` does, with a new deal in each epoch.

    A Workload calls a partition once, but this one once per epoch, each time with another *rng*.
    """
    return iid(labels, shards, rng, tail)


def named_partition(name: Literal["iid", "redeal", "dirichlet"], tail: Tail, alpha: float, at_least: int) -> Partition:
    """Return the partition *name*, with the settings that concern it.

    Raise UsageError for a *tail* with "dirichlet", and for an *alpha* without it.
    """
    if name != "dirichlet":
        if alpha != ALPHA:
            raise UsageError("alpha", repr(alpha), f"none with {name}, or partition: dirichlet")
        return partial(iid if name == "iid" else redeal, tail=tail)
    if tail != "keep":
        raise UsageError("tail", repr(tail), "keep with dirichlet, whose shards differ in size on purpose")
    return partial(dirichlet, alpha=alpha, at_least=at_least)


def deals_each_epoch(partition: Partition) -> bool:
    """Return whether *partition* is `redeal`, perhaps with settings bound by `functools.partial`."""
    return (partition.func if isinstance(partition, partial) else partition) is redeal


def tail_of(partition: Partition) -> Tail:
    """Return the *tail* that *partition*, if it is `iid` or `redeal`, binds by `functools.partial`;
    otherwise "keep".
    """
    is_bound = isinstance(partition, partial) and partition.func in (iid, redeal)
    bound: Tail = partition.keywords.get("tail", "keep") if is_bound else "keep"  # type: ignore[attr-defined]
    return bound


def dealt_samples(samples: int, shards: int, tail: Tail) -> int:
    """Return how many of *samples* one epoch deals to *shards* shards, repeated ones included."""
    if tail == "keep":
        return samples
    return (samples // shards if tail == "drop" else -(-samples // shards)) * shards


def dirichlet(
    labels: npt.NDArray[Any], shards: int, alpha: float, rng: np.random.Generator, at_least: int = 1
) -> list[Indices]:
    """Deal the samples of each class to the shards in proportions drawn from Dirichlet(*alpha*).

    If alpha is near 0, a shard has few classes; if it is far above 1, a shard has all of them.

    From Hsu, Qi, Brown 2019, "Measuring the effects of non-identical data distribution for federated visual
    classification". A shard with fewer than *at_least* samples is filled up from the largest shard.

    Raise UsageError unless *shards* is at least 1, *labels* is a 1-D array of integers with at
    least *shards* * *at_least* entries, and *alpha* is finite and above 0.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = f"targets of {labels.dtype} and shape {labels.shape}"
        raise UsageError("partition", found, "integer class labels, one per sample; or use iid")
    _check_enough(len(labels), shards, at_least)
    if not 0 < alpha < np.inf:
        raise UsageError("alpha", repr(alpha), "a finite number above 0")
    pieces: list[list[Indices]] = [[] for _ in range(shards)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet([alpha] * shards)
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for shard, piece in zip(pieces, np.split(members, cuts), strict=True):
            shard.append(piece)
    dealt = [np.concatenate(shard) for shard in pieces]
    _level_up(dealt, at_least)
    return [np.sort(shard) for shard in dealt]


def _check_enough(samples: int, shards: int, at_least: int) -> None:
    if shards < 1:
        raise UsageError("partition", f"{shards} shards", "at least one")
    if samples < shards * at_least:
        expected = f"at least {shards * at_least}, {at_least} for each of {shards} shards"
        raise UsageError("partition", f"{samples} samples", expected)


def _level_up(shards: list[Indices], at_least: int) -> None:
    """Move samples, in place, from the largest shards to the shards with fewer than *at_least*.
    Among equal shards, take the first.
    """
    sizes = [len(shard) for shard in shards]
    while min(sizes) < at_least:
        taker, donor = sizes.index(min(sizes)), sizes.index(max(sizes))
        moved = min(at_least - sizes[taker], sizes[donor] - at_least)
        shards[taker] = np.concatenate([shards[taker], shards[donor][-moved:]])
        shards[donor] = shards[donor][:-moved]
        sizes[taker] += moved
        sizes[donor] -= moved
