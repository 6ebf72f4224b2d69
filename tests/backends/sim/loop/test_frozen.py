"""Callbacks that are held back for their owner, and no others."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim.loop.callbacks import FrozenCallbacks


class Callback:
    def __init__(self, whose: str, number: int) -> None:
        self.whose, self.number = whose, number

    def owner(self) -> object:
        return self.whose


def test_only_the_callbacks_of_frozen_owners_are_held() -> None:
    ready: deque[Callback] = deque()
    frozen = FrozenCallbacks(ready)
    assert not frozen.held
    frozen.freeze("a")
    assert list(frozen.held) == ["a"]
    assert frozen.holds(Callback("a", 1))
    assert not frozen.holds(Callback("b", 2))
    assert not frozen.holds(Callback("", 3))
    frozen.thaw("b")
    assert not ready
    frozen.thaw("a")
    assert [callback.number for callback in ready] == [1]
    assert not frozen.held
    assert not frozen.holds(Callback("a", 4))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["call", "freeze", "thaw"])), max_size=40))
def test_every_callback_runs_once_and_those_of_one_owner_in_their_order(steps: list[tuple[str, str]]) -> None:
    ready: deque[Callback] = deque()
    frozen, ran, made = FrozenCallbacks(ready), [], 0

    def drain() -> None:
        while ready:
            callback = ready.popleft()
            if not frozen.holds(callback):
                ran.append(callback)

    for owner, step in steps:
        if step == "call":
            ready.append(Callback(owner, made))
            made += 1
        elif step == "freeze":
            frozen.freeze(owner)
        else:
            frozen.thaw(owner)
        drain()
    for owner in "ab":
        frozen.thaw(owner)
    drain()
    assert sorted(callback.number for callback in ran) == list(range(made))
    for owner in "ab":
        numbers = [callback.number for callback in ran if callback.whose == owner]
        assert numbers == sorted(numbers)
