"""Collective operations built from send and recv alone: one file per schedule, each a plain `async def`.

Every rank of the cluster calls the same operation with the same tag. Sums are taken in an order that the schedule
fixes, never in order of arrival.
"""

from simcluster.collectives.broadcast import broadcast
from simcluster.collectives.exchange import exchange
from simcluster.collectives.flat import flatten, unflatten
from simcluster.collectives.naive import naive_all_reduce
from simcluster.collectives.ring import ring_all_reduce

__all__ = ["broadcast", "exchange", "flatten", "naive_all_reduce", "ring_all_reduce", "unflatten"]
