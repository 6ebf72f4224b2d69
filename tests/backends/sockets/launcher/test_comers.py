"""Real nodes that come back, join late and leave: by the plan, and by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from simcluster_backends.common.failure import Failure
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sim.loop.event_loop import SimLoop
from simcluster_backends.sockets import generate_key, write_key
from simcluster_backends.sockets.launcher.admission import LateJoiners
from simcluster_backends.sockets.launcher.departures import Departures
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.wire.messages import Addresses, GoOrder, NodeOutcome, NodeStatus

from simcluster.errors import ABSENT, RunError
from simcluster.job import ClusterJob
from simcluster.runs.record import NodeRecord, RunRecord
from tests.support.clusters import chain
from tests.support.plans import plan
from tests.support.socket_runs import Running, free_port, hand_started, pids_in, wait_for

if TYPE_CHECKING:
    from simcluster_backends.sockets.launcher.faults import LauncherFaults
    from simcluster_backends.sockets.launcher.starters import Starters

TOPOLOGY = chain(4)
OPTIONS = {"heartbeat_s": 0.1, "dead_s": 10.0}


def job(folder: Path, wanted: list[tuple[int, str]], *faults: str, **settings: Any) -> ClusterJob:
    config = json.dumps({"folder": str(folder), "wanted": wanted})
    return ClusterJob(
        settings.pop("names", TOPOLOGY.workers),
        config,
        program="tests.support.node_programs:counts_lives",
        topology=TOPOLOGY,
        faults=plan(TOPOLOGY, *faults),
        options=OPTIONS | settings.pop("options", {}),
        **settings,
    )


def seen_by_0(record: RunRecord) -> list[list[Any]]:
    assert record.error is None, record.error
    assert record.nodes[0].weights_sha256 is not None
    found: list[list[Any]] = json.loads(record.nodes[0].weights_sha256)
    return found


WANTED = [(1, "life 1"), (2, "life 1"), (3, "left"), (3, "life 0")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run in which n1 is restarted, n2 joins late and n3 leaves."""
    request = job(
        tmp_path_factory.mktemp("lives"),
        WANTED,
        "kind: restart, node: n1, at: 300 ms, after: 100 ms",
        "kind: join, node: n2, at: 400 ms",
        "kind: leave, node: n3, at: 500 ms",
    )
    return Running(request).result()


def test_by_the_plan_a_node_comes_back_another_joins_late_and_a_third_leaves(planned: RunRecord) -> None:
    # On a slow machine n1 is killed before its first word, or is back before rank 0 receives again.
    of_chance = ([1, "life 0"], [1, "lost"])
    assert [pair for pair in seen_by_0(planned) if pair not in of_chance] == [list(pair) for pair in WANTED]
    assert [node.weights_sha256 for node in planned.nodes[1:]] == ["life 1", "life 1", "left in life 0"]
    assert [node.incarnation for node in planned.nodes] == [0, 1, 1, 0]


def test_who_came_back_or_joined_is_not_lost_and_who_left_is_with_its_step(planned: RunRecord) -> None:
    (reason,) = planned.extra["lost"].values()
    assert list(planned.extra["lost"]) == ["n3"]
    assert reason == f"left at step {planned.nodes[3].steps}"


def test_the_record_of_one_that_came_back_has_both_of_its_lives(planned: RunRecord) -> None:
    lives = [metric.value for metric in planned.nodes[1].metrics if metric.name == "incarnation"]
    assert lives == sorted(lives)
    assert {1.0} <= set(lives) <= {0.0, 1.0}
    first_s = next(metric.time_s for metric in planned.nodes[1].metrics if metric.value == 1.0)
    assert first_s >= 0.4, "its clock is the run's"


def test_the_log_of_faults_has_all_three(planned: RunRecord) -> None:
    rows = {row["kind"]: row["spells_s"] for row in planned.extra["faults"]}
    assert list(rows) == ["join", "restart", "leave"]
    ((_, left_s),) = rows["leave"]
    assert left_s < 30.0, "it did not take all of its notice"


