"""A run that is lost begins again so often and no more, from what was kept, and its record tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from backends.sockets.restarts import run_again_if_lost
from simcluster.errors import LaunchFailed, NeverFinished, NodeFailed, PeerLost, RunError
from simcluster.experiment.fault_kinds import Crash
from simcluster.experiment.job import ClusterJob
from simcluster.results.record import RunRecord


def runs(
    errors: list[RunError | None], max_restarts: int, again: Callable[[], tuple[str, str] | None] | None = None
) -> tuple[RunRecord, list[ClusterJob]]:
    """(the record of a job whose runs end with *errors*, the jobs that were run)."""
    seen: list[ClusterJob] = []

    async def once(job: ClusterJob) -> RunRecord:
        seen.append(job)
        return RunRecord([], 1.0, 1.0, errors[len(seen) - 1], {"lost": {}, "faults": [{"run": len(seen)}]})

    job = ClusterJob(["a"], "first", faults=(Crash(spells=((0.2, inf),), rank=0),), again=again)
    return asyncio.run(run_again_if_lost(job, max_restarts, once)), seen


LOST, FAILED = PeerLost(0, "a", "died"), NodeFailed(0, "a", "Traceback")


def test_it_begins_again_until_it_ends_well() -> None:
    record, seen = runs([LOST, FAILED, None, None], max_restarts=5)
    assert record.error is None
    assert len(seen) == 3
    assert [entry["begins_again"] for entry in record.extra["restarts"]] == ["the start", "the start"]
    assert record.extra["restarts"][0]["error"] == "PeerLost: rank 0 (a) is lost: died"
    assert record.extra["faults"] == [{"run": 1}, {"run": 2}, {"run": 3}]


def test_it_begins_again_no_more_often_than_asked() -> None:
    record, seen = runs([LOST, LOST, LOST], max_restarts=2)
    assert record.error is LOST
    assert len(seen) == 3
    record, seen = runs([LOST], max_restarts=0)
    assert "restarts" not in record.extra


@pytest.mark.parametrize("error", [NeverFinished("", []), LaunchFailed("", [])])
def test_what_would_happen_again_is_not_tried_again(error: RunError) -> None:
    assert len(runs([error, None], max_restarts=3)[1]) == 1


def test_it_goes_on_from_what_was_kept_and_the_plans_faults_are_over() -> None:
    kept = iter([None, ("from 7", "the checkpoint of step 7")])
    record, seen = runs([LOST, LOST, None], max_restarts=3, again=lambda: next(kept))
    assert [job.config_json for job in seen] == ["first", "first", "from 7"]
    assert [len(job.faults) for job in seen] == [1, 0, 0]
    assert [entry["begins_again"] for entry in record.extra["restarts"]] == ["the start", "the checkpoint of step 7"]
