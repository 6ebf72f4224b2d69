"""The interface between an algorithm and its backend. Most of it is promises that every backend
must keep.

Time is asyncio's, communication is the transport's, work is the device's. An algorithm waits with
`asyncio.sleep`, `asyncio.timeout`, `asyncio.TaskGroup` and `asyncio.Event`. It moves tensors with
`send` and `recv`, and computes with `compute`. There is no `now()` or `sleep()` here, since there
must be only one clock.

This file must not depend on any backend. `simcluster.testing.check_transport` tests every promise
below on any backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from simcluster.payload import Message, Sendable
    from simcluster.rng import NodeRandom
    from simcluster.shortcuts import Shortcuts

T = TypeVar("T")


class Any_:
    """The type of ANY, which matches every source or every tag."""

    _only: Any_ | None = None

    def __new__(cls) -> Any_:
        cls._only = cls._only or super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "ANY"


ANY = Any_()

OWN_TAGS = "simcluster:"
"""Prefix of tags that the library reserves for its own messages."""


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
        """Return the cost of both pieces of work as one.

        It has a kind if both have the same kind, or if one of them is free.
        """
        kinds = {cost.kind for cost in (self, other) if cost != FREE}
        return Cost(
            self.flops + other.flops,
            self.memory_bytes + other.memory_bytes,
            self.operators + other.operators,
            kinds.pop() if len(kinds) == 1 else "",
        )


FREE = Cost(0.0, 0.0)
"""The cost of work that takes no virtual time. It must be passed explicitly, because free work is
usually a mistake.
"""


class Transport(Protocol):
    """One node's view of its cluster.

    An algorithm sees its own clock, its own randomness and its own messages, never another node's
    finish time. A node that died may rejoin, and a node may join late, each as a new incarnation
    that starts from the beginning. The new incarnation is in `peers` once the loss of the previous
    one, if any, has been raised here. Messages to one incarnation never reach another, and messages
    from one are never received as another's. If the algorithm raises an exception, even SystemExit
    or another BaseException, only its own node ends, and is then dead to its peers. An exception in
    a task counts as the algorithm's once the algorithm awaits the task or has it in a TaskGroup.
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

    @property
    def fast(self) -> Shortcuts | None:
        """Shortcuts for the library's collectives; None if there are none. Algorithms do not need
        them.
        """

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        """Send *content* to rank *to* under *tag*; return when it has left this node.

        - Tensors are copied before the first wait: changing them afterwards does not change what
          arrives. Tensors passed to simcluster.payload.lend may be sent without a copy, so they must
          not change until this returns or raises.
        - It returns when the last byte is injected, so a slow link or a receiver that does not
          receive causes backpressure. It does not wait for the receiver to ask.
        - Messages to one rank share one ordered stream, as in one TCP connection: a large tensor
          delays the small message after it. Messages with one tag arrive in the order of their
          `send` calls, each at most once.
        - If cancelled, it delivers all or nothing, and frees its share of the links at once.
        - It always yields to other tasks at least once.
        - To a peer that has ended its algorithm it returns as usual: that node accepts and drops
          messages that still arrive, along with all that it had not received. So nothing depends on
          whether the message or the end came first.

        Raise PeerLost if *to* has died, as far as this node knows, or dies while this waits; ValueError for a rank
        that does not exist or is this node's own; TypeError for an invalid rank, tag or content (see
        simcluster.payload).
        """

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        """Return the next message from *source* under *tag*; ANY matches all.

        - First come, first served: of several matching messages, this returns the first to arrive;
          of several matching receivers, the first to call gets the message.
        - If cancelled (also by `asyncio.timeout`), it loses no message: a later recv gets it.
        - It always yields to other tasks at least once.

        Raise PeerLost if *source* has died or ended, and no message from it is left to match; the
        reason of a peer that ended its algorithm is simcluster.errors.ENDED. With source=ANY, each
        peer's death is raised once, by one pending or later recv(ANY), before messages that arrive
        later; the end of a peer is raised only when no peer is left. `peers` omits the peer from
        then on. Raise ValueError for a rank that does not exist or is this node's own.
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

        Raise TypeError if *work* is not a plain function, or *cost* not a Cost.
        """

    def record(self, *, step: int, **metrics: float) -> None:
        """Record metrics, such as loss=..., for the run folder, under the node's name and time.

        This takes no time. Rank 0's call also marks the moments at which the experiment may
        evaluate its replica, off the clock.
        """
