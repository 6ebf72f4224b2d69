"""The node program of a script that runs with gloo.

Gloo makes the calls in the rank's process, so this program only keeps the record.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore  # typed only there

from simcluster.collectives import broadcast
from simcluster.scripts.call_notes import CallLabel
from simcluster.scripts.messages import CallsTraced, FromRank, RankStart
from simcluster.scripts.node_program import RankProgram
from simcluster.scripts.rank.gloo_group import LOOPBACK
from simcluster.scripts.rank_process import RankProcess
from simcluster.transport import OWN_TAGS, Transport

_END = f"{OWN_TAGS}script ended"


class GlooProgram(RankProgram):
    """A program that follows the messages of a rank's process.

    The process counts as computing, except while it reports that it waits for a call.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._began_s = time.perf_counter() - self._notes.now_s
        self._waits_at: str | None = None

    async def _next(self) -> FromRank:
        if self._waits_at is None:
            return await super()._next()
        waits_at = self._waits_at  # noqa: F841, for the report of a deadlock
        return await asyncio.to_thread(self._process.next)

    async def _obey(self, message: FromRank) -> None:
        if not isinstance(message, CallsTraced):
            await super()._obey(message)
            return
        self._waits_at = message.line if message.waits else None
        for span in message.spans:
            label = CallLabel(span.operation, self._groups[span.group].ranks, span.size_bytes)
            self._notes.note(span.kind, label, span.start_s - self._began_s, span.end_s - self._began_s)


async def run_with_gloo(node: Transport, start: RankStart) -> None:
    """Run a rank of a script with gloo. If another rank fails, end this rank, as torchrun does."""
    meeting, store = await _meet(node)
    process = RankProcess(replace(start, meeting=meeting))
    try:
        async with asyncio.TaskGroup() as group:
            for peer in node.peers:
                group.create_task(node.recv(peer, _END))  # raises PeerLost if the peer fails
            await GlooProgram(node, process).run()
            for peer in node.peers:
                await node.send(peer, _END, [])
    finally:
        # End the process only now, since other ranks may need its connections and its store until
        # they have ended.
        process.end()
        del store


async def _meet(node: Transport) -> tuple[tuple[str, int], Any]:
    """Return the (host, port) at which the processes of all ranks meet, and the store that listens
    there.

    Only rank 0 has the store. The host is MASTER_ADDR if a launcher has set it, otherwise this
    machine.
    """
    host = os.environ.get("MASTER_ADDR", LOOPBACK)
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False) if node.rank == 0 else None
    port = torch.tensor([store.port if store is not None else 0])
    (found,) = await broadcast(node, [port], "script/meeting", 0)
    return (host, int(found)), store
