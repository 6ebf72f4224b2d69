"""Lend the global generators, which modules use to initialise and to drop out, and restore them afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from simcluster.compute import HOST
from simcluster.process.generators import copied, seeded
from simcluster.rng import seed_sequence

# Nodes of one process may compute in threads, but torch has one generator for all of them.
_lock = threading.RLock()


@contextmanager
def borrowed(seed: int, *names: str, device: torch.device = HOST, others: bool = False) -> Iterator[torch.Generator]:
    """Yield torch's global CPU generator seeded with *seed*, then restore it; one borrower at a time.

    With *names*, it is seeded for the stream of these names under *seed*. The generator of *device*, from which modules
    draw there, is seeded and restored with it; so are Python's and numpy's for *others*, which takes longer.
    """
    if names:
        seed = int(seed_sequence(seed, *names).generate_state(1, np.uint64)[0]) & (2**63 - 1)
    generator = torch.default_generator
    with _lock, seeded(np.random.SeedSequence(seed)) if others else nullcontext():
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            with _also(device, seed) if device != HOST else nullcontext():
                yield generator
        finally:
            generator.set_state(before)


def drawn_from(device: torch.device = HOST) -> tuple[object, ...]:
    """Return the states of the generators that modules on *device* draw from: they change with every draw."""
    if device == HOST:
        return copied()
    with _current(device):
        return *copied(), torch.get_device_module(device).get_rng_state().tolist()


@contextmanager
def _also(device: torch.device, seed: int) -> Iterator[None]:
    module: Any = torch.get_device_module(device)
    with _current(device):
        before = module.get_rng_state()
        module.manual_seed(seed)
        try:
            yield
        finally:
            module.set_rng_state(before)


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make *device* the one of its kind that torch's functions without a device mean."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
