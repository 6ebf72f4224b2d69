"""Which ranks an event of the clock can affect."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from simcluster.payload import Message
from simcluster_backends.sim.loop.callbacks import Timer, owner_of_task
from simcluster_backends.sim.network.flow import Flow
from simcluster_backends.sim.network.service import VirtualService
from simcluster_backends.sim.stream import Stream
from simcluster_backends.sim.transit import Transit

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


def woken_by(loop: SimLoop, event: Any, limit_B: int) -> int | None:
    """Return the rank that *event* wakes up: it ends a sleep or work, or a message arrives. None for other events.

    *limit_B*: the room of an inbox, without that for messages that are yet to be sent.
    """
    argument: Any = getattr(event, "argument", None)
    callback: Any = getattr(event, "callback", None)
    if type(argument) is Timer:
        owner = argument.owner()
    elif callback == loop.rested:
        owner = argument[1].get(owner_of_task)
    elif isinstance(argument, Message) and isinstance(transit := getattr(callback, "__self__", None), Transit):
        return transit.receiver.rank if transit.only_wakes_up(argument, limit_B) else None
    else:
        return None
    return getattr(owner, "rank", None)


def ends_of(event: Any) -> Collection[int]:
    """Return the sender and the receiver if *event* is the end of a message alone on its path; else nothing."""
    flow = getattr(event, "argument", None)
    stream = getattr(flow.on_done, "__self__", None) if isinstance(flow, Flow) else None
    return (stream.sender.rank, stream.receiver.rank) if isinstance(stream, Stream) else ()


def has_flows(queue: Iterable[Any]) -> bool:
    """Return whether an event of *queue* is the end of a flow."""
    kinds = Flow, VirtualService
    return any(isinstance(getattr(event, "argument", None), kinds) and not event.cancelled for *_, event in queue)
