"""When a run is given up, on a clock that is SimPy's: nothing here takes any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from simcluster_backends.sim.loop.event_loop import SimLoop
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.launcher.settings import SocketOptions
from simcluster_backends.sockets.launcher.watchdog import STALL_WARNING_S, Watch
from simcluster_backends.sockets.wire.messages import NodeOutcome, NodeStatus

from simcluster.runs.record import NodeRecord

OPTIONS = SocketOptions(heartbeat_s=1.0, dead_s=5.0, stuck_s=30.0, idle_s=100.0, loop_s=50.0)


def status(**changed: Any) -> NodeStatus:
    values: dict[str, Any] = {
        "moved": 0, "done": 0, "computing": 0, "waits": [], "steps": 0, "sent_to": {}, "bytes_received": 0,
        "ended": False, "stalled_s": 0.0, "place": "",
    }  # fmt: skip
    return NodeStatus(**{**values, **changed})


@dataclass
class Seen:
    """What a watch asked for, and when."""

    given_up: list[tuple[float, str]] = field(default_factory=list)
    silent: list[tuple[float, int]] = field(default_factory=list)


def watched(
    life: Callable[[float, NodeHandle], None],
    options: SocketOptions = OPTIONS,
    nodes: int = 2,
    until_s: float = 400.0,
    expected_until_s: float = 0.0,
) -> Seen:
    """Watches *nodes* members; *life* says once a second, given the time, what each of them has become."""
    loop, seen = SimLoop(), Seen()  # type: ignore[abstract]
    members = [NodeHandle(rank, f"n{rank}", by_hand=False) for rank in range(nodes)]

    async def main() -> None:
        watch = Watch(
            members,
            options,
            beat=lambda: None,
            on_silent=lambda member: seen.silent.append((loop.time(), member.rank)),
            give_up=lambda reason: seen.given_up.append((loop.time(), reason)),
            expects=lambda: loop.time() < expected_until_s,
        )
        watch.start()
        watching = asyncio.create_task(watch.run())
        for second in range(int(until_s)):
            for member in members:
                life(float(second), member)
            await asyncio.sleep(1.0)
            if seen.given_up or seen.silent:
                break
        watching.cancel()

    loop.run_until_complete(main())
    loop.close()
    return seen


def test_a_run_that_works_is_left_alone() -> None:
    def works(now_s: float, member: NodeHandle) -> None:
        member.status = status(moved=int(now_s), done=int(now_s) // 50, waits=["recv"])

    assert watched(works) == Seen()


def test_a_run_in_which_all_wait_and_nothing_moves_is_stuck() -> None:
    def waits(now_s: float, member: NodeHandle) -> None:
        member.status = status(moved=min(int(now_s), 10), waits=["recv"])

    seen = watched(waits)
    # The last move is seen at 10 or 11 s; then more than 30 s, looked for once a second.
    (at_s, reason) = seen.given_up[0]
    assert 41 <= at_s <= 43
    assert reason == "every node waits, and nothing has moved for 30 s (stuck_s)"


def test_those_who_wait_for_whoever_is_to_come_back_are_not_stuck() -> None:
    def waits(now_s: float, member: NodeHandle) -> None:
        member.status = status(waits=["recv"])

    (at_s, _) = watched(waits, expected_until_s=60.0).given_up[0]
    assert 90 <= at_s <= 93, "30 s after nobody is expected any more"


@pytest.mark.parametrize("changed", [{"computing": 1}, {"waits": []}])
def test_a_run_in_which_one_computes_or_sleeps_is_not_stuck(changed: dict[str, Any]) -> None:
    def life(now_s: float, member: NodeHandle) -> None:
        member.status = status(done=int(now_s), waits=["recv"]) if member.rank else status(done=0, **changed)

    assert watched(life) == Seen()


def test_bytes_under_way_are_no_standstill() -> None:
    def sends(now_s: float, member: NodeHandle) -> None:
        # One large message for 90 s: no message arrives, no work is done, but bytes move.
        member.status = status(moved=1000 * int(now_s), waits=["send"])

    assert watched(sends, until_s=90.0) == Seen()


def test_a_run_that_only_polls_or_plays_ping_pong_is_given_up() -> None:
    def ping_pong(now_s: float, member: NodeHandle) -> None:
        member.status = status(moved=int(now_s), done=min(int(now_s), 10))

    seen = watched(ping_pong)
    (at_s, reason) = seen.given_up[0]
    assert 111 <= at_s <= 113
    assert reason == "no work done and nothing recorded for 100 s (idle_s)"


def test_a_node_that_evaluates_is_not_idle_and_past_no_limit() -> None:
    def evaluates(now_s: float, member: NodeHandle) -> None:
        member.status = status(ended=member.rank == 0)
        if member.rank:
            member.outcome = NodeOutcome(NodeRecord(1, "n1"), None)

    assert watched(evaluates, SocketOptions(heartbeat_s=1.0, idle_s=100.0, limit_s=20.0)) == Seen()


def test_a_limit_is_for_algorithms_that_have_not_ended() -> None:
    def life(now_s: float, member: NodeHandle) -> None:
        member.status = status(moved=int(now_s), done=int(now_s), ended=member.rank == 0)

    seen = watched(life, SocketOptions(heartbeat_s=1.0, limit_s=20.0))
    (at_s, reason) = seen.given_up[0]
    assert 20 < at_s <= 22
    assert reason == "the run did not finish within 20 s (limit_s)"


def test_a_loop_that_does_not_turn_is_named_early_and_ends_the_run_late(caplog: pytest.LogCaptureFixture) -> None:
    def life(now_s: float, member: NodeHandle) -> None:
        stalled_s = max(0.0, now_s - 10.0) if member.rank else 0.0
        member.status = status(moved=int(now_s), done=int(now_s), stalled_s=stalled_s, place="mine.py:7 (mine)")

    with caplog.at_level(logging.WARNING, "simcluster.sockets"):
        seen = watched(life)
    (at_s, reason) = seen.given_up[0]
    assert 61 <= at_s <= 63
    assert reason == "rank 1 (n1) has not let go of its event loop for 50 s (loop_s)"
    assert caplog.messages == [f"rank 1 (n1) is at mine.py:7 (mine), for {STALL_WARNING_S:.0f} s without an await"]


class SuspendedLoop(SimLoop):
    """Its clock jumps by *suspended_s*, as a process that was stopped finds when it goes on."""

    suspended_s = 0.0

    def time(self) -> float:
        return super().time() + self.suspended_s

    def call_at(self, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_at(when - self.suspended_s, *args, **options)


def test_a_launcher_that_slept_blames_nobody() -> None:
    loop, seen = SuspendedLoop(), Seen()  # type: ignore[abstract]
    member = NodeHandle(0, "n0", by_hand=False, status=status(waits=["recv"]))

    async def main() -> None:
        watch = Watch(
            [member],
            OPTIONS,
            beat=lambda: None,
            on_silent=lambda member: seen.silent.append((loop.time(), member.rank)),
            give_up=lambda reason: seen.given_up.append((loop.time(), reason)),
            expects=lambda: False,
        )
        watch.start()
        member.connection = object()  # type: ignore[assignment]
        watching = asyncio.create_task(watch.run())
        await asyncio.sleep(3.5)
        member.heard_s = loop.time()
        loop.suspended_s = 3600.0
        await asyncio.sleep(4.0)  # less than dead_s after it woke up
        watching.cancel()

    loop.run_until_complete(main())
    loop.close()
    assert seen == Seen()


def test_a_silent_member_is_told_of_after_dead_s() -> None:
    def silent(now_s: float, member: NodeHandle) -> None:
        member.connection = object() if member.rank else None  # type: ignore[assignment]
        member.status = status(moved=int(now_s), done=int(now_s))

    seen = watched(silent)
    assert seen.silent[0][1] == 1
    assert 5 < seen.silent[0][0] <= 7
