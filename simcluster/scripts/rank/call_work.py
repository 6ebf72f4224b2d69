"""A call in flight, as torch's Work and Future.

A call completes only when the script waits or asks for it: nothing runs in the background.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from simcluster.scripts.arena import NOWHERE, as_numbers, bytes_of
from simcluster.scripts.messages import ArenaPlace, CallAwaited, ClusterAnswer
from simcluster.scripts.rank.node_link import NodeLink

POLL_S, LONGEST_POLL_S = 1e-6, 1e-3
"""First and longest delay before a script that asks whether a call has ended gets the answer."""

Results = Sequence[tuple[ArenaPlace, Tensor]]


class CallFuture(Future[Any]):
    """A future that *finish* completes, and that calls *finish* only when the script waits for the
    future.

    *is_ready* returns whether *finish* would return at once. Futures that `then` returns work in
    the same way.
    """

    def __init__(self, finish: Callable[[], object], is_ready: Callable[[], bool]) -> None:
        super().__init__()
        self._finish = finish
        self._is_ready = is_ready

    def wait(self) -> Any:
        if not super().done():
            self._finish()
        return super().wait()

    value = wait

    def done(self) -> bool:
        if not super().done() and self._is_ready():
            self._finish()
        return super().done()

    def then(self, callback: Callable[[Future[Any]], Any]) -> CallFuture:
        following = CallFuture(self.wait, self.done)

        def call(_: object) -> None:
            try:
                following.set_result(callback(self))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(call)
        return following


def joined_future(futures: Sequence[Future[Any]]) -> CallFuture:
    """Return a future that completes when all *futures* have; its result is the list of them."""

    def finish() -> None:
        for future in futures:
            future.wait()
        joined.set_result(list(futures))

    joined = CallFuture(finish, lambda: all(future.done() for future in futures))
    return joined


class CallWork(dist._Work):  # type: ignore[name-defined, misc]
    """The call *number*, which is in flight.

    When the call has ended, its *results* are copied from the arena to the script's tensors.
    *places* has all places in the arena that the call uses.
    """

    def __init__(self, link: NodeLink, number: int, places: Sequence[ArenaPlace], results: Results) -> None:
        super().__init__()
        self._link = link
        self._number = number
        self._places = places
        self._held_bytes = sum(map(bytes_of, places))
        link.memory.hold(self._held_bytes)
        self._results = results
        self._future: CallFuture | None = None
        self._source = -1
        self._poll_s = POLL_S
        self.is_over = False

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Wait until the call has ended.

        Raise RuntimeError if the call has failed, as gloo does when a peer is lost.
        """
        if not self.is_over:
            answer = self._ask(timeout.total_seconds() if timeout else None)
            if answer.error:
                raise RuntimeError(answer.error)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Return whether the call has ended.

        The answer takes longer each time, up to a limit, for scripts that ask in a loop.
        """
        if self.is_over:
            return True
        limit_s, self._poll_s = self._poll_s, min(2 * self._poll_s, LONGEST_POLL_S)
        return self._ask(limit_s).is_over

    def is_success(self) -> bool:
        return self.is_over

    def result(self) -> list[Tensor]:
        self.wait()
        return [tensor for _, tensor in self._results]

    def _source_rank(self) -> int:
        """Return the rank in the group that sent the received message."""
        return self._source

    def get_future(self) -> CallFuture:
        """Return a future of the call's results.

        A wait for the future, or for the call, completes it.
        """
        future = self._future or CallFuture(self.wait, self.is_completed)
        if self.is_over:
            future.set_result([tensor for _, tensor in self._results])
        else:
            self._future = future
        return future

    def _ask(self, limit_s: float | None) -> ClusterAnswer:
        answer = self._link.ask(CallAwaited(number=self._number, timeout_s=limit_s))
        if not answer.error:
            self._source = answer.source
            self._take_results()
        return answer

    def _take_results(self) -> None:
        self.is_over = True
        with torch.no_grad(), self._link.unmetered():
            for place, tensor in self._results:
                if place.segment != NOWHERE:
                    to = as_numbers(tensor)
                    to.copy_(self._link.arena.view(place).view(to.shape))
        for place in self._places:
            self._link.arena.release(place)
        self._link.memory.hold(-self._held_bytes)
        # Break the reference cycle: call and future refer to each other, and to the tensors.
        future, self._future = self._future, None
        if future is not None:
            future.set_result([tensor for _, tensor in self._results])


class JoinedWork(dist._Work):  # type: ignore[name-defined, misc]
    """Several calls, combined into one torch Work."""

    def __init__(self, works: Sequence[CallWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> CallFuture:
        futures = [work.get_future() for work in self._works]
        return joined_future(futures).then(lambda _: [tensor for future in futures for tensor in future.value()])
