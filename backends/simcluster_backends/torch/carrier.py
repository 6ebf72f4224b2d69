"""Tensors that travel from one accelerator to another without the host: NCCL for CUDA.

NCCL allows operations of several communicators at the same time only if all ranks submit them in one order, since an
operation that waits for its peer may hold up others of its device. The messages of an algorithm have no such order. So
a device takes part in one transfer at a time, and a transfer begins once both of its devices are free: a `Turn` per
process, that of the lower rank first.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store

from simcluster.errors import LaunchFailed
from simcluster_backends.torch.frame import parts_of
from simcluster_backends.torch.group import FOREVER, GIVES_TAG, TAKES_TAG, TorchGroup, WorldPlace, first_line


class DeviceStream(Protocol):
    """Both ends of a stream between two devices; the calls of both must match. They block until the transfer is over,
    and raise RuntimeError, or return with any content, after `abort`.
    """

    def send(self, tensor: Tensor) -> None: ...

    def recv(self, tensor: Tensor) -> None: ...

    def abort(self) -> None:
        """End a transfer in flight, from any thread; there are no more."""


class Nccl:
    """A communicator of two processes, complete once it is made. A transfer waits for what the device was given on the
    default stream, where messages are packed and algorithms compute; what is given later does not wait for it.
    """

    def __init__(self, store: Store, place: int, device: torch.device) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = FOREVER
        self._device, self._other = device, 1 - place
        with torch.cuda.device(device), _handling_no_errors():
            self._nccl: Any = dist.ProcessGroupNCCL(store, place, 2, options)
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            first = torch.zeros(1, dtype=torch.uint8, device=device)
            (self.recv if place else self.send)(first)  # makes the communicator, with its memory

    def send(self, tensor: Tensor) -> None:
        self._do(self._nccl.send, tensor)

    def recv(self, tensor: Tensor) -> None:
        self._do(self._nccl.recv, tensor)

    def abort(self) -> None:
        self._nccl.abort()

    def _do(self, transfer: Callable[[list[Tensor], int, int], Any], tensor: Tensor) -> None:
        """Begin once the device has done what it was given before, and return once the transfer is over."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                transfer([tensor], self._other, 0).wait()
            self._stream.synchronize()


@contextmanager
def _handling_no_errors() -> Iterator[None]:
    """Make torch leave the process alone if a peer is lost: a group reads these variables when it is made."""
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "0"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _cuda_card(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid) if dist.is_nccl_available() else ""


KINDS: dict[str, tuple[Callable[[torch.device], str], Callable[[Store, int, torch.device], DeviceStream]]] = {
    "cuda": (_cuda_card, Nccl)
}
"""For a type of device: its card, empty if its tensors travel through the host, and this process's end of a pair."""


def card_of(device: torch.device) -> str:
    """Return which card in the world *device* is; "" if its tensors travel through the host."""
    return KINDS[device.type][0](device) if device.type in KINDS else ""


def can_carry(cards: Sequence[str]) -> bool:
    """Return whether ranks on *cards* can send from one to another: each has a different one."""
    return len(cards) > 1 and all(cards) and len(set(cards)) == len(cards)


class Turn:
    """A process's device, which takes part in one transfer at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: object = None

    def take(self, holder: object, is_over: Callable[[], bool]) -> None:
        """Wait until *holder* has the device. Raise RuntimeError once it *is_over*."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None or is_over())
            if is_over():
                raise RuntimeError("the link is closed")
            self._holder = holder

    def give_back(self, holder: object) -> None:
        """Give the device to the next, if *holder* has it; wake all that wait."""
        with self._changed:
            self._holder = None if self._holder is holder else self._holder
            self._changed.notify_all()


class DeviceTransfers:
    """The transfers between this rank's *device* and that of *peer*.

    A body follows its lead and header, which gloo delivers only once the peer's thread has asked for them. So the peer
    is about to receive the body, whatever its algorithm waits for.
    """

    def __init__(
        self, group: TorchGroup, rank: int, peer: int, device: torch.device, pair: DeviceStream, turn: Turn
    ) -> None:
        self._group, self._peer, self._device, self._pair, self._turn = group, peer, device, pair, turn
        self._is_lower = rank < peer
        self._giving, self._taking = object(), object()
        self._closed = False

    def give(self, body: Tensor) -> None:
        """Send *body*. Raise RuntimeError if the peer is gone or this is closed."""
        self._move(self._giving, GIVES_TAG if self._is_lower else TAKES_TAG, self._pair.send, body)

    def take(self, size_bytes: int) -> Tensor:
        """Receive a body of *size_bytes*. Raise RuntimeError if the peer is gone or this is closed."""
        body = torch.empty(size_bytes, dtype=torch.uint8, device=self._device)
        self._move(self._taking, TAKES_TAG if self._is_lower else GIVES_TAG, self._pair.recv, body)
        return body

    def close(self) -> None:
        """End the transfers in flight, and let others have the device: a thread may never return from gloo."""
        self._closed = True
        self._pair.abort()
        for holder in (self._giving, self._taking):
            self._turn.give_back(holder)

    def _is_closed(self) -> bool:
        return self._closed

    def _move(self, holder: object, tag: int, transfer: Callable[[Tensor], None], body: Tensor) -> None:
        """Do *transfer* of *body*, once the device of the lower rank is free, and then that of the higher."""
        if body.numel() == 0:
            return
        if not self._is_lower:
            self._group.recv(self._peer, torch.zeros(1), tag)
        self._turn.take(holder, self._is_closed)
        try:
            if self._is_lower:
                self._group.send(self._peer, torch.ones(1), tag)
            for part in parts_of(body):
                if not self._closed:
                    transfer(part)
        finally:
            self._turn.give_back(holder)
        if self._closed:  # an aborted transfer returns as if it had ended
            raise RuntimeError("the link was closed during a transfer")


def carriers(
    group: TorchGroup, store: Store, place: WorldPlace, device: torch.device, cards: Sequence[str]
) -> Mapping[int, DeviceTransfers]:
    """Return a carrier for each peer; none unless tensors of all *cards*, by rank, can travel. Blocks.

    Each rank makes its pairs in the order of all pairs, so no two ranks wait for each other.
    """
    if not can_carry(cards):
        return {}
    found, turn, rank = {}, Turn(), place.rank
    for low, high in itertools.combinations(range(place.size), 2):
        if rank in (low, high):
            try:
                pair = KINDS[device.type][1](PrefixStore(f"pair {low} {high}", store), int(rank == high), device)
            except RuntimeError as error:
                reason = f"{first_line(error)}; with --option nccl=false messages travel through the host"
                raise LaunchFailed(f"rank {rank} cannot send from device to device", [reason]) from None
            found[low + high - rank] = DeviceTransfers(group, rank, low + high - rank, device, pair, turn)
    return found
