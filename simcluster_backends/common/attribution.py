"""Which nodes that could not go on are only lost, and which of them fail the run: one rule for every backend.

The order in which errors come does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from simcluster.errors import ENDED, TIME_IS_UP, PeerLost
from simcluster.fault_plans.kinds import too_late


class Report(NamedTuple):
    """The algorithm of *rank* raised *lost*, or another error if that is None.

    *is_cut*: the plan had cut the node off from the peer that it misses. *absence* is why the node was not there
    before, None if it was there from the beginning. *others_ended*: each node that ends well had done so before.
    """

    rank: int
    lost: PeerLost | None
    is_cut: bool = False
    absence: str | None = None
    others_ended: bool = False


def excuse(report: Report) -> str | None:
    """Return why the node of *report* is lost, or None if its error fails the run.

    A node that came late, or again, is lost with any peer that it misses; so is one that the plan has cut off from
    that peer. A bug fails the run, wherever it is.
    """
    if report.lost is None:
        return None
    if report.absence is not None and (report.lost.reason in (ENDED, TIME_IS_UP) or report.others_ended):
        return too_late(report.absence)
    return str(report.lost) if report.is_cut or report.absence is not None else None


def excuses(reports: Iterable[Report], *, anybody_well: bool) -> dict[int, str]:
    """Return why each node of *reports* that has an `excuse` is lost, by rank.

    If no node has ended well, the run has failed: then a late one's error may be the cause.
    """
    given = {report.rank: excuse(report) for report in reports if anybody_well or report.is_cut}
    return {rank: why for rank, why in given.items() if why is not None}
