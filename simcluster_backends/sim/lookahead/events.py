"""Which ranks an event of the clock can affect."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from simcluster.payload import Message
from simcluster_backends.sim.loop.callbacks import Timer, owner_of_task
from simcluster_backends.sim.network.flows import Flow
from simcluster_backends.sim.network.service import Service
from simcluster_backends.sim.stream import Stream

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


def woken_by(loop: SimLoop, event: Any) -> int | None:
    """Return the rank of the task that *event* wakes up; None for an event that may do anything else."""
    argument = getattr(event, "argument", None)
    if type(argument) is Timer:
        owner = argument.owner()
    elif getattr(event, "callback", None) == loop.rested:
        owner = argument[1].get(owner_of_task)
    else:
        return None
    return getattr(owner, "rank", None)


def ends_of(event: Any) -> Collection[int]:
    """Return the receiver of a message that arrives with *event*, or both ends if it leaves, alone on its path."""
    argument = getattr(event, "argument", None)
    if isinstance(argument, Flow):
        stream = getattr(argument.on_done, "__self__", None)
        return (stream.sender.rank, stream.receiver.rank) if isinstance(stream, Stream) else ()
    if isinstance(argument, Message):
        receiver = getattr(getattr(event.callback, "__self__", None), "receiver", None)
        return () if receiver is None else (receiver.rank,)
    return ()


def has_messages(queue: Iterable[Any]) -> bool:
    """Return whether an event of *queue* is that of a message."""
    kinds = (Flow, Service, Message)
    return any(isinstance(getattr(event, "argument", None), kinds) and not event.cancelled for *_, event in queue)
