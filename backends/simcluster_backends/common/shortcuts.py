"""The option `shortcuts`, which chooses a backend's shortcuts; see simcluster.shortcuts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

from simcluster.documents.values import only
from simcluster.shortcuts import Shortcuts

SHORTCUTS = frozenset({"exchange", "landing", "lazy", "memory", "rounds"})
"""The names of the shortcuts.

exchange, landing and rounds stand for `exchange`, `land` and `rounds_ahead` of `node.fast`.

With lazy, the simulator makes an idle node only when it is first sent a message. With memory,
processes on one machine share memory for large messages.
"""

Given = bool | str


def kept_shortcuts(given: Given) -> frozenset[str]:
    """Return the names of the shortcuts that a run takes: all for True, none for False.

    A string has some of the names, joined by "+".
    """
    if isinstance(given, str):
        return SHORTCUTS & frozenset(given.split("+"))
    return SHORTCUTS if given else frozenset()


def _fits(given: object) -> bool:
    return isinstance(given, bool) or (isinstance(given, str) and SHORTCUTS.issuperset(given.split("+")))


ShortcutChoice = Annotated[
    Given, only(_fits, f"true, false, or some of {'+'.join(sorted(SHORTCUTS))}", {"type": ["boolean", "string"]})
]


def fast_of(
    kept: Collection[str],
    exchange: Callable[..., Any],
    land: Callable[..., Any] | None = None,
    rounds_ahead: Callable[..., Any] | None = None,
) -> Shortcuts | None:
    """Return those shortcuts of a node that *kept* names; None if there are none."""
    found = Shortcuts(
        exchange if "exchange" in kept else None,
        land if "landing" in kept else None,
        rounds_ahead if "rounds" in kept else None,
    )
    return None if found == Shortcuts() else found
