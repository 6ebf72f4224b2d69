"""The reasons to stop a run on real nodes.

tests/backends/sockets/launcher/test_watchdog.py has a launcher that obeys them.
"""

from __future__ import annotations

from typing import NamedTuple

from simcluster_backends.common.watchdog import NodeProgress, Watchdog


class Limits(NamedTuple):
    stuck_s: float = 10.0
    idle_s: float = 20.0
    limit_s: float | None = 100.0


def after(node: NodeProgress, *times_s: float) -> str:
    """The reason at the last of *times_s* to stop a run of one node that is as far as *node* all the time."""
    watchdog = Watchdog(*Limits(), 0.0)
    return [watchdog.standstill([node], [node], now_s) or watchdog.over_time([node], now_s) for now_s in times_s][-1]


def test_a_run_is_stopped_for_each_of_three_reasons_and_for_no_other() -> None:
    waits, computes = NodeProgress(waits=["recv"]), NodeProgress(computing=1)
    assert "stuck_s" in after(waits, 1.0, 11.5)
    assert after(waits, 1.0, 10.5) == ""
    assert "idle_s" in after(computes, 1.0, 21.5)
    assert after(computes, 1.0, 20.5) == ""
    assert "limit_s" in after(computes, 90.0, 100.5)
    assert after(NodeProgress(ended=True), 90.0, 95.0, 101.0) == "", "it evaluates"


def test_a_node_that_is_expected_may_be_waited_for() -> None:
    watchdog, waits = Watchdog(*Limits(idle_s=1e9, limit_s=None), 0.0), [NodeProgress(waits=["recv"])]
    assert watchdog.standstill(waits, waits, 60.0, expects=True) == ""
    assert watchdog.standstill(waits, waits, 69.0) == ""
    assert "stuck_s" in watchdog.standstill(waits, waits, 71.0)


def test_the_sleep_of_the_process_that_watches_is_forgiven() -> None:
    watchdog, waits = Watchdog(*Limits(limit_s=None), 0.0), [NodeProgress(waits=["recv"])]
    assert watchdog.standstill(waits, waits, 1.0) == ""
    watchdog.forgive(1000.0)
    assert watchdog.standstill(waits, waits, 1009.0) == ""
