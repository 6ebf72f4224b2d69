"""The progress of a replica: its next batch, and the state that an algorithm keeps in checkpoints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from simcluster.compute import HOST
from simcluster.compute.at_work import is_at_work
from simcluster.errors import Left
from simcluster.process.places import own_place
from simcluster.workloads.progress.ledger import Ledger


class Keeper(Protocol):
    """Keeper of a replica's checkpoints: see `Progress.checkpoint`."""

    def due(self, step: int) -> bool: ...

    async def keep(
        self, step: int, batches: int, places: Sequence[int] | None, loose: bool, kept: Mapping[str, Any]
    ) -> None: ...


class StepMemory(Protocol):
    """Memory of a replica's last steps: see simcluster.regroup."""

    def remember(self, step: int, batches: int, apart: int, kept: Mapping[str, Any]) -> None: ...

    async def reached(self, step: int) -> None: ...


class Progress:
    """The part of a Replica that a resumed run starts from.

    *done*: the number of its batches in the initial weights; 0 unless the run resumes from a checkpoint. *at*: the step
    of that checkpoint. *everybodys*: *done* of each rank; empty at the start of a run. *is_to_leave*: whether this rank
    was asked to leave the run. *drawn_samples* counts the samples of the batches drawn here since the start.
    """

    done: int = 0
    at: int = 0
    everybodys: Sequence[int] = ()
    keeper: Keeper | None = None
    memory: StepMemory | None = None
    is_to_leave: Callable[[], bool] | None = None
    computes: bool
    device = HOST
    """Where the weights and everything computed from them are."""
    drawn_samples: int = 0
    settle_statistics: Callable[[], None] | None = None
    """Blends in what has come of running statistics: see simcluster.compute.running."""

    @cached_property
    def ledger(self) -> Ledger:
        """The record of what became of the batches drawn here."""
        return Ledger()

    @cached_property
    def outside(self) -> Counter[tuple[str, str]]:
        """The calls of work outside `node.compute`, which took no time: (method, "file:line (function)") -> number."""
        return Counter()

    def note_work(self, method: str) -> None:
        """Note that *method*, which is work for the device, is being called."""
        if not is_at_work():
            self.outside[method, own_place(sys._getframe(1))] += 1

    @cached_property
    def kept(self) -> dict[str, Any]:
        """The state that the algorithm kept, by its names."""
        return {}

    def done_by(self, rank: int) -> int:
        """Return how many batches of *rank* the run begins with: 0, unless it resumes from a checkpoint."""
        return self.everybodys[rank] if self.everybodys else 0

    def restored(self, **initial: Any) -> Any:
        """Return the values of *initial* as restored from the checkpoint, or unchanged if the run does not resume.

        Several come as a tuple, in the order given. Stateful objects (a codec, a mean) are filled and returned, once:
        what they were filled with is no longer held.
        Weights, optimizer, generators and the position in the batches are already restored.
        """
        kept = self.kept
        found = []
        for name, value in initial.items():
            found.append(_filled(value, kept[name]) if name in kept else value)
            if _is_stateful(value):
                kept.pop(name, None)
        return found[0] if len(found) == 1 else tuple(found)

    def is_due(self, step: int) -> bool:
        """Whether `checkpoint` at *step* will keep a checkpoint: for work that only a checkpoint needs."""
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
        """Mark the end of *step*, a point at which the run may be checkpointed and resumed. At most points nothing is
        kept.

        A checkpoint holds all ranks at one step, so all must call this at the same steps. *loose*: ranks are not in
        step; rank 0's checkpoint stands for the run, with what the others kept last. *kept*: what a rank needs besides
        weights, optimizer and generators, by the names that `restored` uses: tensors, numbers, strings, lists and dicts
        of them, codecs. *batches*: the number of this rank's batches in the weights, by default *step*. *places*: the
        parameters that this rank is responsible for, by default all.

        *under_way* is kept like *kept*, but not in memory, from where a group that loses a rank continues without
        waiting (simcluster.regroup): there the state is that after step *landed*, by default *step*, and nothing is
        remembered unless *landed* has advanced. *apart*: the number of remembered steps beyond one by which ranks may
        differ.

        Raises Left if this rank is to leave the run: at this point it has nothing unfinished.
        """
        batches = step if batches is None else batches
        if self.settle_statistics is not None:
            self.settle_statistics()
        if self.computes:
            self.ledger.settle(batches)
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
    """Return whether *value* is filled in place: an object with a state, or a list with some."""
    parts = value if isinstance(value, list) else [value]
    return any(hasattr(part, "load_checkpoint_state") for part in parts)


def _filled(value: Any, saved: Any) -> Any:
    """Return *saved*, loaded into the stateful parts of *value*."""
    if not _is_stateful(value):
        return saved
    if isinstance(value, list):
        return [_filled(part, of_it) for part, of_it in zip(value, saved, strict=True)]
    value.load_checkpoint_state(saved)
    return value
