"""Borrowing of the global random generators, from which modules draw initial weights and dropout.

The generators are restored afterwards.
"""

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

# Nodes of one process may compute in threads, but torch has one generator for all threads.
_lock = threading.RLock()


@contextmanager
def borrowed(seed: int, *names: str, device: torch.device = HOST, others: bool = False) -> Iterator[torch.Generator]:
    """Seed torch's global CPU generator with *seed*, yield it, then restore its state. Only one
    thread at a time can borrow it.

    If there are *names*, the generator is seeded for the stream of these names under *seed*. The
    generator of *device* is also seeded and restored. If *others*, so are those of Python and
    numpy, which takes longer.
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
    """Return the states of the generators that modules on *device* draw from.

    A draw changes its generator's state.
    """
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
    """Return a context that makes *device* the current device of its kind, for torch's functions
    that take no device.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
