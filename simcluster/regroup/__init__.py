"""Groups that go in step are formed anew when a rank is lost, leaves or joins, from the last step that all hold.

declared: who may; facts: who is there, as far as is known; choice: who belongs to the next group, and from where it
goes on (both pure); memory: the last steps, in memory; words: what ranks say to each other; speaking, listening: how
that reaches the right life of a rank; council: they agree; group: the transport seen by the members alone; handing: the
state for who has none; supervisor: an algorithm, group after group.

From `send` and `recv` alone, so that it is the same on every backend.
"""

from simcluster.algorithms.declared import in_step

__all__ = ["in_step"]
