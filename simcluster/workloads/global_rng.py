"""Lend torch's global generator, which modules use to initialise and to drop out, and restore it afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcluster.compute import HOST
from simcluster.rng import seed_sequence

# Nodes of one process may compute in threads, but torch has one generator for all of them.
_lock = threading.RLock()


@contextmanager
def borrowed(seed: int, *names: str, device: torch.device = HOST) -> Iterator[torch.Generator]:
    """Yield torch's global CPU generator seeded with *seed*, then restore it; one borrower at a time.

    With *names*, it is seeded for the stream of these names under *seed*. The generator of *device*, from which modules
    draw there, is seeded and restored with it.
    """
    if names:
        seed = int(seed_sequence(seed, *names).generate_state(1, np.uint64)[0]) & (2**63 - 1)
    generator = torch.default_generator
    with _lock:
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            with _also(device, seed) if device != HOST else nullcontext():
                yield generator
        finally:
            generator.set_state(before)


def drawn_from(device: torch.device = HOST) -> Tensor:
    """Return the state of the generators that modules on *device* draw from: it changes with every draw."""
    own = torch.default_generator.get_state()
    if device == HOST:
        return own
    with _current(device):
        return torch.cat([own, torch.get_device_module(device).get_rng_state()])


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
