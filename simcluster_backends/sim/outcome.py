"""The outcome of a simulated run: the error that ended it, if one did, and the nodes that were lost."""

from __future__ import annotations

import traceback
from math import inf
from typing import TYPE_CHECKING

from simcluster.errors import ENDED, NeedsValues, NobodyLeft, NodeFailed, PeerLost, RunError
from simcluster.experiment.attribution import Report, excuses

if TYPE_CHECKING:
    from simcluster_backends.sim.cluster import Cluster
    from simcluster_backends.sim.member import Member


def outcome(cluster: Cluster) -> tuple[RunError | None, dict[str, str]]:
    """(the error, why each of those who are lost is, by name).

    The error is the cause of the first failure in virtual time; those that it brought about in others are not told.
    """
    lost = {cluster.members[rank].name: reason for rank, reason in cluster.gone.items()}
    ends_s = [departure.time_s for departure in cluster.membership.departed.values() if departure.reason == ENDED]
    reports = [_report(cluster, node, error, max(ends_s, default=inf)) for node, error in cluster.failures]
    excused = excuses(reports, anybody_well=bool(ends_s))
    rest = [(node, error) for node, error in cluster.failures if node.rank not in excused]
    if not rest and (ends_s or not excused):
        lost |= {cluster.members[rank].name: excused[rank] for rank in sorted(excused)}
        if cluster.has_left and not ends_s:
            return NobodyLeft(lost), lost
        return None, lost
    cut = {report.rank: report.lost for report in reports if report.is_cut}
    if cut and all(isinstance(error, PeerLost) for _, error in rest):
        return cut[min(cut)], lost
    return _as_run_error(*rest[0]), lost


def _report(cluster: Cluster, node: Member, error: BaseException, last_end_s: float) -> Report:
    """*last_end_s*: when the last of those ended that ended well."""
    membership, rank = cluster.membership, node.rank
    lost = error if isinstance(error, PeerLost) else None
    is_cut = lost is not None and membership.cut_off(rank, lost.rank)
    absence = membership.last_reason(rank) if membership.incarnation(rank) else None
    return Report(rank, lost, is_cut, absence, others_ended=membership.departed[rank].time_s >= last_end_s)


def _as_run_error(node: Member, error: BaseException) -> RunError:
    if isinstance(error, (NeedsValues, PeerLost)):
        return error
    return NodeFailed(node.rank, node.name, "".join(traceback.format_exception(error)))
