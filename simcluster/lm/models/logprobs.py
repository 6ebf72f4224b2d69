"""The log-probabilities of tokens: of a chosen one, and of the likeliest ones in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]

LEAST: Final = -9999.0
"""In the place of any smaller number, as in OpenAI's API: JSON has no infinity."""

VOID: Final = -1
"""The id of an entry without a token."""


def logprobs_of(logits: Tensor, token: int, count: int) -> tuple[list[int], list[float]]:
    """Return the ids of *token* and of the *count* likeliest tokens, and the logarithms of their probabilities.

    Those are the softmax of *logits* (vocabulary,), whatever the sampling. Equally likely tokens rank by their ids.
    """
    values = logits.float().numpy().astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    ids = [token, *_likeliest(values, min(count, len(values)))]
    return ids, [max(float(values[one]), LEAST) for one in ids]


def rows_of(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the ids and the log-probabilities of `logprobs_of`, a row for each of *tokens* and its row of *logits*.

    Entries beyond a token's number of *counts* are void, and all of one whose number is negative.
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
