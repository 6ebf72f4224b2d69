"""Groups in step are formed again when a rank is lost, leaves or joins, from the last step that all members hold.

membership_view: the known members, and the choice of the next group (pure); memory: the last steps, in memory, and
their transfer to ranks without one; messages: the protocol; mail: messages to and from the right life of a rank;
agreement: the consensus; supervisor: runs an algorithm, group after group.

Uses `send` and `recv` alone, so it is the same on every backend.
"""

from simcluster.algorithms.facts import in_step as in_step
