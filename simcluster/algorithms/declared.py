"""The declaration that a user's own algorithm survives a loss by regrouping."""

from __future__ import annotations

from dataclasses import replace

from simcluster.algorithms.facts import Algorithm, facts_of


def in_step(algorithm: Algorithm) -> Algorithm:
    """Declares of *algorithm*: ranks go in step, each with a whole model, and each ends with the loop of `steps`.

    That is: no rank ends a step before every rank has begun it; what a step sends is received in that step, except
    what a `Lag` has in flight; any number of ranks can resume from what was kept, and every sum is divided by
    `node.size`; it names the tag of all that it receives. When a rank is lost, leaves or joins, the algorithm is
    cancelled and begins again, with other ranks and a replica that resumes from the last step that all have ended.
    """
    return replace(facts_of(algorithm), in_step=True)(algorithm)
