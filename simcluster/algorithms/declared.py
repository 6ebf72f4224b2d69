"""Which algorithms may go on in a group that is formed anew: they say so themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])

_MARK = "__in_step__"


def in_step(algorithm: Algorithm) -> Algorithm:
    """Declares of *algorithm*: ranks go in step, each with a whole model, and `replica.checkpoint` ends each step.

    That is: nobody ends a step before everybody has begun it; what a step sends is received in that step, but for what
    `checkpoint` is told to be under way; any number of ranks can go on from what was kept, and every sum is divided by
    `node.size`; it names the tag of all that it receives. When a rank is lost, leaves or joins, the algorithm is
    cancelled and begins again, with other ranks and a replica that goes on from the last step that all have ended.
    """
    setattr(algorithm, _MARK, True)
    return algorithm


def goes_in_step(algorithm: Callable[..., Any]) -> bool:
    """Whether *algorithm* was declared to."""
    return bool(getattr(algorithm, _MARK, False))
