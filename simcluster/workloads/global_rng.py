"""Lend torch's global generator, which modules use to initialise and to drop out, and restore it afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from simcluster.rng import seed_sequence

# Nodes of one process may compute in threads, but torch has one generator for all of them.
_lock = threading.RLock()


@contextmanager
def borrowed(seed: int, *names: str) -> Iterator[torch.Generator]:
    """Yield torch's global CPU generator seeded with *seed*, then restore it; one borrower at a time.

    With *names*, it is seeded for the stream of these names under *seed*.
    """
    if names:
        seed = int(seed_sequence(seed, *names).generate_state(1, np.uint64)[0]) & (2**63 - 1)
    generator = torch.default_generator
    with _lock:
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield generator
        finally:
            generator.set_state(before)
