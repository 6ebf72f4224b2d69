"""The activity of a real node at a moment, read by other threads while its loop goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from simcluster_backends.common.real_node import NodeActivity


class Tag(str):
    """A tag during whose description another send begins, as in another thread."""

    activity: Any

    def __repr__(self) -> str:
        self.activity.number(1, "next", 8)
        return "'first'"


def test_sends_that_begin_while_the_pending_ones_are_described_do_no_harm() -> None:
    still: Any = SimpleNamespace(mailbox=SimpleNamespace(describe=list), computing=0)
    still.shares = SimpleNamespace(begin=lambda kind: None)
    activity = NodeActivity(still, still, still)
    tag = Tag("first")
    tag.activity = activity
    activity.number(1, tag, 4)
    assert activity.waits() == ["send(to=1, tag='first', 4 B)"]
    assert activity.waits()[1] == "send(to=1, tag='next', 8 B)"
