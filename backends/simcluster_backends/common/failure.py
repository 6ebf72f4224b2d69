"""How a node's part of a run failed, in serializable form: sent from a rank to the process that judges the run."""

from __future__ import annotations

import msgspec

from simcluster.errors import Left, PeerLost, SimclusterError, traceback_of

DETAILS_CHARACTERS = 20_000

LEFT = "left"


class Failure(msgspec.Struct, array_like=True, frozen=True, tag="failure"):
    """A node's failure: *kind* is "peer_lost" (of *rank*), "failed", "start", "stopped", or LEFT (on request)."""

    kind: str
    text: str
    rank: int = -1
    details: str = ""


def failure_of(error: BaseException, *, began: bool = True) -> Failure:
    """Return the failure that *error* represents; *began* says whether the algorithm had started."""
    first, details = first_of(error), traceback_of(error)[-DETAILS_CHARACTERS:]
    if isinstance(first, Left):
        return Failure(LEFT, str(first))
    if isinstance(first, PeerLost):
        return Failure("peer_lost", first.reason, first.rank, details)
    if not began and isinstance(first, SimclusterError):
        return Failure("start", str(first), details=details)
    return Failure("failed", f"{type(first).__name__}: {first}", details=details)


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, a lost peer only if it holds nothing else; or *error* if it is no group."""
    leaves = _leaves(error)
    return next((leaf for leaf in leaves if not isinstance(leaf, PeerLost)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
