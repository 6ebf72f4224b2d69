"""A node that serves in one group after another, as nodes are lost and return.

After each change, the members of the new group place the model again. Members agree on the
remaining nodes with simcluster.regroup. Groups pass no state on: the desk hands out the rest of
every open request. A program may keep its engine from group to group.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from simcluster.collectives.subgroup import NamedSubgroup
from simcluster.errors import PeerLost
from simcluster.lm.serving.replacement import placed_again
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.regroup.capture_memory import Capture, CaptureMemory
from simcluster.regroup.messages import CaptureName, Decision
from simcluster.regroup.supervisor import Supervisor
from simcluster.topology import loads
from simcluster.transport import Transport

WATCH: Final = "watch"
"""The tag of a message that is never sent, so that a receive of it fails when the peer ends."""

OUTLIVE_S: Final = 5.0
"""Limit on the wait for the node with the desk to end first."""

_ALL_ALIKE: Final = Capture(CaptureName(0, -1, 0), 0, 1, None)
"""The capture from which every group continues. It is empty, because serving has no state."""

Play = Callable[[Transport, Setup, PlacementState], Awaitable[object]]
"""A function that serves with the nodes of a group until the source ends.

The placement has ranks of the group in the setup, and ranks of the cluster in the third argument.
"""


class _NoPlace(Exception):
    """The model does not fit on the remaining nodes."""


class ServingMember:
    """The member *node* of the groups that serve *setup*, which must have a recovery.

    *incarnation* counts the restarts of this node.
    """

    def __init__(self, node: Transport, setup: Setup, play: Play, incarnation: int) -> None:
        assert setup.recovery is not None, "without it nothing follows a loss"
        self._node = node
        self._setup = setup
        self._play = play
        self._now = setup
        self._names = loads(json.loads(setup.recovery.topology)).workers
        self._supervisor = Supervisor(node, self._names, self, incarnation)
        self._group: Transport = node
        self._members = list(range(node.size))
        self._lost: dict[int, str] = {}  # in order of loss
        self._first = -1  # the last rank with the desk

    async def run(self) -> None:
        """Serve until the source ends. Raise PeerLost if the model no longer fits on the nodes."""
        try:
            await self._supervisor.run()
        except _NoPlace:
            away = [rank for rank in range(self._node.size) if rank not in self._members]
            gone = next((rank for rank in self._lost if rank in away), min(away, default=self._node.rank))
            if self._node.rank != self._first:
                await self._outlive(self._first)
            raise PeerLost(gone, self._names[gone], self._lost.get(gone, "")) from None

    async def _outlive(self, first: int) -> None:
        """Wait for at most OUTLIVE_S until *first*, the node with the desk, has ended.

        *first* reports which node is lost. If this node ended sooner, *first* could report this
        node instead.
        """
        if first in self._node.peers:
            with suppress(PeerLost, TimeoutError):
                async with asyncio.timeout(OUTLIVE_S):
                    await self._node.recv(first, WATCH)

    # The supervisor calls the methods below; see simcluster.regroup.supervisor.Trainee.

    def begin(self, node: Transport, number: int, memory: CaptureMemory, capture: Capture | None) -> None:
        self._group = node
        self._members = node.members if isinstance(node, NamedSubgroup) else list(range(node.size))
        if not memory.captures:
            memory.captures.append(_ALL_ALIKE)

    def regrouped(self, decision: Decision, step: int, batches: int) -> None:
        for rank in decision.lost:
            self._lost.setdefault(rank, self._supervisor.why_lost(rank))
        for rank in decision.members:
            self._lost.pop(rank, None)

    async def train(self) -> None:
        now = placed_again(self._setup, self._members)
        if now is None:
            raise _NoPlace
        ranks = tuple(self._members[place] for place in now.layout.ranks)
        self._first = ranks[0]
        lost = {rank: self._lost.get(rank, "") for rank in range(self._node.size) if rank not in self._members}
        await self._play(self._group, now, PlacementState(replace(now.layout, ranks=ranks), now.limits, lost))
