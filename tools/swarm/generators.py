"""The global generators of torch, numpy and random, which a run leaves as they were, and which decide nothing in it."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch


def stir(words: str) -> None:
    """Seed all of them from *words*."""
    seed = zlib.crc32(words.encode())
    random.seed(seed)
    np.random.seed(seed)  # the global one
    torch.default_generator.manual_seed(seed)


def generator_states() -> tuple[Any, ...]:
    """Return the state of each, to compare."""
    name, keys, *rest = np.random.get_state()  # the global one
    return random.getstate(), name, bytes(keys), rest, torch.default_generator.get_state().numpy().tobytes()
