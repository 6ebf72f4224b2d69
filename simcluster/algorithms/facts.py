"""Facts: everything known about an algorithm before it runs, stated by a decorator on its function.

@Facts(copies=diloco_copies, in_step=True)
async def diloco(node, replica, ...): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from simcluster.compute import Travel
from simcluster.topology import Topology
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes

Settings = Mapping[str, Any]
Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])

_MARK = "__facts__"


class StateShares(NamedTuple):
    """The shares of a whole model's weights, gradients and optimizer state that one rank holds."""

    weights: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0


def never(_: Settings) -> bool:
    return False


def always(_: Settings) -> bool:
    return True


def by_samples(_: Settings) -> str:
    """Return no reason for equal batches: averages weigh by samples."""
    return ""


def all_reduce_messages(vector: float, size: int, schedule: str) -> float:
    """Return the size of the messages that a rank holds in an all-reduce of a *vector* of this size."""
    if schedule == "naive":
        return 2.0 * (size - 1) * vector  # one from every peer, and a frozen one to every peer
    if schedule == "ring":
        return 2.0 * vector / size if size > 1 else 0.0  # a chunk out and a chunk in
    return 2.0 * vector  # at most a whole one out and a whole one in


@dataclass(frozen=True)
class Facts:
    """Facts about an algorithm under given settings. The defaults fit a user's own, `in_step` aside.

    *copies*: copies of the trainable parameters (the size of gradients) that a rank holds besides its replica, at peak;
    None if unknown. Messages count where they are held: a send holds a frozen copy until it has left, a received
    message is held until used. *phases*, in place of *copies* where ranks hold parts of the model: what each rank
    holds in each phase, from a replica without values, the settings, the memory that a whole model takes, and whether
    processes hold parts, too. *shares*: the shares of the model that a rank holds, at least and on average.

    *world*, *cut*: raise UsageError if the settings do not fit the world size, or if the replica's model cannot be
    split for it. The algorithm raises the same when it runs. *layered*: whether it uses the model layer by layer.

    *exact*: whether a resumed run ends bit-identical to an uninterrupted one; if not, training merely continues.
    *stays*: why it cannot resume with a different world size; empty if it can. *whole*: whether rank 0 holds a whole
    model at every step. *spares*: the ranks that the others can lose, so a checkpoint may hold older state for
    them: all except the server, any, or none if one step's state must stay together. *in_step*: see
    `simcluster.regroup.in_step`.

    *apart*: how many more steps than another rank one may have ended, in an algorithm that runs in step.

    *places*: chooses the ranks of its stages for `order: auto`; None if there is no such setting. Its last argument:
    whether all ranks must hold one. *evenly*: why all batches must have one size; empty if averages weigh by samples.
    *idle*: whether a rank, out of a world size, takes no part. *rests*: whether each rank except 0 that starts with the
    run does nothing until rank 0 first sends to it, and ends with rank 0: a simulator need not start it before.
    *working*: the most ranks on which anything happens, out of a world size, in a run of that many steps in which no
    rank is lost. *keeps_shapes*: whether it changes no tensor's shape in place: replicas without values then share
    their tensors. *has_model*: whether it trains the replica that it is given. *running*: how running statistics travel
    with its messages (simcluster.compute.running).
    """

    copies: Callable[[int, int, Settings], float] | None = None
    phases: Callable[[Replica, Settings, MemoryBytes, bool], list[list[MemoryBytes]]] | None = None
    shares: Callable[[int, Settings], StateShares] = lambda size, settings: StateShares()
    world: Callable[[int, Settings], object] = lambda size, settings: None
    cut: Callable[[Replica, int, Settings], object] | None = None
    layered: Callable[[Settings], bool] = never
    exact: Callable[[Settings], bool] = lambda settings: True
    stays: Callable[[Settings], str] = lambda settings: ""
    whole: Callable[[Settings], bool] = lambda settings: True
    spares: Literal["", "workers", "any"] = ""
    in_step: bool = False
    apart: Callable[[Settings], int] = lambda settings: int(settings.get("staleness", 0))
    places: Callable[[Replica, Settings, Topology, bool], Sequence[int]] | None = None
    evenly: Callable[[Settings], str] = lambda settings: "its averages do not weigh by samples"
    idle: Callable[[int, int, Settings], bool] = lambda rank, size, settings: False
    rests: Callable[[Settings], bool] = never
    working: Callable[[int, int, Settings], int] = lambda size, steps, settings: size
    keeps_shapes: bool = False
    has_model: bool = True
    running: Travel = "peers"

    def __call__(self, algorithm: Algorithm) -> Algorithm:
        """Attach these facts to *algorithm*, as its decorator."""
        setattr(algorithm, _MARK, self)
        return algorithm

    def why_it_stays(self, settings: Settings) -> str:
        """Return why the algorithm cannot resume with a different world size; empty if it can."""
        if why := self.stays(settings):
            return why
        if settings.get("compression", "none") != "none":
            return "what compression left out is kept by each rank, for as many ranks"
        return ""

    def parts(self, size: int, settings: Settings) -> bool:
        """Return whether each of *size* ranks holds less than a whole model, its gradients and its optimizer."""
        return min(self.shares(size, settings)) < 1.0

    def spared(self, size: int, settings: Settings) -> range:
        """Return the ranks, out of *size*, that the others can lose."""
        needs_all = settings.get("output") == "mean" or settings.get("consensus_every")  # the mean of all ranks
        if not self.spares or self.why_it_stays(settings) or needs_all:
            return range(0)
        return range(1 if self.spares == "workers" else 0, size)


def facts_of(algorithm: object) -> Facts:
    """Return the facts stated about *algorithm*; the defaults for None and for functions without any."""
    found = getattr(algorithm, _MARK, None)
    return found if isinstance(found, Facts) else Facts()


def in_step(algorithm: Algorithm) -> Algorithm:
    """Declare that ranks run *algorithm* in step, each with a whole model, and that its loop is `steps` or `rounds`.

    That is: no rank ends a step before every rank has begun it; a message is received in the step that sends it, unless
    a `Lag` holds it in flight; any number of ranks can resume from a checkpoint; every sum is divided by `node.size`;
    every receive names its tag. When a rank is lost, leaves or joins, the algorithm is cancelled and restarted with the
    new ranks and a replica that resumes from the last step that all of them have ended.
    """
    return replace(facts_of(algorithm), in_step=True)(algorithm)
