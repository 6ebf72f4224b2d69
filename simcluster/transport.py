"""The interface between an algorithm and its backend. Mostly promises; every backend is held to them.

Time is asyncio's, communication is the transport's, work is the device's. An algorithm waits with `asyncio.sleep`,
`asyncio.timeout`, `asyncio.TaskGroup`, `asyncio.Event`; it moves tensors with `send` and `recv`; it computes with
`compute`. There is no `now()` or `sleep()` here: there must be only one clock.

This file must not know any backend. `simcluster.testing.check_transport` tests every promise below, on any backend.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from simcluster.payload import Message, Sendable
    from simcluster.rng import NodeRandom
    from simcluster.rounds import Rounds

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
"""Prefix of the library's own tags, which it listens for while the algorithm runs."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The demands of a piece of work on a device: floating-point operations, and bytes moved to and from its memory.

    *operators* is the number of kernels that a framework launches, each with a launch overhead. *kind* names the work,
    as in "mnist_mlp/gradient": a device may have a measured time for it.

    A product of two 512 x 512 matrices on a device of 100 GFLOP/s:

    ```python
    import simcluster
    import torch
    from simcluster import Cost, Topology


    async def multiply(node, replica):
        matrix = torch.ones(512, 512)
        cost = Cost(flops=2 * 512**3, memory_bytes=3 * 4 * 512**2, operators=1)
        await node.compute(torch.mm, matrix, matrix, cost=cost)
        node.record(step=1)


    cluster = Topology.star(2, device={"flops": "100 GFLOP/s"})
    run = simcluster.run(topology=cluster, algorithm=multiply, workload="quadratic", stop={"steps": 1})
    print(run.summary["elapsed_s"])  # 2 x 512^3 FLOP / (100 GFLOP/s) = 2.68 ms
    ```
    """

    flops: float
    memory_bytes: float = 0.0
    operators: int = 0
    kind: str = ""

    def __post_init__(self) -> None:
        if not (self.flops >= 0 and self.memory_bytes >= 0 and self.operators >= 0):
            raise ValueError(f"a cost is never negative: {self}")

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both as one piece of work; it has a kind if their kinds agree or one of them is free."""
        kinds = {cost.kind for cost in (self, other) if cost != FREE}
        return Cost(
            self.flops + other.flops,
            self.memory_bytes + other.memory_bytes,
            self.operators + other.operators,
            kinds.pop() if len(kinds) == 1 else "",
        )


FREE: Final = Cost(0.0, 0.0)
"""For work that takes no virtual time. Explicit, because free work is usually a mistake."""