@pytest.mark.slow
def test_by_hand_a_node_joins_late_is_killed_comes_back_and_leaves(tmp_path: Path) -> None:
    key, key_file = generate_key(), tmp_path / "cluster.key"
    write_key(key_file, key)
    rendezvous = f"127.0.0.1:{free_port()}"
    wanted = [(2, "life 1"), (2, "lost"), (2, "life 2"), (2, "left")]
    options = {"rendezvous": rendezvous, "key_file": str(key_file), "min_workers": 2}
    addresses: list[Any] = [None, None, ("127.0.0.1", 0)]
    request = job(tmp_path, wanted, names=["n0", "n1", "n2"], options=options, addresses=addresses)
    running = Running(request)
    pids_in(tmp_path, ["n0", "n1"])  # type: ignore[arg-type]

    def pid_of(process: subprocess.Popen[bytes]) -> int:
        file = tmp_path / "n2.pid"
        return int(wait_for(lambda: file.exists() and file.read_text() == str(process.pid) and file.read_text()))

    with hand_started("n2", rendezvous, key_file) as first:
        os.kill(pid_of(first), signal.SIGKILL)
        first.wait()
        wait_for((tmp_path / "2.lost").exists)  # rank 0 is told of a loss only until the rank is back
    with hand_started("n2", rendezvous, key_file) as second:
        os.kill(pid_of(second), signal.SIGTERM)
        assert second.wait() == 0, second.stdout and second.stdout.read()
    record = running.result()
    assert seen_by_0(record) == sorted(list(pair) for pair in [(1, "life 0"), *wanted])
    assert record.nodes[2].weights_sha256 == "left in life 2"
    # The life before it may have come further.
    left_at = max(metric.step for metric in record.nodes[2].metrics if metric.value == 2.0)
    assert record.extra["lost"] == {"n2": f"left at step {left_at}"}


# the order in which they are taken in


class Desk:
    """LateJoiners of members without processes, in virtual time."""

    def __init__(self, size: int) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.changed = asyncio.Event()
        self.members = [Heard(rank, f"n{rank}") for rank in range(size)]
        self.started: list[int] = []
        self.killed: list[int] = []
        self.came: list[tuple[int, str]] = []
        self.comers = LateJoiners(
            self.members,
            self.changed,
            start=self._start,
            kill=lambda member: self.killed.append(member.rank),
            came=lambda member, reason: self.came.append((member.rank, reason)),
            at_s=self.loop.time,
            patience_s=60.0,
            loop_s=300.0,
        )

    async def _start(self, member: NodeHandle) -> None:
        self.started.append(member.rank)
        await asyncio.sleep(1.0)
        if member.name == "n9":
            raise RunError("no such machine")

    def joins(self, rank: int) -> None:
        self.comers.joined(self.members[rank]) if not self.members[rank].is_coming else None
        self.members[rank].listening = ("10.0.0.1", rank)
        self.changed.set()

    def connects(self, rank: int) -> None:
        self.members[rank].connected = True
        self.changed.set()

    def run(self, life: Callable[[Desk], Awaitable[None]]) -> None:
        async def main() -> None:
            self.comers.begin()
            await life(self)
            await self.comers.close()

        self.loop.run_until_complete(main())
        self.loop.close()


@dataclass
class Heard(NodeHandle):
    """A member that remembers what it was told."""

    heard: list[Any] = field(default_factory=list)

    def tell(self, message: Any) -> None:
        self.heard.append(message)


def test_comers_are_taken_in_one_by_one_and_each_is_told_of_those_before() -> None:
    async def life(desk: Desk) -> None:
        for rank in (1, 2):
            desk.members[rank].gone = "died"
        for rank in (1, 2):
            desk.joins(rank)
        await asyncio.sleep(1)
        assert [len(member.heard) for member in desk.members] == [0, 1, 0, 0], "one at a time"
        desk.members[1].connection = object()  # type: ignore[assignment]
        desk.connects(1)
        await asyncio.sleep(1)

    desk = Desk(4)
    for rank in (0, 3):
        desk.members[rank].connection = object()  # type: ignore[assignment]
    desk.members[3].outcome = NodeOutcome(NodeRecord(3, "n3"), Failure("failed", "a bug"))
    desk.run(life)
    first, second = desk.members[1].heard[0], desk.members[2].heard[0]
    assert first == Addresses([("", 0), ("10.0.0.1", 1), ("10.0.0.1", 2), ("", 0)], {2: "died", 3: "failed: a bug"}, 1)
    assert second.gone == {3: "failed: a bug"}
    assert desk.members[1].heard[1] == GoOrder(1.0)
    assert desk.came == [(1, "died")]


def test_one_that_does_not_connect_in_time_is_given_up_and_the_next_one_is_taken_in() -> None:
    async def life(desk: Desk) -> None:
        for rank in (1, 2):
            desk.members[rank].gone = "died"
            desk.joins(rank)
        await asyncio.sleep(61)
        assert desk.killed == [1]
        assert [len(member.heard) for member in desk.members[1:]] == [1, 1]
        assert not desk.members[1].is_coming
        assert desk.members[1].gone == "died"

    Desk(3).run(life)


