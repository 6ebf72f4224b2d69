"""A node with a coordinator: it may come first, joins each attempt once, and ends when the run has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simcluster_backends.sockets.coordinator.client import Client, NoAnswer, NotAllowed
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.node.attend import attend

from simcluster.errors import UsageError
from simcluster.watching.board import RunInfo


class World(Client):
    """A coordinator without HTTP, a clock without waiting, and what happens when: *events* by time."""

    def __init__(self, events: dict[float, Callable[[World], None]]) -> None:
        super().__init__("http://127.0.0.1:1", "t" * 32)
        self.now_s, self.events, self.there = 0.0, events, True
        self.desk = CoordinatorDesk(90.0, lambda: self.now_s)
        self.joined: list[tuple[float, str]] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for when in [when for when in self.events if when <= self.now_s]:
            self.events.pop(when)(self)

    def get(self, path: str, **parameters: object) -> Any:
        self._check()
        return self.desk.ready(1)

    def post(self, path: str, content: Any = None) -> Any:
        self._check()
        if path == "/workers":
            return self.desk.register(content["name"], content["address"])
        name, verb = path.split("/")[2:]
        return self.desk.heartbeat(name) if verb == "heartbeat" else self.desk.leave(name)

    def _check(self) -> None:
        if not self.there:
            raise NoAnswer("nobody")

    def attend(self, codes: list[int | None], patience_s: float = 60.0) -> int:
        def join(rendezvous: str) -> int | None:
            self.joined.append((self.now_s, rendezvous))
            self.sleep(10.0)  # the run
            return codes[len(self.joined) - 1]

        return attend("a", self, "", join, patience_s=patience_s, now=self.now, sleep=self.sleep)


def begins(rendezvous: str, *names: str) -> Callable[[World], None]:
    return lambda world: world.desk.begin(RunInfo(name="r", nodes=list(names), rendezvous=rendezvous)) and None


def ends(world: World) -> None:
    world.desk.end()


def appears(world: World) -> None:
    world.there = True


def goes(world: World) -> None:
    world.there = False


def test_a_node_that_is_there_first_joins_when_a_run_wants_it_and_leaves_when_it_has_ended() -> None:
    world = World({20.0: appears, 30.0: begins("h:1", "b"), 40.0: begins("h:2", "a", "b"), 55.0: ends})
    world.there = False
    assert world.attend([0]) == 0
    ((joined_s, rendezvous),) = world.joined
    assert rendezvous == "h:2"
    assert 40.0 <= joined_s <= 42.0
    assert world.desk.status()["workers"][0]["state"] == "left"


def test_it_joins_every_attempt_of_the_run_once_and_its_code_is_that_of_the_last() -> None:
    world = World({1.0: begins("h:1", "a"), 14.0: begins("h:2", "a"), 30.0: ends})
    assert world.attend([1, 0]) == 0
    assert [rendezvous for _, rendezvous in world.joined] == ["h:1", "h:2"]


def test_whoever_leaves_the_run_leaves_the_coordinator_and_does_not_wait_for_the_end() -> None:
    world = World({1.0: begins("h:1", "a"), 300.0: ends})
    assert world.attend([None]) == 0
    assert world.now_s < 15.0, "a run of 10 s"
    assert world.desk.status()["workers"][0]["state"] == "left"


def test_a_coordinator_that_ends_with_its_run_is_the_end() -> None:
    assert World({1.0: begins("h:1", "a"), 5.0: goes}).attend([1]) == 1


@pytest.mark.parametrize("there", [True, False])
def test_patience_has_an_end_with_and_without_a_coordinator(there: bool) -> None:
    world = World({})
    world.there = there
    with pytest.raises(NoAnswer):
        world.attend([], patience_s=30.0)
    assert 30.0 < world.now_s < 33.0


def test_a_refused_token_is_no_matter_of_patience() -> None:
    world = World({})

    def refuse(path: str, content: Any = None) -> Any:
        raise NotAllowed("http://h:1", "which does not take this token", "its own")

    world.post = refuse  # type: ignore[method-assign]
    with pytest.raises(NotAllowed):
        world.attend([])
    assert world.now_s == 0.0


@pytest.mark.parametrize("url", ["ftp://h:1", "h:1", "https://", "https://h:1/path", "http://me@h:1"])
def test_a_coordinator_is_called_by_a_plain_url(url: str) -> None:
    with pytest.raises(UsageError, match="https://HOST:PORT"):
        Client(url, "t" * 32)
