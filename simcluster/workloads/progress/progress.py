"""The progress of a replica: the batches that are done, and the state that its algorithm keeps in
checkpoints.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from simcluster.compute import HOST
from simcluster.compute.at_work import is_at_work
from simcluster.errors import Left
from simcluster.process.own_frames import own_place
from simcluster.workloads.progress.ledger import Ledger

GAIN = "stop.gain"
"""The name of `Progress.gain` in checkpoints; no variable of an algorithm has a dot in its name."""


class Keeper(Protocol):
    """The keeper of a replica's checkpoints. See `Progress.checkpoint`."""

    def due(self, step: int) -> bool: ...

    async def keep(
        self, step: int, batches: int, places: Sequence[int] | None, loose: bool, kept: Mapping[str, Any]
    ) -> None: ...


class StepMemory(Protocol):
    """The memory of a replica's last steps. See simcluster.regroup."""

    def remember(self, step: int, batches: int, apart: int, kept: Mapping[str, Any]) -> None: ...

    async def reached(self, step: int) -> None: ...


class Progress:
    """The part of a Replica that knows where a resumed run starts.

    *done*: the number of the replica's batches that are in the initial weights; 0 unless the run
    resumes from a checkpoint. *at*: the step of that checkpoint. *everybodys*: the value of *done*
    for each rank; empty unless the run resumes. *is_to_leave*: whether this rank was asked to leave
    the run. *on_step*: called at the end of each step of `steps`. *drawn_samples* counts the
    samples that this rank has drawn since the start. *decide*: called before a round's checkpoint,
    and may make its step the last of *steps*; then *ended_early*. *gain*: [the lowest held-out loss,
    the number of evaluations since then] if `stop.patience` decides.
    """

    done: int = 0
    at: int = 0
    everybodys: Sequence[int] = ()
    keeper: Keeper | None = None
    memory: StepMemory | None = None
    decide: Callable[[int], Awaitable[None]] | None = None
    gain: Any = None
    steps: int
    ended_early = False
    is_to_leave: Callable[[], bool] | None = None
    on_step: Callable[[int], None] = staticmethod(lambda step: None)
    computes: bool
    device = HOST
    """The device of the weights and of everything computed from them."""
    drawn_samples: int = 0
    settle_statistics: Callable[[], None] | None = None
    """A function that blends in the running statistics received so far. See
    simcluster.compute.running.
    """

    @cached_property
    def ledger(self) -> Ledger:
        """The record of the fates of this rank's batches."""
        return Ledger()

    @cached_property
    def outside(self) -> Counter[tuple[str, str]]:
        """(method, "file:line (function)") -> the number of calls of this work outside
        `node.compute`, where it takes no virtual time.
        """
        return Counter()

    def note_work(self, method: str) -> None:
        """Note a call of *method*, which is work for the device, if it happens outside
        `node.compute`.
        """
        if not is_at_work():
            self.outside[method, own_place(sys._getframe(1))] += 1

    @cached_property
    def kept(self) -> dict[str, Any]:
        """Name -> value of the algorithm's state that was restored from the checkpoint."""
        return {}

    def done_by(self, rank: int) -> int:
        """Return the number of *rank*'s batches that are in the initial weights. It is 0 unless the
        run resumes from a checkpoint.
        """
        return self.everybodys[rank] if self.everybodys else 0

    def restored(self, **initial: Any) -> Any:
        """Return the values of *initial* as restored from the checkpoint, or unchanged if the run does not resume.

        Several values are returned as a tuple, in the order of the arguments. For a stateful object
        (a codec, a mean), the saved state is loaded into the object, which is returned. This works
        only once, since the saved state is then released. The weights, the optimizer, the
        generators and the position in the batches are already restored.
        """
        kept = self.kept
        found = []
        for name, value in initial.items():
            found.append(_filled(value, kept[name]) if name in kept else value)
            if _is_stateful(value):
                kept.pop(name, None)
        return found[0] if len(found) == 1 else tuple(found)

    def is_due(self, step: int) -> bool:
        """Return whether `checkpoint` at *step* will keep a checkpoint. If not, work that only a
        checkpoint needs can be skipped.
        """
        return self.keeper is not None and self.keeper.due(step)

    async def checkpoint(
        self,
        step: int,
        *,
        batches: int | None = None,
        places: Sequence[int] | None = None,
        loose: bool = False,
        landed: int | None = None,
        apart: int = 0,
        under_way: Any = None,
        **kept: Any,
    ) -> None:
        """Mark the end of *step*, where the run may be checkpointed and resumed.

        A checkpoint is kept only if one is due.

        A checkpoint holds the state of all ranks at the same step, so all ranks must call this at
        the same steps. *loose*: whether ranks are at different steps; if so, rank 0's checkpoint
        stands for the run, together with the last state of each other rank. *kept*: the algorithm's
        state besides the weights, the optimizer and the generators, under the names that `restored`
        uses; values are tensors, numbers, strings, lists and dicts of these, and codecs. *batches*:
        the number of this rank's batches in the weights, by default *step*. *places*: the indices
        of the parameters that this rank saves, by default all.

        The last steps are also remembered in memory, so that a group that loses a rank can continue
        from there without waiting (simcluster.regroup). The remembered state is that after step
        *landed*, by default *step*; no state is added unless *landed* has advanced. *under_way* is
        kept in checkpoints like *kept*, but not in memory. *apart*: the number of steps beyond one
        by which ranks may differ; that many more steps are remembered.

        Raise Left if this rank was asked to leave the run. At this point it has no unfinished work.
        """
        batches = step if batches is None else batches
        if self.settle_statistics is not None:
            self.settle_statistics()
        if self.computes:
            self.ledger.settle(batches)
        if self.gain is not None:
            kept[GAIN] = self.gain
        if self.memory is not None:
            self.memory.remember(*((step, batches) if landed is None else (landed, landed)), apart, kept)
        if self.computes and self.keeper is not None:
            whole = kept if under_way is None else {**kept, "under_way": under_way}
            await self.keeper.keep(step, batches, places, loose, whole)
        if self.memory is not None:
            await self.memory.reached(step)
        if self.is_to_leave is not None and self.is_to_leave():
            raise Left(step)


def _is_stateful(value: Any) -> bool:
    """Return whether *value* is restored in place, since it is a stateful object or a list that
    contains one.
    """
    parts = value if isinstance(value, list) else [value]
    return any(hasattr(part, "load_checkpoint_state") for part in parts)


def _filled(value: Any, saved: Any) -> Any:
    """Load *saved* into the stateful parts of *value* and return the result; return *saved* itself
    if there are no such parts.
    """
    if not _is_stateful(value):
        return saved
    if isinstance(value, list):
        return [_filled(part, of_it) for part, of_it in zip(value, saved, strict=True)]
    value.load_checkpoint_state(saved)
    return value
