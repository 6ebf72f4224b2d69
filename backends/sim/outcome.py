"""What came of a simulated run: the error that it died of, if it did, and who was lost on the way.

This file knows failures of nodes and what a fault plan explains of them. It must not know records or files.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from simcluster.errors import ENDED, NeedsValues, NobodyLeft, NodeFailed, PeerLost, RunError
from simcluster.experiment.fault_kinds import too_late
from simcluster.experiment.fault_log import explained

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.transport import SimTransport


def outcome(cluster: Cluster) -> tuple[RunError | None, dict[str, str]]:
    """(the error, why each of those who are lost is, by name).

    The error is the cause of the first failure in virtual time; those that it brought about in others are not told.
    A node that could not go on for a cut, or that came late or again and missed any other, is lost, if one ended well.
    """
    lost = {cluster.nodes[rank].name: reason for rank, reason in cluster.gone.items()}
    cut = explained({node.rank: error for node, error in cluster.failures}, cluster.news.cut_off)
    anybody_well = any(departure.reason == ENDED for departure in cluster.news.departed.values())
    failures = cluster.failures if anybody_well else ()
    late = {node.rank: _words(cluster, node, error) for node, error in failures if _came_late(cluster, node, error)}
    rest = [(node, error) for node, error in cluster.failures if node.rank not in cut and node.rank not in late]
    if not rest and (anybody_well or not cut):
        lost |= {cluster.nodes[rank].name: str(error) for rank, error in cut.items()}
        lost |= {cluster.nodes[rank].name: late[rank] for rank in sorted(late)}
        if cluster.has_left and not anybody_well:
            return NobodyLeft(lost), lost
        if cluster.gone and not anybody_well and not cluster.living():
            first = min(cluster.gone)  # all are dead: that is no success, and the run may begin again
            return PeerLost(first, cluster.nodes[first].name, cluster.gone[first]), lost
        return None, lost
    if cut and all(isinstance(error, PeerLost) for _, error in rest):
        return cut[min(cut)], lost
    return _as_run_error(*rest[0]), lost


def _came_late(cluster: Cluster, node: SimTransport, error: BaseException) -> bool:
    returned = cluster.news.incarnation(node.rank) > 0 and node is cluster.nodes[node.rank]
    return returned and isinstance(error, PeerLost)


def _words(cluster: Cluster, node: SimTransport, error: BaseException) -> str:
    """Why *node*, which came late or again, is lost: if it never trained, it came too late."""
    ended = isinstance(error, PeerLost) and error.reason == ENDED
    took_part = node.recorder.record.trained and not ended
    return str(error) if took_part else too_late(cluster.news.last_reason(node.rank))


def _as_run_error(node: SimTransport, error: BaseException) -> RunError:
    if isinstance(error, (NeedsValues, PeerLost)):
        return error
    return NodeFailed(node.rank, node.name, "".join(traceback.format_exception(error)))
