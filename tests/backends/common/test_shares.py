"""How a node's time divides, by a clock of the test's own."""

from __future__ import annotations

from simcluster_backends.common.shares import COMPUTING, SENDING, WAITING, TimeShares


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_moment_counts_once_and_computing_counts_before_sending_before_waiting() -> None:
    clock = Clock()
    shares = TimeShares(clock)
    for at_s, change, kind in (
        (1.0, "begin", WAITING),  # 0 to 1: nothing
        (3.0, "begin", COMPUTING),  # 1 to 3: waiting
        (4.0, "begin", SENDING),
        (7.0, "end", COMPUTING),  # 3 to 7: computing, though a send is in flight and a receive waits
        (8.0, "begin", SENDING),
        (9.0, "end", SENDING),
        (12.0, "end", SENDING),  # 7 to 12: sending, by one of two sends
        (20.0, "end", WAITING),  # 12 to 20: waiting
    ):
        clock.now_s = at_s
        getattr(shares, change)(kind)
    clock.now_s = 30.0
    assert shares.totals() == [4.0, 5.0, 2.0 + 8.0]


def test_an_operation_in_progress_counts_until_now() -> None:
    clock = Clock()
    shares = TimeShares(clock)
    shares.begin(WAITING)
    clock.now_s = 100.0
    assert shares.totals() == [0.0, 0.0, 100.0]
    clock.now_s = 101.0
    assert shares.totals() == [0.0, 0.0, 101.0]
