"""Declare that a user's own algorithm survives a loss by regrouping."""

from __future__ import annotations

from dataclasses import replace

from simcluster.algorithms.facts import Algorithm, facts_of


def in_step(algorithm: Algorithm) -> Algorithm:
    """Declare that ranks run *algorithm* in step, each with a whole model, and that its loop is `steps` or `rounds`.

    That is: no rank ends a step before every rank has begun it; a message is received in the step that sends it, unless
    a `Lag` holds it in flight; any number of ranks can resume from a checkpoint; every sum is divided by `node.size`;
    every receive names its tag. When a rank is lost, leaves or joins, the algorithm is cancelled and restarted with the
    new ranks and a replica that resumes from the last step that all of them have ended.
    """
    return replace(facts_of(algorithm), in_step=True)(algorithm)
