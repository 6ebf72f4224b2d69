"""The checkpoints of a run as its backend sees them: where shards go, and what ranks start from."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.restore import Restored
from simcluster.checkpoints.shard import Shard


@dataclass
class Keeping:
    """*gather* is None if no checkpoints are kept, *restored* if the run does not resume from one."""

    gather: Gather | None = None
    restored: Restored | None = None

    @property
    def keeps(self) -> bool:
        return self.gather is not None

    def add(self, shard: Shard, lost: Container[int] = ()) -> None:
        """Take a rank's shard, handed in after the ranks *lost* were lost. May take as long as a disk does."""
        if self.gather is not None:
            self.gather.add(shard, lost)

    def begins_with(self, rank: int) -> Shard | None:
        """Return the shard that *rank* resumes from, if there is one."""
        return self.restored.shards[rank] if self.restored is not None else None

    @property
    def began_s(self) -> float:
        """The time of the whole run at which this attempt starts."""
        return self.restored.time_s if self.restored is not None else 0.0

    def attempt_ended(self, time_s: float) -> None:
        """Note that this attempt failed at *time_s* of the whole run, and that another one follows."""
        if self.gather is not None:
            self.gather.attempt_ended(time_s)

    def end(self) -> dict[str, Any]:
        """End the run; return the state of its checkpoints for the summary."""
        if self.gather is None:
            return {}
        self.gather.close()
        return self.gather.summary()
