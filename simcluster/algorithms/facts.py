"""Facts: all that is known of an algorithm before it runs, stated by a decorator on its page's function.

@Facts(copies=diloco_copies, in_step=True)
async def diloco(node, replica, ...): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from simcluster.workloads import Replica

Settings = Mapping[str, Any]
Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])

_MARK = "__facts__"


class Shares(NamedTuple):
    """The shares of a whole model's weights, gradients and optimizer state that a rank keeps."""

    weights: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0


def always(_: Settings) -> bool:
    return True


def never(_: Settings) -> bool:
    return False


@dataclass(frozen=True)
class Facts:
    """Facts about an algorithm with given settings. The defaults hold for a user's own, except that it may be in step.

    *copies*: copies of the trainable parameters, the size of gradients, that a rank holds at once besides a replica, at
    the most crowded moment; None if unknown. Messages are counted where they are held: a send holds a frozen copy
    until it has left, a message that arrived is held until used. *shares*: of the model, at least and on average.

    *world*, *cut*: raise UsageError if the settings do not fit the world size, or the replica's model cannot be cut for
    it. The algorithm raises the same when it runs.

    *exact*: whether a resumed run ends with the bits of one that never stopped; if not, training continues. *stays*:
    why it cannot resume with another number of ranks; empty if it can. *whole*: whether rank 0 has a whole model at
    every step. *spares*: which ranks the others continue without, so that a checkpoint may have an older part of
    theirs: all except the server, any of them, or none where the parts of one step belong together. *in_step*: see
    `simcluster.regroup.in_step`.
    """

    copies: Callable[[int, int, Settings], float] | None = None
    shares: Callable[[int, Settings], Shares] = lambda size, settings: Shares()
    world: Callable[[int, Settings], object] = lambda size, settings: None
    cut: Callable[[Replica, int, Settings], object] | None = None
    exact: Callable[[Settings], bool] = always
    stays: Callable[[Settings], str] = lambda settings: ""
    whole: Callable[[Settings], bool] = always
    spares: Literal["", "workers", "any"] = ""
    in_step: bool = False

    def __call__(self, algorithm: Algorithm) -> Algorithm:
        """State these facts of *algorithm*, as a decorator does."""
        setattr(algorithm, _MARK, self)
        return algorithm

    def why_it_stays(self, settings: Settings) -> str:
        """Return why the algorithm cannot resume with another number of ranks; empty if it can."""
        if why := self.stays(settings):
            return why
        if settings.get("compression", "none") != "none":
            return "what compression left out is kept by each rank, for as many ranks"
        return ""

    def spared(self, size: int, settings: Settings) -> range:
        """Return the ranks, of *size*, that the others continue without."""
        if not self.spares or self.why_it_stays(settings):
            return range(0)
        return range(1 if self.spares == "workers" else 0, size)


def facts_of(algorithm: object) -> Facts:
    """Return the facts stated of *algorithm*; of a function without any, and of None, the defaults."""
    found = getattr(algorithm, _MARK, None)
    return found if isinstance(found, Facts) else Facts()