class Transport(Protocol):
    """One node's view of its cluster.

    An algorithm sees its own clock, its own randomness and its own messages, never another node's finish time. A node
    that died may rejoin, and a node may join late, each as a new incarnation that starts from the beginning. It is in
    `peers` once the loss of the previous incarnation, if any, has been raised here. Messages to one incarnation never
    reach another, and messages from one are never received as another's. An exception that the algorithm raises, even
    SystemExit or another BaseException, ends only its own node, which is then dead to its peers. An exception in a task
    belongs to the algorithm once it awaits the task or has it in a TaskGroup.
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
        """This node's generators: `rng.numpy` and `rng.torch`, keyed by seed and node name.

        Other nodes, metrics and plots never draw from them. `rng.shared("name")` is a new generator that is the same on
        every node, for draws that all nodes must agree on without a message.
        """

    @property
    def peers(self) -> Sequence[int]:
        """The ranks, in order, of all other nodes that are alive as far as this node knows."""

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        """Send *content* to rank *to* under *tag*; return when it has left this node.

        - Tensors are copied before the first wait: changing them afterwards does not change what arrives.
          Tensors from simcluster.payload.lend may be sent from where they are, until this returns or raises.
        - It returns when the last byte is injected, so a slow link or a receiver that does not receive causes
          backpressure. It does not wait for the receiver to ask.
        - Messages to one rank share one ordered stream, as in one TCP connection: a large tensor delays the small
          message after it. Messages with one tag arrive in the order of their `send` calls, each at most once.
        - If cancelled, it delivers all or nothing, and frees its share of the links at once.
        - It always yields to other tasks at least once.
        - To a peer that has ended its algorithm it returns as usual: that node accepts and drops what still arrives,
          along with everything it had not received. So nothing depends on which of the two came first.

        Raises PeerLost if *to* has died, as far as this node knows, or dies while this waits; ValueError for a rank
        that does not exist or is this node's own; TypeError for an invalid rank, tag or content (see
        simcluster.payload).
        """

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        """Return the next message from *source* under *tag*; ANY matches all.

        - First come, first served: of the matching messages the first to arrive, of the matching receivers the first to
          call.
        - If cancelled (also by `asyncio.timeout`), it loses no message: a later recv gets it.
        - It always yields to other tasks at least once.

        Raises PeerLost if *source* is gone, dead or done, and no message from it is left to match; the reason of a peer
        that ended its algorithm is simcluster.errors.ENDED. With source=ANY, each peer's death is raised once, by one
        pending or later recv(ANY), before messages that arrive later, and the end of peers only when none is left;
        `peers` shows them from then on. Raises ValueError for a rank that does not exist or is this node's own.
        """

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        """Run *work(\\*args)* on this node's device and return its result.

        - The node's other tasks continue meanwhile: messages are received, and may be answered.
        - A device runs one piece of work at a time, in the order of the calls.
        - *work* must not touch what other tasks of this node may change before it ends.
        - On sockets it takes real time. In the simulator *cost* and the device model determine the time.
        - If cancelled while pending, it never runs. If cancelled while running, its result is dropped, and the device
          is free for the next piece at once in the simulator, and as soon as *work* returns on sockets.
        - Exceptions of *work* are raised here.

        Raises TypeError if *work* is not a plain function, or *cost* not a Cost.
        """

    def record(self, *, step: int, **metrics: float) -> None:
        """Record metrics for the run folder (loss=..., staleness=...) under the node's name and time. Takes no time.

        Rank 0's call also marks the moments at which the experiment may evaluate its replica, off the clock.
        """


class OptionalVerbs(Protocol):
    """Verbs that a transport may have on top of the interface, each or none: shortcuts, with the results of the others.

    The library takes those that are there. An algorithm has no need to; `Forwarding` hides them.
    """

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """Send to rank *to* and receive from rank *source* at the same time, without a task for each.

        Fails as soon as either half does: see simcluster.collectives.exchange.
        """

    def land(self, source: int, tag: str, place: Tensor) -> Callable[[], None] | None:
        """Receive the tensor of the next message from *source* under *tag* into *place*, if dtype and shape are equal.

        Returns None if that message is here already, or on its way; else a function that gives *place* back: what has
        come there and has not been received is then moved.
        """

    async def ask(self, to: int, tag: str, content: Sendable, answer: str) -> Message:
        """Send to rank *to* under *tag*, then receive from it under *answer*."""

    async def gather(self, tag: str, most: int, into: list[Message]) -> None:
        """Receive messages from any ranks under *tag*: at least one, *most* if nothing else happens.

        They are *into* that list as they arrive, also where this raises or is cancelled.
        """

    def send_each(
        self, to: Sequence[int], tag: str, content: Sendable, over: Callable[[int, bool], object]
    ) -> Coroutine[Any, Any, None] | None:
        """Return what sends to each of the ranks *to*, as a task for each would; None if only tasks can.

        *over* is called with each rank as its message has left or the rank is lost, and with whether it is lost.
        """

    async def rounds_ahead(self, rounds: Rounds) -> int:
        """Return, when they are over, how many of the first *rounds* need not be done: 0 if any doubt is left.

        Only for a transport whose process holds all ranks: what they send has then been received, without messages.
        """
