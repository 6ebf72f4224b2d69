"""Join the ranks' shards into checkpoints.

A checkpoint has all ranks' shards of one step or, if ranks are not in step, rank 0's shard and the
latest shard of every other rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simcluster.checkpoints.manifest import Cut, Manifest, RankEntry, config_sha256
from simcluster.checkpoints.restore import RestoredState
from simcluster.checkpoints.shard import Shard
from simcluster.checkpoints.store import Store
from simcluster.errors import CheckpointWarning


class Gather:
    """A writer of the checkpoints of a run of *size* ranks to *store*.

    *config* is the resolved experiment. If a rank in *spared* is lost, the other ranks continue
    without it. *admits*: whether a rank that rejoins takes part again; rank 0 never does.
    *happened_s* and *happened*: see `Manifest`.
    """

    def __init__(
        self,
        store: Store,
        config: Mapping[str, Any],
        size: int,
        *,
        spared: Container[int] = (),
        admits: bool = False,
        happened_s: float | None = None,
        happened: Sequence[Any] = (),
    ) -> None:
        self._store = store
        self._config = dict(config)
        self._size = size
        self._spared = spared
        self._admits = admits
        self._happened_s, self._happened = happened_s, list(happened)
        self._steps: dict[int, dict[int, RankEntry]] = {}
        self._judged: dict[int, dict[str, float]] = {}
        self._last: dict[int, RankEntry] = {}
        self._gone: set[int] = set()  # lost ranks, which take part again only if they are admitted
        self._without: dict[int, int] = {}  # lost rank -> the first step that all others handed in without it
        self._failed: dict[int, str] = {}
        self._due = False
        self._group, self._first_size = 0, size
        self.written: list[int] = []

    def add(self, shard: Shard, lost: Collection[int] = ()) -> None:
        """Add *shard*; the ranks *lost* had been lost when it was handed in.

        Warn if it cannot be written.
        """
        self._gone.update(lost)
        if shard.group < self._group or (not shard.group and self._is_apart(shard)):
            return  # the shard is of an earlier group, or of a rank that trains alone
        if shard.group > self._group:
            self._forget(shard.step - 1)
            self._group, self._size = shard.group, shard.size
        if shard.step in self._failed or (self.written and shard.step <= self.written[-1] and not shard.loose):
            # Other ranks' parts of this step could not be written, or a rank that rejoined repeats
            # the step.
            return
        try:
            files = {name: self._store.put(content) for name, content in shard.files.items()}
            entry = RankEntry(shard.rank, shard.step, shard.batches, shard.time_s, shard.trees, files)
            self._last[shard.rank] = entry
            if shard.judged:
                self._judged[shard.step] = dict(shard.judged)
            # Commit rank 0's shard with the others' latest, once each rank has handed one in.
            if shard.loose:
                self._due = self._due or shard.rank == 0
                if self._due and len(self._last) == self._size:
                    self._due = False
                    self._commit(self._last[0].step, self._last, "loose")
            else:
                self._together(shard.step, entry, self._out(lost))
        except OSError as error:
            self._give_up(shard.step, error)

    def _is_apart(self, shard: Shard) -> bool:
        """Return whether *shard* is of a rank that rejoined and trains alone, so that its weights
        differ from those of the other ranks.
        """
        return shard.incarnation > 0 and not (shard.rank > 0 and (self._admits or shard.loose))

    def _out(self, lost: Collection[int]) -> Collection[int]:
        """Return the ranks that a checkpoint may lack: none after the ranks have regrouped."""
        if self._group:
            return ()
        return lost if self._admits else self._gone

    def begin_again(self, step: int) -> None:
        """Forget all shards handed in after *step*, since the run resumes from the checkpoint of
        that step.
        """
        self._gone.clear()
        self._group, self._size = 0, self._first_size
        self._forget(step)

    def attempt_ended(self, time_s: float, happened: Sequence[Any]) -> None:
        """Record in every later manifest that all faults planned up to *time_s* have happened, and
        those with an entry in *happened*.
        """
        self._happened_s = max(time_s, self._happened_s or 0.0)
        self._happened += [entry for entry in happened if entry not in self._happened]

    def _forget(self, step: int) -> None:
        """Forget all shards handed in, and stop counting the checkpoints after *step* as
        written.
        """
        for table in (self._steps, self._judged, self._last, self._without):
            table.clear()
        self._due = False
        self.written = [at for at in self.written if at <= step]

    def close(self) -> None:
        """Discard the shards of incomplete checkpoints."""
        self._store.discard()

    def summary(self) -> dict[str, Any]:
        """Return the entries for summary.json: the numbers of complete and incomplete checkpoints,
        the last step, the run's id, and write failures.
        """
        incomplete = sum(1 for step in self._steps if step not in self.written and step not in self._failed)
        last_step = self.written[-1] if self.written else None
        found: dict[str, Any] = {"written": len(self.written), "last_step": last_step, "run": self._store.run}
        if incomplete:
            found["incomplete"] = incomplete
        if self._happened:
            found["happened"] = self._happened
        if self._failed:
            found["failed"] = [{"step": step, "error": error} for step, error in self._failed.items()]
        return found

    def _together(self, step: int, entry: RankEntry, lost: Container[int]) -> None:
        """Add *entry* to the checkpoint of *step*, and commit the checkpoint if it is complete.

        It is complete without a lost rank if the other ranks continue without that rank.
        """
        entries = self._steps.setdefault(step, {})
        entries[entry.rank] = entry
        self._without.pop(entry.rank, None)
        missing = [rank for rank in range(self._size) if rank not in entries]
        if not missing:
            self._commit(step, entries, "step")
        elif all(rank in lost and rank in self._last and rank in self._spared for rank in missing):
            # Wait for one more step: if a rank dies during a step, all others may still complete
            # that step and fail only in the next one.
            first = [self._without.setdefault(rank, step) for rank in missing]
            if max(first) < step:
                self._commit(step, {**self._last, **entries}, "filled")

    def _commit(self, at: int, entries: Mapping[int, RankEntry], cut: Cut) -> None:
        manifest = Manifest(
            run="",
            sequence=0,
            step=at,
            world_size=self._size,
            time_s=max(entry.time_s for entry in entries.values()),
            cut=cut,
            config_sha256=config_sha256(self._config),
            config=self._config,
            judged=self._judged.get(at, {}),
            ranks=[entries[rank] for rank in sorted(entries)],
            happened_s=self._happened_s,
            happened=self._happened,
        )
        self._store.commit(manifest, self._in_use(beyond=at))
        self.written.append(at)
        for table in (self._steps, self._judged):
            for step in [step for step in table if step <= at]:
                del table[step]

    def _give_up(self, step: int, error: OSError) -> None:
        self._failed[step] = f"{type(error).__name__}: {error.strerror or error}"
        for entry in self._steps.pop(step, {}).values():
            if self._last.get(entry.rank) is entry:
                del self._last[entry.rank]
        warnings.warn(f"no checkpoint of step {step}: {self._failed[step]}", CheckpointWarning, stacklevel=2)
        try:
            self._store.discard(self._in_use(beyond=step))
        except OSError:
            return  # ignore it: the next write to the directory removes leftovers

    def _in_use(self, *, beyond: int) -> set[str]:
        """Return the digests of the files that the next checkpoint may use: those of pending shards
        after *beyond*, and of the latest shard of every rank.
        """
        pending = [entry for step, entries in self._steps.items() if step > beyond for entry in entries.values()]
        return {file.sha256 for entry in [*pending, *self._last.values()] for file in entry.files.values()}


@dataclass
class CheckpointKeeping:
    """The checkpoints of a run as its backend sees them: it adds shards, and reads the state that
    the ranks start from.

    *gather* is None if no checkpoints are kept, and *restored* is None if the run does not resume
    from one.
    """

    gather: Gather | None = None
    restored: RestoredState | None = None

    @property
    def keeps(self) -> bool:
        return self.gather is not None

    def add(self, shard: Shard, lost: Collection[int] = ()) -> None:
        """Add the *shard* of a rank; the ranks *lost* had been lost when it was handed in.

        This may wait for a disk.
        """
        if self.gather is not None:
            self.gather.add(shard, lost)

    def begins_with(self, rank: int) -> Shard | None:
        """Return the shard that *rank* resumes from; None if the run does not resume."""
        return self.restored.shards[rank] if self.restored is not None else None

    @property
    def began_s(self) -> float:
        """The time of the whole run at which this attempt starts."""
        return self.restored.time_s if self.restored is not None else 0.0

    def attempt_ended(self, time_s: float, happened: Sequence[Any]) -> None:
        """Note that this attempt failed at *time_s*, in the time of the whole run, and that another
        follows. The faults with an entry in *happened* are over.
        """
        if self.gather is not None:
            self.gather.attempt_ended(time_s, happened)

    def end(self) -> dict[str, Any]:
        """Discard incomplete checkpoints, and return the state of the checkpoints for
        summary.json.
        """
        if self.gather is None:
            return {}
        self.gather.close()
        return self.gather.summary()
