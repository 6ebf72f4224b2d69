"""The choice of a token: the likeliest, or drawn, with a random number that the seed and the token's place decide."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from torch import Tensor

from simcluster.lm.request import Sampling

Floats = npt.NDArray[np.float64]


def sampled(logits: Tensor, sampling: Sampling, place: int) -> int:
    """Return the token at *place* of a sequence, given the *logits* (vocabulary,) there.

    Temperature 0 takes the likeliest. Otherwise logits are divided by the temperature, the *top_k* likeliest are kept,
    and of those the fewest that together have *top_p*. Equally likely tokens are kept from the lowest id on. Raises
    ValueError for logits that give no probabilities.
    """
    values = logits.float().numpy().astype(np.float64)
    best = values.max()
    if not np.isfinite(best):
        raise ValueError(f"logits: found {best} as their largest, expected a number")
    if sampling.temperature == 0:
        return int(values.argmax())  # the first of equal ones
    weights = np.exp((values - best) / sampling.temperature)
    count = min(sampling.top_k or len(weights), len(weights))
    if sampling.top_p < 1:
        count = _nucleus(weights, count, sampling.top_p)
    if count < len(weights):
        weights = _largest(weights, count)
    sums = weights.cumsum()
    return int(np.searchsorted(sums, uniform(sampling.seed, place) * sums[-1], side="right"))


def uniform(seed: int, place: int) -> float:
    """Return a number in [0, 1) with 53 random bits: on any machine the same for the same *seed* and *place*."""
    digest = hashlib.sha256(f"{seed},{place}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def _largest(weights: Floats, count: int) -> Floats:
    """Return *weights* with 0 for all but the *count* largest."""
    least = np.partition(weights, -count)[-count]
    equal = np.flatnonzero(weights == least)
    kept = np.where(weights > least, weights, 0.0)
    kept[equal[: count - np.count_nonzero(kept)]] = least
    return kept


def _nucleus(weights: Floats, count: int, share: float) -> int:
    """Return how many of the *count* largest weights have *share* of their sum (Holtzman et al. 2020, section 3.1)."""
    largest = np.partition(weights, -count)[-count:] if count < len(weights) else weights
    total = largest.sum()
    # Smaller ones together have less than 1 - share, so the rest has enough; there are few of them to sort.
    sums = np.sort(largest[largest >= (1 - share) * total / count])[::-1].cumsum()
    return max(1, min(len(sums), int(np.searchsorted(sums, share * total, side="left")) + 1))
