"""Restart a lost run from its last checkpoint, on any backend, like torchrun's `--max-restarts`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from simcluster.errors import NodeFailed, PeerLost
from simcluster.fault_plans.kinds import BEGAN_AGAIN, UNTRAINED, WITHOUT_ITS_MODEL, Join, faults_to_come
from simcluster.job import NODE_PROGRAM, ClusterJob
from simcluster.runs.record import RunRecord, last

WORTH_IT = (PeerLost, NodeFailed)
"""Errors after which a restart may help: a node died, or its algorithm raised.

A timeout or a failed start would only happen again.
"""

log = logging.getLogger("simcluster.restarts")


class Restarts:
    """The first attempt of a job, and at most *most* restarts; `job` is the next attempt.

    A restart resumes from the checkpoint that `job.again` finds, or begins from the start. Planned
    faults that have happened are not repeated; later ones keep their times, see `faults_to_come`.
    """

    def __init__(self, job: ClusterJob, most: int) -> None:
        self.job = self._first = job
        self._most = most
        self._first_began_s = self._happened_s = self._began_s
        self._earlier: list[dict[str, Any]] = []
        self._faults: list[dict[str, Any]] = []

    def again(self, record: RunRecord) -> bool:
        """Return whether to restart after the attempt of *record*; if so, prepare `job` for it.

        If the result of the run was lost, note this as the error of *record*.
        """
        record.error = record.error or self._result_lost(record)
        rows = later(record.extra.get("faults", ()), self._began_s)
        self._faults += rows
        if not isinstance(record.error, WORTH_IT) or record.went_on or len(self._earlier) == self._most:
            return False
        starts_s = [start_s for row in rows for start_s, _ in row["spells_s"]]
        # If an attempt fails because a planned node has not joined yet, count its time until that
        # join.
        joins_s = [end_s for fault in self.job.faults if isinstance(fault, Join) for _, end_s in fault.spells]
        ended_s = max([record.elapsed_s, *joins_s])
        self._happened_s = max([self._happened_s, self._began_s + ended_s, *starts_s])
        happened = [row.get("plan") for row in self._faults]
        if self.job.keeping is not None:
            self.job.keeping.attempt_ended(self._happened_s, happened)
        found = self.job.again() if self.job.again is not None else None
        config_json, place = (self.job.config_json, "the start") if found is None else found
        first = self._first
        later_s = self._began_s - self._first_began_s
        to_come = faults_to_come(first.faults, later_s, self._happened_s - self._first_began_s, happened=happened)
        self.job = replace(
            self.job,
            config_json=config_json,
            time_s=None if first.time_s is None else first.time_s - later_s,
            faults=to_come,
        )
        error = f"{type(record.error).__name__}: {record.error}"
        self._earlier.append({"error": error, "lasted_s": record.elapsed_s, "begins_again": place})
        log.warning("restart %d of %d, from %s: %s", len(self._earlier), self._most, place, record.error)
        return True

    def told(self, record: RunRecord) -> RunRecord:
        """Return *record*, that of the last attempt, with earlier attempts and all faults added."""
        if self._earlier:
            record.extra["restarts"], record.extra["faults"] = self._earlier, self._faults
        return record

    @property
    def _began_s(self) -> float:
        return self.job.keeping.began_s if self.job.keeping is not None else 0.0

    def _result_lost(self, record: RunRecord) -> PeerLost | None:
        """Return the loss that destroyed the result of the run; None if the result exists.

        If it exists, note nodes that rejoined without a model as lost.
        """
        lost = record.extra.setdefault("lost", {})
        empty = [node for node in record.nodes if node.ended_well and node.began_again]
        is_left = last(record.nodes) if self.job.program == NODE_PROGRAM else len(lost) < len(record.nodes)
        if is_left or not record.nodes:
            lost.update((node.name, WITHOUT_ITS_MODEL) for node in empty)
            return None
        if empty and self.job.program == NODE_PROGRAM:
            return PeerLost(empty[0].rank, empty[0].name, BEGAN_AGAIN)
        # Name the node that best explains the missing result: preferably a lost one that had
        # trained, and of several the lowest rank.
        gone = min(
            record.nodes,
            key=lambda node: (node.name not in lost, not (lost or node.incarnation), not node.trained, node.rank),
        )
        return PeerLost(gone.rank, gone.name, lost.get(gone.name, UNTRAINED))


def later(faults: Iterable[Mapping[str, Any]], began_s: float) -> list[dict[str, Any]]:
    """Return *faults*, rows of an attempt that began at *began_s*, with times of the whole run."""
    return [
        {**row, "spells_s": [[None if s is None else s + began_s for s in spell] for spell in row["spells_s"]]}
        for row in faults
    ]
