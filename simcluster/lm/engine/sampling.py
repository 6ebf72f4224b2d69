"""The choice of a token: the likeliest one, or a random one.

The random number depends only on the seed and the token's index in its sequence.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import Tensor

from simcluster.lm.request import Sampling, SamplingRules
from simcluster.lm.text.grammar import Allowed

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]

NONE: Final[Tokens] = np.zeros(0, np.int32)


def sampled(
    logits: Tensor, sampling: Sampling, place: int, before: Tokens = NONE, allowed: Allowed | None = None
) -> int:
    """Return the token at index *place* of a sequence, chosen from its *logits* (vocabulary,).

    First the rules of *sampling* change the logits, according to the tokens *before* that index.
    *allowed* is the mask of tokens that a grammar permits, if there is one.

    At temperature 0, the likeliest token is chosen. Otherwise the logits are divided by the
    temperature. Then tokens are excluded by *min_p*, the *top_k* likeliest ones are kept, and of
    these the fewest tokens that together have the probability *top_p*. Of equally likely tokens,
    those with the lowest ids are kept. Raise ValueError if the largest logit is infinite or NaN.
    """
    values = logits.float().numpy().astype(np.float64)
    rules = sampling.rules
    if rules:
        _apply(rules, values, place, before)
    if allowed is not None:
        values[~allowed] = -np.inf
    best = values.max()
    if not np.isfinite(best):
        raise ValueError(f"logits: found {best} as their largest, expected a number")
    if sampling.temperature == 0:
        return int(values.argmax())  # the first one if several are equal
    weights = np.exp((values - best) / sampling.temperature)
    if rules:
        weights[weights < rules.min_p] = 0.0  # the likeliest token has the weight 1
    count = min(sampling.top_k or len(weights), len(weights))
    if sampling.top_p < 1:
        count = _nucleus(weights, count, sampling.top_p)
    if count < len(weights):
        weights = _largest(weights, count)
    sums = weights.cumsum()
    return int(np.searchsorted(sums, uniform(sampling.seed, place) * sums[-1], side="right"))


def uniform(seed: int, place: int) -> float:
    """Return a number in [0, 1) with 53 random bits.

    It depends only on *seed* and *place*, and is the same on any machine.
    """
    digest = hashlib.sha256(f"{seed},{place}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def _apply(rules: SamplingRules, values: Floats, place: int, before: Tokens) -> None:
    """Change the logits *values* by *rules*, in vLLM's order: bias, ends, penalties."""
    for token, number in rules.bias:
        values[token] += number
    if place < rules.until:
        values[list(rules.ends)] = -np.inf
    if rules.repetition_penalty != 1:
        known = np.unique(before)
        found = values[known]
        values[known] = np.where(found > 0, found / rules.repetition_penalty, found * rules.repetition_penalty)
    if rules.presence_penalty or rules.frequency_penalty:
        known, counts = np.unique(before[rules.begin :], return_counts=True)
        values[known] -= rules.presence_penalty + rules.frequency_penalty * counts


def _largest(weights: Floats, count: int) -> Floats:
    """Return *weights* with all but the *count* largest set to 0."""
    least = np.partition(weights, -count)[-count]
    equal = np.flatnonzero(weights == least)
    kept = np.where(weights > least, weights, 0.0)
    kept[equal[: count - np.count_nonzero(kept)]] = least
    return kept


def _nucleus(weights: Floats, count: int, share: float) -> int:
    """Return how many of the *count* largest weights are needed for *share* of their sum.

    This is nucleus sampling (Holtzman et al. 2020, section 3.1).
    """
    largest = np.partition(weights, -count)[-count:] if count < len(weights) else weights
    total = largest.sum()
    # Weights below this bound add up to less than 1 - share of the sum. So the others, which are
    # often few, suffice.
    sums = np.sort(largest[largest >= (1 - share) * total / count])[::-1].cumsum()
    return max(1, min(len(sums), int(np.searchsorted(sums, share * total, side="left")) + 1))
