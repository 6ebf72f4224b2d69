"""Facts: everything known about an algorithm before it runs, stated by a decorator on its function.

@Facts(copies=diloco_copies, in_step=True)
async def diloco(node, replica, ...): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from simcluster.compression.kinds import NONE, compressor
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
    """Return an empty reason for `Facts.evenly`: the algorithm weights averages by samples, so
    batches may differ.
    """
    return ""


def all_reduce_messages(vector: float, size: int, schedule: str, shares: Sequence[float] = ()) -> float:
    """Return the size of the messages that a rank holds at once in an all-reduce of a vector of
    size *vector*. *shares*: those of `bandwidth_aware`.
    """
    if schedule == "bandwidth_aware":
        # All shares leave, and the own one arrives from every peer and leaves to every peer.
        return vector * (1.0 + 2.0 * (size - 1) * max(shares) / sum(shares))
    if schedule == "naive":
        # One vector arrives from every peer, and a frozen copy is sent to every peer.
        return 2.0 * (size - 1) * vector
    if schedule == "ring":
        return 2.0 * vector / size if size > 1 else 0.0  # one chunk out and one chunk in
    return 2.0 * vector  # at most one whole vector out and one in


def feeds_back(settings: Settings) -> bool:
    """Return whether compression keeps its error, in float64."""
    kind = settings.get("compression", NONE)
    found = compressor(kind) if isinstance(kind, (str, Mapping)) else kind
    return found is not None and found.feeds_back


@dataclass(frozen=True)
class Facts:
    """Facts about an algorithm under given settings.

    The defaults suit a user's own algorithm that does not run in step.

    *copies*: the number of copies of the trainable parameters (each the size of the gradients) that
    a rank holds at peak besides its replica; None if unknown. Messages count where they are held: a
    send holds a frozen copy until it has left, a received message is held until used. *phases*
    replaces *copies* where ranks hold parts of the model. It takes a replica without values, the
    settings, the memory of a whole model, and whether processes, too, hold only their parts; it
    returns each rank's memory in each phase. *shares*: the shares of the model that a rank holds on
    average.

    *world*, *cut*: raise UsageError if the settings do not fit the world size, or if the replica's
    model cannot be split for it. The algorithm raises the same error when it runs. *layered*:
    whether the algorithm uses the model layer by layer.

    *exact*: whether a resumed run ends bit-identical to an uninterrupted one; if not, it merely
    continues training. *stays*: why it cannot resume with a different world size; empty if it can.
    *whole*: whether rank 0 holds a whole model at every step. *spares*: the ranks whose loss the
    others survive, so a checkpoint may hold older state for them: `workers` (all except the
    server), `any`, or empty if all ranks' state must come from the same step. *in_step*: see
    `simcluster.regroup.in_step`.

    *apart*: in an algorithm that runs in step, the number of steps by which one rank can be ahead
    of another. *runs_on*: why a run cannot end early, after any of its steps; empty if it can.

    *places*: a function that chooses the ranks of the stages for `order: auto`; None if the
    algorithm has no such setting. Its last argument says whether all ranks must hold a stage.
    *evenly*: why all batches must have the same size; empty if averages are weighted by samples.
    *joins*: whether every step of an optimizer takes the joined batch of all ranks that train.
    *idle*: whether a rank takes no part; arguments are the rank, the world size and the settings.
    *rests*: whether every rank (except rank 0) that starts with the run does nothing until rank 0
    first sends to it, and ends with rank 0. The simulator then need not start such a rank earlier.
    *working*: the maximum number of ranks that do anything if no rank is lost; arguments are the
    world size, the number of steps and the settings. *keeps_shapes*: whether the algorithm never
    changes a tensor's shape in place; if so, replicas without values share their tensors.
    *has_model*: whether the algorithm trains its replica. *running*: how running statistics travel
    with its messages (see simcluster.compute.running). *float64*: whether the algorithm computes in
    float64, which Apple's MPS lacks.
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
    runs_on: str = ""
    places: Callable[[Replica, Settings, Topology, bool], Sequence[int]] | None = None
    evenly: Callable[[Settings], str] = lambda settings: "its averages do not weigh by samples (see Facts.evenly)"
    joins: Callable[[Settings], bool] = never
    idle: Callable[[int, int, Settings], bool] = lambda rank, size, settings: False
    rests: Callable[[Settings], bool] = never
    working: Callable[[int, int, Settings], int] = lambda size, steps, settings: size
    keeps_shapes: bool = False
    has_model: bool = True
    running: Travel = "peers"
    float64: Callable[[Settings], bool] = feeds_back

    def __call__(self, algorithm: Algorithm) -> Algorithm:
        """Attach these facts to *algorithm* and return it."""
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
        """Return whether a rank, out of *size*, holds only a part of the weights, the gradients or
        the optimizer state.
        """
        return min(self.shares(size, settings)) < 1.0

    def spared(self, size: int, settings: Settings) -> range:
        """Return the ranks, out of *size*, whose loss the others survive."""
        # Each of these settings averages over all ranks.
        needs_all = settings.get("output") == "mean" or settings.get("consensus_every")
        if not self.spares or self.why_it_stays(settings) or needs_all:
            return range(0)
        return range(1 if self.spares == "workers" else 0, size)


def facts_of(algorithm: object) -> Facts:
    """Return the facts attached to *algorithm*, or the defaults if there are none."""
    found = getattr(algorithm, _MARK, None)
    return found if isinstance(found, Facts) else Facts()


def in_step(algorithm: Algorithm) -> Algorithm:
    """Declare that ranks run *algorithm* in step, each with a whole model, and that its loop is `steps` or `rounds`.

    This means that no rank ends a step before every rank has begun it; that a message is received
    in the step that sends it, unless a `Lag` holds it in flight; that any number of ranks can
    resume from a checkpoint; that every sum is divided by `node.size`; and that every receive names
    its tag. When a rank is lost, leaves or joins, the algorithm is cancelled and restarted with the
    new ranks and a replica that resumes from the last step that all of them have finished.
    """
    return replace(facts_of(algorithm), in_step=True)(algorithm)
