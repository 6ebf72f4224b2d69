"""The shortcuts of a transport, available as `node.fast`: faster ways to the results of its
methods.

A run without shortcuts has the same times, bytes and weights, with two exceptions: tasks of one
node that send at the same instant may send in a different order, and if one half of an exchange
fails, the other half may or may not have happened. The spans of a node are the same but in a
different order, so the trace digest differs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from simcluster.payload import Message, Sendable
    from simcluster.rounds import Rounds

GiveBack = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """The shortcuts of a transport, for the library's collectives; None for each one that it lacks.

    `exchange(to, source, tag, content)` sends to rank *to* and receives from rank *source*, without
    a task for each half. It fails as soon as either half fails: see
    simcluster.collectives.exchange.

    `land(source, tag, place)` lets the next message from *source* under *tag* arrive directly in
    the tensor *place* if the dtypes and shapes are equal. It returns None if that message has
    arrived or is in flight. Otherwise it returns a function that gives *place* back: a tensor that
    has arrived there and has not been received is then moved elsewhere.

    `rounds_ahead(rounds)` computes the effect of the first *rounds* for all ranks together. It
    returns when these rounds have ended in virtual time, with their number, or with 0 if the rounds
    have to be run one by one. Only a transport with all ranks in one process has this shortcut.
    """

    exchange: Callable[[int, int, str, Sendable], Coroutine[Any, Any, Message]] | None = None
    land: Callable[[int, str, Tensor], GiveBack | None] | None = None
    rounds_ahead: Callable[[Rounds], Coroutine[Any, Any, int]] | None = None


def shortcuts_of(node: object) -> Shortcuts | None:
    """Return the shortcuts of *node*, or None if it has none, such as a user's own wrapper."""
    return getattr(node, "fast", None)