def test_one_that_is_at_work_on_its_model_has_more_time_but_not_forever() -> None:
    """60 s to be ready, and 300 s more at work: of checks every minute, that after 300 s is the last."""

    async def life(desk: Desk) -> None:
        member = desk.members[1]
        member.gone = "died"
        desk.comers.joined(member)
        member.status = NodeStatus(0, 0, 0, [], 0, {}, 0, False, stalled_s=59.0, place="model.py:1")
        await asyncio.sleep(299)
        assert member.is_coming
        await asyncio.sleep(62)
        assert desk.killed == [1]

    Desk(2).run(life)


def test_a_process_is_started_again_only_when_the_one_before_is_gone() -> None:
    async def life(desk: Desk) -> None:
        member = desk.members[1]
        member.exited, member.connection = False, object()  # type: ignore[assignment]
        desk.comers.bring(1)
        await asyncio.sleep(5)
        assert desk.comers.any
        assert desk.started == []
        member.gone, member.connection = "crashed", None
        desk.changed.set()
        await asyncio.sleep(5)
        assert desk.started == []
        member.exited = True
        desk.changed.set()
        await asyncio.sleep(0)
        await asyncio.sleep(5)
        assert desk.started == [1]
        assert member.incarnation == 1

    Desk(2).run(life)


def test_a_node_that_ended_well_before_it_could_be_killed_is_not_started_again() -> None:
    async def life(desk: Desk) -> None:
        desk.members[1].outcome = NodeOutcome(NodeRecord(1, "n1"), None)
        desk.comers.bring(1)
        await asyncio.sleep(5)
        assert desk.started == []
        assert not desk.comers.any

    Desk(2).run(life)


def test_one_that_cannot_be_started_or_dies_on_its_way_stays_lost() -> None:
    async def life(desk: Desk) -> None:
        desk.members[9].gone = desk.members[1].gone = "crashed"
        desk.comers.bring(9)
        desk.joins(1)
        await asyncio.sleep(2)
        desk.comers.lost(desk.members[1])
        await asyncio.sleep(1)
        assert not desk.comers.any
        assert [desk.members[rank].gone for rank in (1, 9)] == ["crashed", "crashed"]
        assert desk.came == []

    Desk(10).run(life)


def test_one_that_does_not_get_ready_is_given_up_so_that_nobody_waits_for_it_for_ever() -> None:
    async def life(desk: Desk) -> None:
        desk.members[1].gone = desk.members[2].gone = "crashed"
        desk.comers.bring(1)
        await asyncio.sleep(50)
        desk.joins(2)  # is ready, and waits for its turn behind nobody
        assert desk.comers.any
        await asyncio.sleep(11)
        assert not desk.members[1].is_coming
        assert desk.members[2].is_coming, "it has its own time to connect"
        assert desk.killed == [1]

    Desk(3).run(life)


def departures_of(desk: Desk) -> Departures:
    """Return the departures of a run without a plan, in which a node may be revived three times."""
    plan_of_none = cast("LauncherFaults", SimpleNamespace(planned={}))
    starters = cast("Starters", SimpleNamespace(logs=SimpleNamespace(file=lambda name: None)))
    verdict = Verdict([one.name for one in desk.members])
    return Departures(
        desk.members, desk.changed, 10.0, verdict, plan_of_none, desk.comers, starters, desk.loop.time, revivals=3
    )


def test_a_revived_node_that_dies_before_it_has_joined_is_started_again_up_to_the_limit() -> None:
    async def life(desk: Desk) -> None:
        member, departures = desk.members[1], departures_of(desk)
        await asyncio.sleep(1)  # the run has begun
        for lives, dies in enumerate((departures.left, departures.left, departures.exited, departures.exited)):
            assert desk.started == [1] * lives
            dies(member, None)  # type: ignore[operator]
            await asyncio.sleep(2)
        assert desk.started == [1] * 3  # of four deaths the last one is above the limit
        assert not member.is_coming
        assert member.gone is not None

    Desk(2).run(life)


def test_a_late_joiner_that_dies_on_its_way_is_not_revived() -> None:
    async def life(desk: Desk) -> None:
        member, departures = desk.members[1], departures_of(desk)
        member.gone = ABSENT
        desk.joins(1)
        await asyncio.sleep(1)
        departures.exited(member, 1)
        await asyncio.sleep(2)
        assert desk.started == []

    Desk(2).run(life)
