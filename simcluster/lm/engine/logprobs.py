"""The log-probabilities of a chosen token, and of the likeliest tokens at the same index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]

LEAST: Final = -9999.0
"""Lower log-probabilities are replaced with this, as in OpenAI's API: JSON has no infinity."""

VOID: Final = -1
"""The id in an entry that has no token."""


def logprobs_of(logits: Tensor, token: int, count: int) -> tuple[list[int], list[float]]:
    """Return the ids and log-probabilities of *token* and of the *count* likeliest tokens.

    The probabilities are the softmax of *logits* (vocabulary,), regardless of the sampling. Tokens
    that are equally likely are in the order of their ids.
    """
    values = logits.float().numpy().astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    ids = [token, *_likeliest(values, min(count, len(values)))]
    return ids, [max(float(values[one]), LEAST) for one in ids]


def rows_of(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the results of `logprobs_of` for all *tokens*, as (ids, log-probabilities).

    Each token has a row in *logits* and in both results, and its number of likeliest tokens in
    *counts*. If that number is negative, all ids of its row are VOID; otherwise only the unused
    ones are.
    """
    width = 1 + max(counts)
    ids = torch.full((len(tokens), width), VOID, dtype=torch.int32)
    values = torch.zeros((len(tokens), width), dtype=torch.float32)
    for place, (token, count) in enumerate(zip(tokens, counts, strict=True)):
        if count >= 0:
            found, numbers = logprobs_of(logits[place], token, count)
            ids[place, : len(found)] = torch.tensor(found, dtype=torch.int32)
            values[place, : len(found)] = torch.tensor(numbers, dtype=torch.float32)
    return ids, values


def _likeliest(values: Floats, count: int) -> list[int]:
    if count == 0:
        return []
    least = np.partition(values, -count)[-count]
    found = np.flatnonzero(values >= least)
    ranked: list[int] = found[np.argsort(-values[found], kind="stable")][:count].tolist()
    return ranked
