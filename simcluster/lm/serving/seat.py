"""A node's part in serving, group after group: when a node is lost or returns, all others place the model again.

The groups are those of simcluster.regroup: their members agree on the remaining nodes. They carry no state over: the
desk hands out what is left of every request. A program may keep its engine from one group to the next.
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
from simcluster.lm.serving.replan import placed_again
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.regroup.memory import Capture, CaptureMemory
from simcluster.regroup.messages import CaptureName, Decision
from simcluster.regroup.supervisor import Supervisor
from simcluster.topology import loads
from simcluster.transport import Transport

WATCH: Final = "watch"
"""The tag of messages that are never sent: waiting for one notices the end of a peer."""

OUTLIVE_S: Final = 5.0

_ALL_ALIKE: Final = Capture(CaptureName(0, -1, 0), 0, 1, None)
"""What every group continues from: nothing."""

Play = Callable[[Transport, Setup, PlacementState], Awaitable[object]]
"""Serves with the nodes of a group until the source ends: placed as the setup says by their ranks in the group, and as
the third argument does by those in the cluster.
"""


class _NoPlace(Exception):
    """The model does not fit on the remaining nodes."""


class ServingMember:
    """The part of *node* in *setup*, which must have a recovery. *incarnation* is the life of this node."""

    def __init__(self, node: Transport, setup: Setup, play: Play, incarnation: int) -> None:
        assert setup.recovery is not None, "without it nothing follows a loss"
        self._node, self._setup, self._play, self._now = node, setup, play, setup
        self._names = loads(json.loads(setup.recovery.topology)).workers
        self._supervisor = Supervisor(node, self._names, self, incarnation)
        self._group: Transport = node
        self._members = list(range(node.size))
        self._lost: dict[int, str] = {}  # the first loss first
        self._first = -1  # the last rank that had the desk

    async def run(self) -> None:
        """Serve until the source ends. Raise PeerLost if the model does not fit on the remaining nodes."""
        try:
            await self._supervisor.run()
        except _NoPlace:
            away = [rank for rank in range(self._node.size) if rank not in self._members]
            gone = next((rank for rank in self._lost if rank in away), min(away, default=self._node.rank))
            if self._node.rank != self._first:
                await self._outlive(self._first)
            raise PeerLost(gone, self._names[gone], self._lost.get(gone, "")) from None

    async def _outlive(self, first: int) -> None:
        """Wait until the node with the desk has ended: it says which node is lost, and would name this one."""
        if first in self._node.peers:
            with suppress(PeerLost, TimeoutError):
                async with asyncio.timeout(OUTLIVE_S):
                    await self._node.recv(first, WATCH)

    # called by the supervisor: see simcluster.regroup.supervisor.Trainee

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
