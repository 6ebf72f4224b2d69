"""Which nodes that could not continue are merely lost, and which fail the run: one rule for every backend.

The order of the errors does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from simcluster.errors import ENDED, TIME_IS_UP, PeerLost
from simcluster.fault_plans.kinds import too_late


class Report(NamedTuple):
    """The algorithm of *rank* raised *lost*, or another error if that is None.

    *is_cut*: the plan had cut the node off from the lost peer. *absence* is why the node was absent before, None if it
    was there from the beginning. *others_ended*: all nodes that ended well had done so before.
    """

    rank: int
    lost: PeerLost | None
    is_cut: bool = False
    absence: str | None = None
    others_ended: bool = False


def excuse(report: Report) -> str | None:
    """Return why the node of *report* is lost, or None if its error fails the run.

    A node that joined late or rejoined is lost with any peer that it needs; so is one that the plan has cut off from
    that peer. A bug in any node fails the run.
    """
    if report.lost is None:
        return None
    if report.absence is not None and (report.lost.reason in (ENDED, TIME_IS_UP) or report.others_ended):
        return too_late(report.absence)
    return str(report.lost) if report.is_cut or report.absence is not None else None


def excuses(reports: Iterable[Report], *, anybody_well: bool) -> dict[int, str]:
    """Return why each node of *reports* that has an `excuse` is lost, by rank.

    If no node has ended well, the run has failed, possibly because of a late node's error.
    """
    given = {report.rank: excuse(report) for report in reports if anybody_well or report.is_cut}
    return {rank: why for rank, why in given.items() if why is not None}
