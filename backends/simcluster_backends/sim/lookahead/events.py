"""The ranks that an event of the clock can affect."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from simcluster.payload import Message
from simcluster_backends.sim.loop.callbacks import Timer, owner_of_task
from simcluster_backends.sim.network.flow import Flow
from simcluster_backends.sim.network.virtual_service import VirtualService
from simcluster_backends.sim.stream import Stream
from simcluster_backends.sim.transit import Transit

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


def woken_by(loop: SimLoop, event: Any, limit_B: int) -> int | None:
    """Return the rank that *event* wakes up, if it does nothing else.

    Such an event ends a sleep or a piece of work, or is the arrival of a message. Return None for
    other events. *limit_B* is the capacity of an inbox, minus the bytes of the messages that held
    ranks have yet to send.
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
    """Return (sender, receiver) if *event* is the end of a message's injection, else ().

    Only a message that no full channel slows has such an event.
    """
    flow = getattr(event, "argument", None)
    stream = getattr(flow.on_done, "__self__", None) if isinstance(flow, Flow) else None
    return (stream.sender.rank, stream.receiver.rank) if isinstance(stream, Stream) else ()


def has_flows(queue: Iterable[Any]) -> bool:
    """Return whether an event in *queue* is the end of a flow."""
    kinds = Flow, VirtualService
    return any(isinstance(getattr(event, "argument", None), kinds) and not event.cancelled for *_, event in queue)
