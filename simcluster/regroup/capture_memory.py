"""Keep the state after the last steps of one rank in memory: its replica, its generators and its
algorithm's state.

A rank without a capture receives one from another rank, with values as JSON and tensors as bytes in
pieces.

A new capture reuses the buffers of one that is no longer needed, so a step costs copies but no
allocation.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simcluster.checkpoints.tree import decode, encode
from simcluster.collectives.flat import as_bytes, from_bytes
from simcluster.compute import moved
from simcluster.payload import DTYPE_NAMES, DTYPES, pack
from simcluster.regroup.messages import CaptureName
from simcluster.rng import NodeRandom
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.saved import ShardedTensor

PIECE_BYTES = 1024**2
"""Size of the pieces in which a capture is sent.

It is below every limit on the size of a message, and other messages can be sent between two pieces.
"""

TAG = "regroup/state"

CAPTURES = 2
"""Minimum number of captures held. If ranks may be n steps apart, n more are held."""


@dataclass
class Capture:
    """A copy of a rank's state after a step and *batches* of its batches, in a group of *size*
    ranks.

    *state* is None if the run does not compute values.
    """

    name: CaptureName
    batches: int
    size: int
    state: dict[str, Any] | None


class CaptureMemory:
    """The captures of one rank. *on_step* is awaited at the end of each step."""

    def __init__(self) -> None:
        self.captures: list[Capture] = []
        self.step = 0
        self.on_step: Callable[[int], Awaitable[None]] | None = None
        self._group = (0, -1)
        self._replica: Replica
        self._rng: NodeRandom
        self._size = 1
        self._captured = -1  # the number of batches in this group's last capture

    @property
    def held(self) -> list[CaptureName]:
        return [capture.name for capture in self.captures]

    def find(self, name: CaptureName) -> Capture | None:
        return next((capture for capture in self.captures if capture.name == name), None)

    def begin(self, replica: Replica, rng: NodeRandom, size: int) -> None:
        """From now on, capture *replica* and *rng*, in a group of *size* ranks."""
        self._replica = replica
        self._rng = rng
        self._size = size
        self.step, self._captured = replica.at, replica.done
        replica.memory = self
        if not self.captures:
            self._capture(replica.at, replica.done, replica.kept, keep=CAPTURES)

    def adopt(self, capture: Capture, group: tuple[int, int]) -> None:
        """Continue from *capture* in *group*, which is (number, leader), and discard all other
        captures.
        """
        self.captures, self._group = [capture], group

    def remember(self, step: int, batches: int, apart: int, kept: Mapping[str, Any]) -> None:
        """Capture the state after *step*, unless this group already has a capture after *batches*.

        *batches* counts this rank's batches, and ranks may be *apart* steps apart: see
        `Progress.checkpoint`.
        """
        if batches > self._captured:
            self._captured = batches
            self._capture(step, batches, kept, keep=CAPTURES + apart)

    async def reached(self, step: int) -> None:
        """Note that *step* has ended, and await `on_step`."""
        self.step = step
        if self.on_step is not None:
            await self.on_step(step)

    def _capture(self, step: int, batches: int, kept: Mapping[str, Any], keep: int) -> None:
        old = self.captures.pop(0) if len(self.captures) >= keep else None
        state = None
        if self._replica.computes:
            found = {**self._replica.checkpoint_state(), "generators": self._rng.checkpoint_state(), "kept": kept}
            state = copied(found, old.state if old is not None else None)
        self.captures.append(Capture(CaptureName(*self._group, step), batches, self._size, state))


def put_back(capture: Capture, replica: Replica, rng: NodeRandom, batches: int) -> None:
    """Restore the new *replica* and *rng* to the state in *capture*, after *batches* batches of
    each rank.
    """
    if capture.state is not None:
        state = copied(capture.state)
        if state["generators"] is not None:
            rng.load_checkpoint_state(state["generators"])
        replica.load_checkpoint_state({part: state[part] for part in ("model", "optimizer", "layers")})
        replica.kept.update(moved(state["kept"], replica.device))
        replica.ledger.begin(batches)
    replica.done = replica.at = batches


def copied(value: Any, into: Any = None) -> Any:
    """Return a deep copy of *value*.

    The tensors of *into*, an older copy, are overwritten and reused if their shape and dtype fit.
    An object with a method `checkpoint_state` is copied as what that method returns. A tuple
    becomes a list, as in a checkpoint.
    """
    if isinstance(value, ShardedTensor):
        value = value.tensor
    if isinstance(value, Tensor):
        value = value.detach()
        if isinstance(into, Tensor) and into.shape == value.shape and into.dtype == value.dtype:
            return into.copy_(value)
        return value.clone()
    if isinstance(value, Mapping):
        old = into if isinstance(into, dict) else {}
        return {key: copied(part, old.get(key)) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        places = into if isinstance(into, list) and len(into) == len(value) else [None] * len(value)
        return [copied(part, place) for part, place in zip(value, places, strict=True)]
    if hasattr(value, "checkpoint_state"):
        return copied(value.checkpoint_state(), into)
    return value


async def hand_over(node: Transport, to: int, capture: Capture) -> None:
    """Send *capture* to rank *to*, except the generators, since each rank has different ones."""
    tensors: dict[str, Tensor] = {}
    state = None if capture.state is None else {**capture.state, "generators": None}
    tree = encode(state, "state", tensors)
    shapes = [[name, DTYPE_NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()]
    content = as_bytes([tensor.contiguous() for tensor in tensors.values()])
    head = {"name": list(capture.name), "batches": capture.batches, "size": capture.size, "tree": tree}
    await node.send(to, TAG, pack(head=json.dumps({**head, "shapes": shapes, "bytes": len(content)})))
    for start in range(0, len(content), PIECE_BYTES):
        await node.send(to, TAG, content[start : start + PIECE_BYTES])


async def take_over(node: Transport, source: int) -> Capture:
    """Receive and return the capture that *source* sends by `hand_over`."""
    head: dict[str, Any] = json.loads((await node.recv(source, TAG))["head"])
    pieces = [torch.empty(0, dtype=torch.uint8)]
    while sum(map(len, pieces)) < head["bytes"]:
        pieces.append((await node.recv(source, TAG)).tensor)
    like = [torch.empty(shape, dtype=DTYPES[dtype], device="meta") for _, dtype, shape in head["shapes"]]
    names = [name for name, _, _ in head["shapes"]]
    tensors = dict(zip(names, from_bytes(torch.cat(pieces), like), strict=True))
    return Capture(CaptureName(*head["name"]), head["batches"], head["size"], decode(head["tree"], tensors))
