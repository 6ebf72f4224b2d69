"""The interface between an algorithm and whatever it runs on. Mostly promises; both backends are held to them.

Time is asyncio's, space is the transport's, work is the device's. An algorithm waits with `asyncio.sleep`,
`asyncio.timeout`, `asyncio.TaskGroup`, `asyncio.Event`; it moves tensors with `send` and `recv`; it computes with
`compute`. There is no `now()` and no `sleep()` here: a second clock would be a second truth.

This file must not know a backend. `simcluster.testing.check_transport` runs every promise below as a test; whoever
writes another backend can run it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from simcluster.payload import Message, Sendable
    from simcluster.rng import NodeRandom

T = TypeVar("T")


class Any_:
    """The type of ANY: matches every source, or every tag."""

    _only: Any_ | None = None

    def __new__(cls) -> Any_:
        cls._only = cls._only or super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = Any_()

OWN_TAGS: Final = "simcluster:"
"""What tags of the library's own words begin with, for which it listens while an algorithm does something else."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work asks of a device: floating-point operations, and bytes moved to and from its memory.

    *operators* is how many kernels a framework starts for it, each of which takes a device some time to set going.
    *kind* names the work, as in "mnist_mlp/gradient": a device may have been measured at it.
    """

    flops: float
    memory_bytes: float = 0.0
    operators: int = 0
    kind: str = ""

    def __post_init__(self) -> None:
        if not (self.flops >= 0 and self.memory_bytes >= 0 and self.operators >= 0):
            raise ValueError(f"a cost is never negative: {self}")

    def __add__(self, other: Cost) -> Cost:
        """Both as one piece of work: of their kind, if they are of one kind or one of them is free."""
        kinds = {cost.kind for cost in (self, other) if cost != FREE}
        return Cost(
            self.flops + other.flops,
            self.memory_bytes + other.memory_bytes,
            self.operators + other.operators,
            kinds.pop() if len(kinds) == 1 else "",
        )


FREE: Final = Cost(0.0, 0.0)
"""For work that is to take no virtual time. Said aloud, because time that costs nothing is usually a mistake."""


class Transport(Protocol):
    """One node's view of its cluster.

    An algorithm sees its own clock, its own randomness and its own messages, never another node's finish time.
    A node that died may come back, and one may join late, each as a new incarnation that begins from the beginning: it
    is in `peers` once the loss of the one before, if there was one, has been raised here. Nothing that was sent to one
    incarnation reaches another, nor is anything of one received as another's.
    Whatever it raises, SystemExit and other BaseExceptions included, ends its own node alone, which is then dead to its
    peers. An exception in a task of its own is its own once it awaits that task, or has it in a TaskGroup.
    """

    @property
    def rank(self) -> int:
        """0 <= rank < size. Ranks follow the order of the nodes in the topology file; switches have none."""

    @property
    def size(self) -> int:
        """The world size."""

    @property
    def name(self) -> str:
        """This node's name in the topology file."""

    @property
    def rng(self) -> NodeRandom:
        """This node's own generators: `rng.numpy` and `rng.torch`, keyed by seed and node name.

        Nobody else draws from them, so another node, metric or plot changes no draw. `rng.shared("name")` is a new
        generator that is the same on every node, for what all must draw alike without a message.
        """

    @property
    def peers(self) -> Sequence[int]:
        """Ranks other than this one that are alive, in order, as far as this node can know."""

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        """Sends *content* to rank *to* under *tag*; returns when it has left this node.

        - The tensors are copied or frozen before the first wait: changing them afterwards changes nothing that arrives.
          Those of simcluster.payload.lend may be sent from where they are, until this returns or raises.
        - It returns when the last byte is injected, so a slow link or a receiver that does not receive pushes back.
          It does not wait for the receiver to ask.
        - Messages to one rank share one ordered stream, as one TCP connection has: a large tensor delays the small
          message behind it. Messages with one tag arrive in the order of their `send` calls, each at most once.
        - Cancelled, it delivers all or nothing; what was still to be sent gives its share of the links back at once.
        - It always yields to other tasks at least once.
        - To a peer that has ended its algorithm it returns as to any other: that node takes what still comes and
          drops it, with all that it had not received. So nothing depends on which of the two came first.

        Raises PeerLost if *to* has died, as far as this node knows, or dies while this waits; ValueError for a rank
        that does not exist or is this node's own; TypeError for what is no rank, no tag, or what a message cannot carry
        (see simcluster.payload).
        """

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        """The next message from *source* under *tag*; ANY matches all.

        - First come, first served: of the messages that match, the one that arrived first; of the receivers that
          match a message, the one that called first.
        - Cancelled (also by `asyncio.timeout`), it loses no message: a later recv gets it.
        - It always yields to other tasks at least once.

        Raises PeerLost if *source* is gone, dead or done, and nothing from it is left to match; the reason of one that
        ended its algorithm is simcluster.errors.ENDED. With source=ANY, the death of each peer is raised once, at one
        waiting or later recv(ANY), and the end of a peer only when nobody is left; `peers` tells from then on. Raises
        ValueError for a rank that does not exist or is this node's own.
        """

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        """Runs *work(\\*args)* on this node's device and returns its result.

        - The node's other tasks go on meanwhile: messages are received, and may be answered.
        - A device does one piece of work at a time, in the order asked for.
        - *work* must leave alone what other tasks of this node may change before it ends.
        - On sockets it takes the time it takes. In the simulator *cost* and the device model say how long it takes.
        - Cancelled while it waits, it never runs. Cancelled while it runs, its result is dropped and the device is
          free for the next piece at once in the simulator, and as soon as *work* returns on sockets.
        - Whatever *work* raises is raised here.

        Raises TypeError if *work* is no plain function, or *cost* no Cost.
        """

    def record(self, *, step: int, **metrics: float) -> None:
        """Notes numbers for the run folder (loss=..., staleness=...) under the node's name and time. Costs nothing.

        Rank 0's call also marks the moments at which the experiment may evaluate its replica, off the clock.
        """
