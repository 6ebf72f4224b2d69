"""Which ranks may come to stand for a run: all that may be the lowest one left."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from simcluster.errors import ENDED, PeerLost
from simcluster.fault_plans.kinds import Fault, NodeFault, may_lose
from simcluster.hearing import heard
from simcluster.transport import Transport


def may_stand(rank: int, faults: Sequence[Fault], late: Collection[int] = ()) -> bool:
    """Whether *rank* may come to stand for the run: *faults* may take every lower one, or it is one of the *late*.

    A rank that was not there at the beginning may come too late to train.
    """
    losing = [fault for fault in faults if may_lose(fault)]
    at_risk = {*late, *(fault.rank for fault in losing if isinstance(fault, NodeFault))}
    return any(not isinstance(fault, NodeFault) for fault in losing) or at_risk.issuperset(range(rank))


async def is_lowest(node: Transport, late: Collection[int] = ()) -> bool:
    """Whether every rank below that of *node* is *late*, or gone without having ended well, as far as it knows."""
    for rank in sorted({*range(node.rank)}.difference(late)):
        if rank in node.peers:
            return False
        lost = await heard(node, rank)
        if not isinstance(lost, PeerLost) or lost.reason == ENDED:
            return False
    return True
