"""Regrouping: when a rank is lost, leaves or joins, the remaining ranks form a new group and
continue from their last common step.

`membership_view` records the known members, and chooses the next group without I/O.
`capture_memory` keeps the state after the last steps in memory, and transfers it to ranks that have
none. `messages` defines the protocol, `mail` sends messages to the current incarnation of a rank
and receives them, `agreement` is the consensus, and `supervisor` runs an algorithm, group after
group.

All of it uses only `send` and `recv`, so it works the same on every backend.
"""

from simcluster.algorithms.facts import in_step as in_step
