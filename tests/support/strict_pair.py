"""The group of a stand-in accelerator: it carries tensors of the device alone, one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from simcluster_backends.torch import device_transfers
from simcluster_backends.torch.group import TorchGroup, WorldPlace
from torch import Tensor
from torch._C._distributed_c10d import Store

from tests.support.stand_in import NAME, DeviceTensor

SEEN = "STRICT_PAIR_SEEN"
"""The environment's name of a file that gets a line for each tensor sent; then this process is one rank."""

_busy = threading.Lock()


class Misused(RuntimeError):
    """The group was given a tensor of the host, or a second one before the first had arrived."""


class StrictPair:
    """A pair over gloo connections that carry nothing else."""

    def __init__(self, store: Store, place: int, device: torch.device) -> None:
        self._group, self._other = TorchGroup(store, WorldPlace(place, 2, True), 30.0), 1 - place

    def send(self, tensor: Tensor) -> None:
        with _alone():
            self._group.send(self._other, raw(tensor))
        if SEEN in os.environ:
            with Path(os.environ[SEEN]).open("a") as file:
                file.write(f"{tensor.nbytes}\n")

    def recv(self, tensor: Tensor) -> None:
        with _alone():
            self._group.recv(self._other, raw(tensor))

    def abort(self) -> None:
        self._group.cut()


def raw(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DeviceTensor):
        raise Misused(f"a tensor of {tensor.device}")
    return tensor.raw


@contextmanager
def _alone() -> Iterator[None]:
    if SEEN not in os.environ:  # the ranks of one process may be at it at once
        yield
        return
    if not _busy.acquire(blocking=False):
        raise Misused("two transfers at once")
    try:
        yield
    finally:
        _busy.release()


def card(device: torch.device) -> str:
    return f"card of process {os.getpid()}"


def register() -> None:
    """Let tensors of the stand-in travel by themselves in this process."""
    device_transfers.KINDS[NAME] = card, StrictPair
