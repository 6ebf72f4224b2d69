"""The checkpoints of a run as its backend is given them: where shards go, and what ranks begin with."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.restore import Restored
from simcluster.checkpoints.shard import Shard


@dataclass
class Keeping:
    """*gather* is None where nothing is to be kept, *restored* where the run begins at its beginning."""

    gather: Gather | None = None
    restored: Restored | None = None

    @property
    def keeps(self) -> bool:
        return self.gather is not None

    def add(self, shard: Shard, lost: Container[int] = ()) -> None:
        """Takes what a rank hands in, when the ranks *lost* are no more. May take as long as a disk does."""
        if self.gather is not None:
            self.gather.add(shard, lost)

    def begins_with(self, rank: int) -> Shard | None:
        """What *rank* goes on from."""
        return self.restored.shards[rank] if self.restored is not None else None

    @property
    def began_s(self) -> float:
        """Return the time of the whole run at which this attempt begins."""
        return self.restored.time_s if self.restored is not None else 0.0

    def attempt_ended(self, time_s: float) -> None:
        """Note that the run was lost at *time_s* of its whole time, and begins again."""
        if self.gather is not None:
            self.gather.attempt_ended(time_s)

    def end(self) -> dict[str, Any]:
        """The run is over; what became of its checkpoints, for the summary."""
        if self.gather is None:
            return {}
        self.gather.close()
        return self.gather.summary()
