"""The stand-in accelerator, for all tests here."""

from __future__ import annotations

import pytest
import torch

from tests.support.stand_in import install


@pytest.fixture
def overlapping(stand_in: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The stand-in, from which copies are made while the host continues."""
    monkeypatch.setattr("simcluster.compute.host_copies.overlaps", lambda device: True)
    monkeypatch.setattr(
        "simcluster.compute.host_copies.pinned_like", lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype)
    )
    return stand_in


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The stand-in, as the only accelerator of this machine."""
    device = install()
    monkeypatch.setattr("simcluster.compute.place.accelerators", lambda: [device])
    return device
