"""A serving program that kills rank 1 in the middle of an answer; tests find it by name."""

from __future__ import annotations

import os
import signal

from simcluster.forwarding import Forwarding
from simcluster.lm.serving.program import answer, prepare
from simcluster.payload import Sendable
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Transport

__all__ = ["PROGRAM", "answer_until_killed", "prepare"]

PROGRAM = "tests.support.dying:answer_until_killed"

SENDS = 10


class Dying(Forwarding):
    """*node*; rank 1 kills its process after SENDS messages."""

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self._sent = 0

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        if self.rank == 1 and self._sent == SENDS:
            os.kill(os.getpid(), signal.SIGKILL)
        self._sent += 1
        await self._node.send(to, tag, content)


async def answer_until_killed(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    return await answer(Dying(node), recorder, config_json)
