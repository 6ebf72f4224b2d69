"""Lend torch's global generator, which modules use to initialise and to drop out, and restore it afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# Nodes of one process may compute in threads, but torch has one generator for all of them.
_lock = threading.RLock()


def seed_number(sequence: np.random.SeedSequence) -> int:
    """Return a seed that torch accepts."""
    return int(sequence.generate_state(1, np.uint64)[0]) & (2**63 - 1)


@contextmanager
def borrowed(seed: int) -> Iterator[torch.Generator]:
    """Yield torch's global CPU generator seeded with *seed*, then restore it; one borrower at a time."""
    generator = torch.default_generator
    with _lock:
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield generator
        finally:
            generator.set_state(before)
