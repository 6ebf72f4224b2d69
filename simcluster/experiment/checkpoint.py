"""The block `checkpoint` of an experiment: how often the run is kept, and how much of that stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from simcluster.checkpoints.store import Best
from simcluster.documents.reading import Reading
from simcluster.errors import nearest
from simcluster.limits import MOST_STEPS
from simcluster.workloads.workload import Numerics

KEYS = ("every", "keep", "best")
BEST = ("accuracy", "loss")


@dataclass(frozen=True)
class CheckpointSettings:
    """A checkpoint *every* so many steps, and at the last one; the *keep* newest stay, and the *best* by validation."""

    every: int
    keep: int = 3
    best: Best | None = None

    @property
    def block(self) -> dict[str, Any]:
        """As a file would have it."""
        return {"every": self.every, "keep": self.keep} | ({"best": self.best} if self.best else {})


def read_checkpoint(
    reading: Reading, algorithm: Callable[..., Any] | None, settings: Mapping[str, Any], numerics: Numerics
) -> CheckpointSettings | None:
    """The block, or None if there is none."""
    from simcluster.algorithms.facts import facts_of

    block = reading.document.data.get("checkpoint")
    if block is None:
        return None
    if not isinstance(block, dict):
        reading.bad(("checkpoint",), "a mapping: every, keep, best")
        return None
    for key in block:
        if key not in KEYS:
            reading.bad(("checkpoint", key), nearest(str(key), KEYS), "unknown key", at_key=True)
    for key in ("every", "keep"):
        if (key == "every" or key in block) and not _is_count(block.get(key)):
            what = "a whole number of steps" if key == "every" else "a whole number"
            reading.bad(("checkpoint", key), f"{what}, from 1 to {MOST_STEPS}")
    best = block.get("best")
    if best is not None and best not in BEST:
        reading.bad(("checkpoint", "best"), " or ".join(BEST))
    elif best is not None and not facts_of(algorithm).whole(settings):
        reading.bad(("checkpoint", "best"), "no best: rank 0 of this algorithm has no whole model that could be judged")
    if numerics == "none":
        reading.bad(("checkpoint",), "no checkpoints: with numerics none there are no values to keep")
    every, keep = block.get("every"), block.get("keep", 3)
    return CheckpointSettings(every, keep, best) if _is_count(every) and _is_count(keep) else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_STEPS
