"""A server's side of asynchronous rounds: the next push from anybody who still trains.

This file knows who has said that a push is its last, and who is lost. It must not know what is pushed.
"""

from __future__ import annotations

from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.transport import ANY, Transport
from simcluster.workloads.ledger import Ledger


async def next_push(node: Transport, training: set[int], ledger: Ledger | None = None) -> Message | None:
    """The next message "push", in order of arrival; None when nobody of *training* is left to send one.

    A push has a value `last`: its sender then leaves *training*, as does whoever is lost. One that comes back begins
    from the beginning, and is in *training* again from its first push on; *ledger*, if it judges pushes, is told.
    """
    while training:
        try:
            push = await node.recv(ANY, "push")
        except PeerLost as lost:
            if ledger is not None:
                ledger.parted(lost.rank)
            # All that came is taken; whoever is gone, also well and therefore not told one by one, pushes no more.
            training.intersection_update(node.peers)
            continue
        (training.discard if push["last"] else training.add)(push.source)
        return push
    return None
