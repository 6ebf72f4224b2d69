"""How far a replica is: where its batches go on, what an algorithm wants kept, and what it had kept before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from simcluster.errors import Left
from simcluster.workloads.ledger import Ledger


class Keeper(Protocol):
    """Keeps checkpoints of a replica: see `Progress.checkpoint`."""

    def due(self, step: int) -> bool: ...

    async def keep(
        self, step: int, batches: int, places: Sequence[int] | None, loose: bool, kept: Mapping[str, Any]
    ) -> None: ...


class Memory(Protocol):
    """Keeps the last steps of a replica in memory: see simcluster.regroup."""

    def remember(self, step: int, batches: int, apart: int, kept: Mapping[str, Any]) -> None: ...

    async def reached(self, step: int) -> None: ...


class Progress:
    """The part of a Replica that a resumed run begins with.

    *done* is how many of its batches are in what it begins with: 0, unless the run goes on from a checkpoint.
    *at* is the step at which that was kept. *everybodys* has *done* of each rank; it is empty at a run's beginning.
    *is_to_leave* says whether this rank was told to leave the run.
    """

    done: int = 0
    at: int = 0
    everybodys: Sequence[int] = ()
    keeper: Keeper | None = None
    memory: Memory | None = None
    is_to_leave: Callable[[], bool] | None = None
    computes: bool

    @cached_property
    def ledger(self) -> Ledger:
        """What became of the batches drawn here."""
        return Ledger()

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What the algorithm had kept under its own names."""
        return {}

    def done_by(self, rank: int) -> int:
        """Return how many batches of *rank* the run begins with: 0, unless it resumes from a checkpoint."""
        return self.everybodys[rank] if self.everybodys else 0

    def restored(self, **initial: Any) -> Any:
        """The values of *initial* as the checkpoint has them that the run goes on from; as they are, if it does not.

        Several come as a tuple, in the order given. What keeps its own state (a codec, a mean) is filled and handed
        back. Weights, optimizer, generators and the place among the batches are restored already.
        """
        found = [self._restored(name, value) for name, value in initial.items()]
        return found[0] if len(found) == 1 else tuple(found)

    def _restored(self, name: str, value: Any) -> Any:
        return _filled(value, self.kept[name]) if name in self.kept else value

    def is_due(self, step: int) -> bool:
        """Whether `checkpoint` at *step* will keep something: for what must be waited for only then."""
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
        """*step* is over: this is a moment at which the run may be kept, and go on from. At most of them nothing is.

        A checkpoint is that of all ranks at one step, so all must call it at the same ones; *loose*: where ranks do not
        go in step, rank 0's stands for the run, with what the others kept last. *kept* is what a rank must know beside
        its weights, its optimizer and its generators, by the names that `restored` has them: tensors, numbers, texts,
        lists and dicts of them, codecs. *batches* of this rank are in the weights, by default *step* of them. *places*:
        the only ones of its parameters that this rank is responsible for.

        *under_way* is kept like *kept*, but not in memory, where a group that loses a rank goes on from without waiting
        (simcluster.regroup): there all is as if the run had ended with step *landed*, by default *step*, and nothing is
        remembered if that is none since the last. *apart*: so many more of them than one a rank may be ahead of others.

        Raises Left if this rank is to leave the run: here nothing that it began is unfinished.
        """
        batches = step if batches is None else batches
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


def _filled(value: Any, saved: Any) -> Any:
    """*saved*, put into what of *value* keeps its own state."""
    if hasattr(value, "load_checkpoint_state"):
        value.load_checkpoint_state(saved)
        return value
    if isinstance(value, list) and any(hasattr(part, "load_checkpoint_state") for part in value):
        return [_filled(part, of_it) for part, of_it in zip(value, saved, strict=True)]
    return saved
