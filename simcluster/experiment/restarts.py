"""Whether a run that was lost begins again, and where: what torchrun calls max_restarts, on any backend.

This file knows jobs, records and which errors are worth another try. It must not know how a run is run.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from simcluster.errors import NodeFailed, PeerLost
from simcluster.experiment.job import ClusterJob
from simcluster.results.record import RunRecord

WORTH_IT = (PeerLost, NodeFailed)
"""A node died, or its algorithm raised. What never finishes would not finish again, and what cannot start, cannot."""

log = logging.getLogger("simcluster.restarts")


class Restarts:
    """The runs of one job, of which *job* is the next: the first, and at most *most* others.

    Each begins where `job.again` says, or at the start. Faults of the plan happen in the first one only.
    """

    def __init__(self, job: ClusterJob, most: int) -> None:
        self.job = job
        self._most = most
        self._earlier: list[dict[str, str]] = []
        self._faults: list[dict[str, Any]] = []

    def again(self, record: RunRecord) -> bool:
        """Whether *job* is to be run, once more, after a run of which *record* tells."""
        self._note_faults(record)
        if not isinstance(record.error, WORTH_IT) or record.went_on or len(self._earlier) == self._most:
            return False
        self.job, place = _again(self.job)
        self._earlier.append({"error": f"{type(record.error).__name__}: {record.error}", "begins_again": place})
        log.warning("restart %d of %d, from %s: %s", len(self._earlier), self._most, place, record.error)
        return True

    def told(self, record: RunRecord) -> RunRecord:
        """*record*, of the last run, in whose *extra* `restarts` tells of the others, and `faults` of all."""
        if self._earlier:
            record.extra["restarts"], record.extra["faults"] = self._earlier, self._faults
        return record

    def _note_faults(self, record: RunRecord) -> None:
        """In the time of the whole run: each begins where something was kept."""
        begun = self.job.keeping.restored if self.job.keeping is not None else None
        began_s = 0.0 if begun is None else begun.time_s
        for row in record.extra.get("faults", ()):
            spells = [[None if time_s is None else time_s + began_s for time_s in spell] for spell in row["spells_s"]]
            self._faults.append({**row, "spells_s": spells})


def _again(job: ClusterJob) -> tuple[ClusterJob, str]:
    """(the job that goes on from what was kept, where that is in words)."""
    job = replace(job, faults=())
    if job.again is None or (found := job.again()) is None:
        return job, "the start"
    config_json, place = found
    return replace(job, config_json=config_json), place
