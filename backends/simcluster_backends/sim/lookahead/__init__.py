"""Compute, rather than simulate, the rounds of a schedule that all nodes of a group enter on an otherwise idle cluster.

In round k rank r sends to(r) and waits for the message of source(r), where there is either. If no two messages share a
channel at any time, the whole schedule is

    left_k(r) = start_k(r) + bytes_k(r) / rate       start_k+1(r) = max(left_k(r), left_k(source(r)) + latency)

from each rank's own start, with the same floating-point operations, in the same order, as the simulation message by
message. Nothing else may happen meanwhile: the rounds from the next event of another kind on are simulated. So is the
last round: no node leaves the schedule while rounds of another are still computed.

together.py: which nodes have entered, and whether anything else could happen. events.py: what an event can affect.
awaited.py: the messages of held nodes that others wait for. outlook.py: the first act of each rank in a schedule, and
the number of messages. held.py: nodes that wait for others, and begin in the past if rounds are not computed. paths.py:
rates and channels between ranks. course.py: when each rank begins each round. order.py: the order of ranks that go on
at one time. traffic.py: nodes' records.
"""

from simcluster_backends.sim.lookahead.together import ScheduleEntrants

__all__ = ["ScheduleEntrants"]
