"""Groups in step are formed again when a rank is lost, leaves or joins, from the last step that all members hold.

declared: the algorithms that can; membership_view: the known members; choice: the members of the next group, and the
step it continues from (both pure); memory: the last steps, in memory; messages: the protocol; speaking, listening:
messages to and from the right life of a rank; agreement: the consensus; group: the transport as the members see it;
state_transfer: the state for ranks without one; supervisor: runs an algorithm, group after group.

Uses `send` and `recv` alone, so it is the same on every backend.
"""

from simcluster.algorithms.declared import in_step

__all__ = ["in_step"]
