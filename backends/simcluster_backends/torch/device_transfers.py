"""Send tensors from one accelerator to another, without the host. CUDA devices use NCCL.

An NCCL operation that waits for its peer may block other operations of its device. So NCCL allows
concurrent operations of several communicators only if all ranks submit them in the same order. The
messages of an algorithm have no such order. Therefore a device takes part in one transfer at a
time, and a transfer begins once both of its devices are free. Each process has a `Turn` for its
device. A transfer takes the turn of the lower rank first, which excludes deadlocks.
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
    """One end of a stream between two devices. The calls at both ends must match.

    A call blocks until the transfer is over. After `abort`, it raises RuntimeError, or returns with
    undefined content.
    """

    def send(self, tensor: Tensor) -> None: ...

    def recv(self, tensor: Tensor) -> None: ...

    def abort(self) -> None:
        """End the transfer in flight, if any. No other may follow. Safe in any thread."""


class Nccl:
    """An NCCL communicator of two processes, which its constructor connects.

    A transfer waits for all work that was submitted earlier to the device's default stream, on
    which messages are packed and algorithms compute. Work that is submitted later does not wait for
    the transfer.
    """

    def __init__(self, store: Store, place: int, device: torch.device) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = FOREVER
        self._device = device
        self._other = 1 - place
        with torch.cuda.device(device), _handling_no_errors():
            self._nccl: Any = dist.ProcessGroupNCCL(store, place, 2, options)
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            first = torch.zeros(1, dtype=torch.uint8, device=device)
            # The first transfer connects the communicator and allocates its memory.
            (self.recv if place else self.send)(first)

    def send(self, tensor: Tensor) -> None:
        self._do(self._nccl.send, tensor)

    def recv(self, tensor: Tensor) -> None:
        self._do(self._nccl.recv, tensor)

    def abort(self) -> None:
        self._nccl.abort()

    def _do(self, transfer: Callable[[list[Tensor], int, int], Any], tensor: Tensor) -> None:
        """Do *transfer* after all earlier work of the device; return once it is over."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                transfer([tensor], self._other, 0).wait()
            self._stream.synchronize()


@contextmanager
def _handling_no_errors() -> Iterator[None]:
    """Keep torch from killing the process when a peer is lost.

    A process group reads these environment variables when it is made.
    """
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
"""Type of device -> (a function that returns a device's card, a function that makes a
DeviceStream).

The card is "" if tensors of the device travel through the host.
"""


def card_of(device: torch.device) -> str:
    """Return a unique name of the card of *device*; "" if its tensors travel through the host."""
    return KINDS[device.type][0](device) if device.type in KINDS else ""


def can_carry(cards: Sequence[str]) -> bool:
    """Return whether ranks on *cards* can send from device to device: each needs its own card."""
    return len(cards) > 1 and all(cards) and len(set(cards)) == len(cards)


class Turn:
    """A lock on a process's device, which takes part in one transfer at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: object = None

    def take(self, holder: object, is_over: Callable[[], bool]) -> None:
        """Wait until *holder* has the device. Raise RuntimeError once *is_over* returns True."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None or is_over())
            if is_over():
                raise RuntimeError("the link is closed")
            self._holder = holder

    def give_back(self, holder: object) -> None:
        """Free the device if *holder* has it, and wake all waiting threads."""
        with self._changed:
            self._holder = None if self._holder is holder else self._holder
            self._changed.notify_all()


class DeviceTransfers:
    """The transfers between this rank's *device* and the device of *peer*.

    A body follows its lead and header, which gloo delivers only once the peer's thread receives
    them. So the peer is ready to receive the body, whatever its algorithm waits for.
    """

    def __init__(
        self, group: TorchGroup, rank: int, peer: int, device: torch.device, pair: DeviceStream, turn: Turn
    ) -> None:
        self._group = group
        self._peer = peer
        self._device = device
        self._pair = pair
        self._turn = turn
        self._is_lower = rank < peer
        self._giving = object()
        self._taking = object()
        self._closed = False

    def give(self, body: Tensor) -> None:
        """Send *body*. Raise RuntimeError if the peer is gone, or after `close`."""
        self._move(self._giving, GIVES_TAG if self._is_lower else TAKES_TAG, self._pair.send, body)

    def take(self, size_bytes: int) -> Tensor:
        """Receive *size_bytes*. Raise RuntimeError if the peer is gone, or after `close`."""
        body = torch.empty(size_bytes, dtype=torch.uint8, device=self._device)
        self._move(self._taking, TAKES_TAG if self._is_lower else GIVES_TAG, self._pair.recv, body)
        return body

    def close(self) -> None:
        """End the transfers in flight, and free the device, since their threads may be stuck."""
        self._closed = True
        self._pair.abort()
        for holder in (self._giving, self._taking):
            self._turn.give_back(holder)

    def _move(self, holder: object, tag: int, transfer: Callable[[Tensor], None], body: Tensor) -> None:
        """Do *transfer* of *body* once both devices are free, the lower rank's first."""
        if body.numel() == 0:
            return
        # The lower rank takes its device, and then notifies the higher one, which takes its own.
        if not self._is_lower:
            self._group.recv(self._peer, torch.zeros(1), tag)
        self._turn.take(holder, lambda: self._closed)
        try:
            if self._is_lower:
                self._group.send(self._peer, torch.ones(1), tag)
            for part in parts_of(body):
                if not self._closed:
                    transfer(part)
        finally:
            self._turn.give_back(holder)
        if self._closed:  # an aborted transfer may return normally
            raise RuntimeError("the link was closed during a transfer")


def carriers(
    group: TorchGroup, store: Store, place: WorldPlace, device: torch.device, cards: Sequence[str]
) -> Mapping[int, DeviceTransfers]:
    """Connect to the device of each peer, and return peer -> transfers. This blocks.

    Return {} unless the ranks on *cards* can all send from device to device. All ranks make their
    pairs in the same order, so that no two ranks wait for each other. Raise LaunchFailed if a pair
    fails to connect.
    """
    if not can_carry(cards):
        return {}
    found = {}
    turn = Turn()
    rank = place.rank
    for low, high in itertools.combinations(range(place.size), 2):
        if rank in (low, high):
            try:
                pair = KINDS[device.type][1](PrefixStore(f"pair {low} {high}", store), int(rank == high), device)
            except RuntimeError as error:
                reason = f"{first_line(error)}; with --option nccl=false messages travel through the host"
                raise LaunchFailed(f"rank {rank} cannot send from device to device", [reason]) from None
            found[low + high - rank] = DeviceTransfers(group, rank, low + high - rank, device, pair, turn)
    return found
