"""Batches of a DataLoader's workers, on the cluster's clock."""

from __future__ import annotations

from simcluster.scripts.rank.loader_time import LoaderSchedule


def test_a_worker_begins_a_batch_when_it_is_asked_and_is_done_with_the_one_before() -> None:
    schedule = LoaderSchedule()
    for worker, now_s in ((0, 0.0), (1, 0.0), (0, 0.0), (1, 5.0)):
        schedule.ask(worker, now_s)
    assert schedule.ready_s(0, 2.0) == 2.0
    assert schedule.ready_s(1, 1.0) == 1.0
    assert schedule.ready_s(0, 2.0) == 4.0  # asked for at 0, begun at 2
    assert schedule.ready_s(1, 1.0) == 6.0  # done with the first at 1, asked again at 5
