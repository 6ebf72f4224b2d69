"""Borrows torch's global generator and gives it back untouched; modules initialise and drop out with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# Nodes of one process may compute in threads, and torch has one generator for all of them.
_lock = threading.RLock()


def seed_number(sequence: np.random.SeedSequence) -> int:
    """A seed that torch accepts, from a numpy seed sequence."""
    return int(sequence.generate_state(1, np.uint64)[0]) & (2**63 - 1)


@contextmanager
def borrowed(seed: int) -> Iterator[torch.Generator]:
    """torch's global CPU generator, seeded with *seed*, then as it was before; one borrower at a time."""
    generator = torch.default_generator
    with _lock:
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield generator
        finally:
            generator.set_state(before)
