"""Run an algorithm in one group after another: when a rank is lost, leaves or joins, the algorithm
stops and starts again in the next group.

Until that happens, the algorithm uses the node itself, and no extra messages are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from simcluster.collectives.subgroup import NamedSubgroup
from simcluster.errors import ENDED, PeerLost, leaves_of
from simcluster.regroup.agreement import Council
from simcluster.regroup.capture_memory import Capture, CaptureMemory, hand_over, take_over
from simcluster.regroup.messages import Decision
from simcluster.rng import NodeRandom
from simcluster.transport import Transport


class Trainee(Protocol):
    """The training that a supervisor runs, group after group."""

    def begin(self, node: Transport, number: int, memory: CaptureMemory, capture: Capture | None) -> None:
        """Make a replica for the rank of *node* in group *number*.

        It starts from *capture*, or from the beginning if *capture* is None.
        """

    def train(self) -> Coroutine[Any, Any, object]:
        """Run the algorithm with the replica that `begin` made."""

    def regrouped(self, decision: Decision, step: int, batches: int) -> None:
        """Note that the group of *decision* starts after *step*, with *batches* batches of each
        rank so far.
        """


class Supervisor:
    """A supervisor that runs *trainee* on *node*, group after group.

    *names* has the names of all nodes by rank, and *incarnation* is the number of this node's life.
    """

    def __init__(self, node: Transport, names: Sequence[str], trainee: Trainee, incarnation: int = 0) -> None:
        self._node, self._trainee = node, trainee
        self._comes_late = incarnation > 0 and node.size > 1
        present = [] if self._comes_late else [node.rank, *node.peers]
        self._council = Council(node, names, present, incarnation)
        self._memory = CaptureMemory()
        self._memory.on_step = self._on_step

    async def run(self) -> None:
        """Run the algorithm to its end.

        Raise any error of the algorithm, or PeerLost if this node is excluded.
        """
        council = self._council
        council.ear.watch()
        try:
            if self._comes_late:
                await council.ask_in()
            else:
                whole = len(council.members) == self._node.size
                node = self._node if whole else NamedSubgroup(self._node, council.members, "0")
                self._trainee.begin(node, 0, self._memory, None)
                if not await self._train():
                    return
            while await self._regroup():
                pass
        finally:
            council.close()

    def why_lost(self, rank: int) -> str:
        """Return the reason for which this node has lost *rank*; "" if only other nodes noticed the
        loss.
        """
        return self._council.facts.reasons.get(rank, "")

    async def _regroup(self) -> bool:
        """Agree on the next group, and run the algorithm in it until it ends or a member changes.

        Return whether another group must follow.
        """
        council = self._council
        decision = await council.agree(self._memory.held)
        if decision is None:
            return False
        await council.cross()
        if council.unrest:
            return True
        rng = NodeRandom(self._node.rng.seed, self._node.rng.node)
        group = NamedSubgroup(self._node, decision.members, f"{decision.number}.{decision.leader}", rng)
        taken = await self._undisturbed(lambda: self._take(decision))
        if taken is None:
            return True
        self._memory.adopt(taken, (decision.number, decision.leader))
        self._trainee.begin(group, decision.number, self._memory, taken)
        self._trainee.regrouped(decision, self._memory.step, taken.batches)
        return await self._train()

    async def _take(self, decision: Decision) -> Capture:
        """Return the capture that the group continues from: this rank's own, or one received from
        the source.

        The source first sends the capture to the ranks that need it.
        """
        me = self._node.rank
        if me in decision.receivers:
            return await take_over(self._node, decision.source)
        capture = self._memory.find(decision.capture)
        assert capture is not None, f"{decision.capture} was said to be held"
        if me == decision.source:
            for receiver in decision.receivers:
                await hand_over(self._node, receiver, capture)
        return capture

    async def _train(self) -> bool:
        """Run the algorithm in the present group. Return whether another group must follow."""
        if await self._undisturbed(self._to_the_end) is None:
            return True
        council, me = self._council, self._node.rank
        council.is_done = True
        if me != min(council.members):
            return False
        # The lowest rank represents the run, so it waits until all others have finished or need it
        # in another group.
        others = [rank for rank in council.members if rank != me]
        council.ear.drain(others, council.number + 1)
        await council.until(lambda: council.unrest or not set(others) & set(self._node.peers))
        council.ear.stop_draining()
        return council.unrest

    async def _to_the_end(self) -> bool:
        await self._trainee.train()
        return True

    async def _undisturbed(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of *work*. If another group must be formed first, cancel *work* and
        return None.

        Raise the error of *work*, unless it only says that peers are lost that had not ended: then
        return None, since another group must be formed.
        """
        council = self._council
        task = asyncio.create_task(_caught(work))
        task.add_done_callback(council.notify)
        try:
            await council.until(lambda: task.done() or council.unrest or self._step_of_leave_is_over)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            return None
        result, error = task.result()
        if error is None:
            return result
        leaves = leaves_of(error)
        losses = [leaf for leaf in leaves if isinstance(leaf, PeerLost)]
        if len(losses) < len(leaves) or any(lost.reason == ENDED for lost in losses):
            raise error
        for lost in losses:
            council.lose(lost)
        council.unrest = True
        council.notify()
        return None

    async def _on_step(self, step: int) -> None:
        """Note that *step* has ended. If a member leaves after it, wait until this group ends."""
        self._council.ear.watch()
        if self._step_of_leave_is_over:
            self._council.notify()
            await asyncio.get_running_loop().create_future()

    @property
    def _step_of_leave_is_over(self) -> bool:
        leaves_at = self._council.leaves_at
        return leaves_at is not None and self._memory.step >= leaves_at


async def _caught(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, BaseException | None]:
    """Await *work* and return (its result, its exception).

    A SystemExit is also returned: if it left a task, it would end the event loop.
    """
    try:
        return await work(), None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return None, error
