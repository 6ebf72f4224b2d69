"""The parts of a simulated cluster that a world may read and set; no algorithm or tensor is among them.

Worlds compose with each other, with fault plans and with the topology: factors on a bandwidth or a
speed multiply, added latencies add, losses are independent, and a link is open, and a node runs,
once nothing stops it any more. Each world has settings of its own, in effect until it changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


class LinkHandle(Protocol):
    """A link, in both directions or towards one end.

    Attributes read as this world has set them, else as in the topology; both directions read as towards
    the second end. Everything else in effect composes with that: half of the bandwidth, set by two worlds,
    leaves a quarter.
    """

    name: str
    bandwidth_Bps: float  # above 0; a trace of the topology is not part of it
    latency_s: float  # at least 0, as is the sum with what others add and take away
    loss: float  # the probability of a packet's loss, from the topology's to 0.9

    @property
    def bytes_sent(self) -> int:
        """The bytes of the messages that nodes have sent over the link so far."""

    def cut(self) -> None:
        """Let no message cross the link until `heal`; ends that it separates for `dead_s` lose each other."""

    def heal(self) -> None:
        """Undo `cut`."""


class WorkerHandle(Protocol):
    """A worker. Nothing that a world does affects a node that has ended its algorithm."""

    name: str
    speed: float  # as this world has set it, 1.0 as in the topology; the piece of work in progress changes, too

    @property
    def alive(self) -> bool:
        """Whether the node has neither ended nor been lost."""

    @property
    def ended(self) -> bool:
        """Whether the node has ended its algorithm."""

    @property
    def step(self) -> int:
        """The last step that the node has recorded; 0 before the first."""

    def crash(self, *, returns: bool = False) -> None:
        """Kill the node, unless something else has. With *returns*, the run waits for `restart`."""

    def restart(self) -> None:
        """Start the node, which this world has crashed and which returns, from the beginning."""

    def freeze(self) -> None:
        """Stop the node until `thaw`, unless it is down; after `dead_s` it is lost."""

    def thaw(self) -> None:
        """Undo `freeze`."""


class TrafficHandle(Protocol):
    """Background traffic, which shares links with the nodes' messages."""

    def stop(self) -> None:
        """End the traffic."""


class ClusterHandle(Protocol):
    """The cluster that a world acts on: its second argument."""

    @property
    def nodes(self) -> Sequence[WorkerHandle]:
        """All workers, by rank."""

    @property
    def links(self) -> Sequence[LinkHandle]:
        """All links, as the topology lists them."""

    def node(self, name: str) -> WorkerHandle:
        """Return the worker *name*."""

    def link(self, name: str, towards: str | None = None) -> LinkHandle:
        """Return the link *name*, written a-b or b-a; with *towards*, only its direction to that end."""

    def traffic(self, source: str, target: str, rate_Bps: float = inf) -> TrafficHandle:
        """Begin a flow of at most *rate_Bps* bytes per second from node *source* to node *target*."""

    def rng(self, name: str) -> np.random.Generator:
        """Return this run's random stream *name*, which depends on the seed and the name alone."""
