"""Compute, rather than simulate, the rounds of a schedule that all nodes of a group enter on an otherwise idle cluster.

In round k, rank r sends to rank to(r) and waits for a message from rank source(r); it may do only
one of the two, or neither. If no two messages share a channel at any time, the whole schedule is

    left_k(r) = start_k(r) + bytes_k(r) / rate       start_k+1(r) = max(left_k(r), left_k(source(r)) + latency)

from each rank's own start. These are the floating-point operations of the simulation, in the same
order. Nothing else may happen meanwhile: a round that would end after the next unrelated event is
simulated. The last round is simulated, too, so that no node leaves the schedule while rounds of
another node are computed.

schedule_entrants.py: the nodes that have entered, and whether anything else could happen.
events.py: the ranks that an event can affect. awaited_messages.py: the messages that other nodes
await from held nodes. outlook.py: the first act of each rank in a schedule, and the number of
messages.
suspended_ranks.py: nodes that wait for others, and begin in the past if rounds are not computed.
paths.py: rates and channels between ranks. schedule_times.py: when each rank begins each round.
sizes.py: the bytes of messages. order.py: the order of ranks that continue at the same time.
traffic.py: the records of nodes.
"""

from simcluster_backends.sim.lookahead.schedule_entrants import ScheduleEntrants

__all__ = ["ScheduleEntrants"]
