"""The global generators of torch, numpy and random.

A run must neither depend on them nor change them.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch


def stir(words: str) -> None:
    """Seed all global generators with *words*."""
    seed = zlib.crc32(words.encode())
    random.seed(seed)
    np.random.seed(seed)  # numpy's global generator
    torch.default_generator.manual_seed(seed)


def generator_states() -> tuple[Any, ...]:
    """Return the states of all global generators."""
    name, keys, *rest = np.random.get_state()  # numpy's global generator
    return random.getstate(), name, bytes(keys), rest, torch.default_generator.get_state().numpy().tobytes()
