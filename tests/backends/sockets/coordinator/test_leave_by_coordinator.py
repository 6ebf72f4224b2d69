"""`POST /workers/NAME/leave`: the node leaves at the end of its step, and the answers say what has happened."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sockets.coordinator.client import Client, NoAnswer
from simcluster_backends.sockets.coordinator.desk import CallRefused, CoordinatorDesk
from simcluster_backends.sockets.wire.keys import write_key

from simcluster.watching.board import NodeTelemetry, RunInfo, Telemetry
from tests.backends.sockets.launcher.test_comers import job, seen_by_0
from tests.backends.sockets.node.test_attend import World, begins
from tests.support.socket_runs import Running, free_port, pids_in, wait_for

TOKEN = bytes(range(32))


def test_a_node_of_a_real_run_leaves_when_the_coordinator_is_asked(tmp_path: Path) -> None:
    token_file, port = tmp_path / "token", free_port()
    write_key(token_file, TOKEN)
    token = token_file.read_text().strip()
    options = {"coordinator": f"127.0.0.1:{port}", "token_file": str(token_file)}
    wanted = [(1, "life 0"), (2, "left")]
    running = Running(job(tmp_path, wanted, names=["n0", "n1", "n2"], options=options))
    pids_in(tmp_path, ["n0", "n1", "n2"])  # type: ignore[arg-type]

    def call(path: str) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("POST", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def started() -> bool:
        try:
            run = Client(f"http://127.0.0.1:{port}", token).get("/status")["run"]
        except NoAnswer:
            return False
        return run is not None and len([node for node in run["nodes"] if node["state"] == "running"]) == 3

    wait_for(started)
    assert call("/workers/n9/leave")[0] == 404
    code, answer = call("/workers/n2/leave")
    assert (code, answer["left"], answer["leaving"]) == (200, False, True)
    record = running.result()
    assert [2, "left"] in seen_by_0(record)
    assert record.nodes[2].weights_sha256 == "left in life 0"
    assert record.extra["lost"] == {"n2": f"left at step {record.nodes[2].steps}"}


# the desk


def desk_of(*names: str) -> CoordinatorDesk:
    desk = CoordinatorDesk(5.0, lambda: 0.0)
    desk.begin(RunInfo(name="r", nodes=list(names), rendezvous="127.0.0.1:1"))
    return desk


def told(desk: CoordinatorDesk, **states: str) -> list[str]:
    nodes = [NodeTelemetry(name=name, rank=rank, state=state) for rank, (name, state) in enumerate(states.items())]
    leave: list[str] = desk.telemetry(Telemetry(elapsed_s=1.0, nodes=nodes))["leave"]
    return leave


def state_of(desk: CoordinatorDesk, name: str) -> str:
    return next(str(worker["state"]) for worker in desk.status()["workers"] if worker["name"] == name)


def test_a_launcher_is_told_until_the_node_has_left_and_then_no_more() -> None:
    desk = desk_of("a", "b")
    assert told(desk, a="running", b="running") == []
    assert desk.ask_to_leave("b")["leaving"] is True
    assert told(desk, a="running", b="running") == ["b"]
    assert state_of(desk, "b") == "alive", "it has not left before it has"
    assert told(desk, a="running", b="lost") == []
    assert state_of(desk, "b") == "left"
    assert told(desk, a="running", b="running") == [], "one that comes back stays"


def test_only_a_worker_that_is_there_can_leave() -> None:
    desk = desk_of("a", "b", "c")
    told(desk, a="running", b="lost", c="expected")
    with pytest.raises(CallRefused, match="no worker is called"):
        desk.ask_to_leave("z")
    with pytest.raises(CallRefused, match="is lost"):
        desk.ask_to_leave("b")
    with pytest.raises(CallRefused, match="has not come yet"):
        desk.ask_to_leave("c")
    desk.leave("a")
    with pytest.raises(CallRefused, match="has already left"):
        desk.ask_to_leave("a")


def test_a_worker_that_waits_for_a_run_leaves_at_its_next_heartbeat() -> None:
    world = World({5.0: lambda world: world.desk.ask_to_leave("a") and None})
    assert world.attend([]) == 0
    assert world.now_s < 10.0, "it had patience for 60 s"
    assert state_of(world.desk, "a") == "left"


def test_a_worker_that_is_asked_during_a_run_is_told_by_its_launcher_alone() -> None:
    def ask(world: World) -> None:
        world.desk.ask_to_leave("a")
        assert world.desk.heartbeat("a")["leave"] is False

    world = World({1.0: begins("127.0.0.1:7000", "a"), 5.0: ask})
    assert world.attend([None]) == 0


def test_a_node_that_joins_again_under_its_name_is_not_told_what_the_one_before_was() -> None:
    desk = CoordinatorDesk(5.0, time.monotonic)
    desk.register("a", "")
    desk.ask_to_leave("a")
    desk.register("a", "")
    assert desk.heartbeat("a")["leave"] is False
