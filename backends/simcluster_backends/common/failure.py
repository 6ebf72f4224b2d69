"""A node's failure in serializable form, for the process that judges the run."""

from __future__ import annotations

import msgspec

from simcluster.errors import Left, PeerLost, SimclusterError, leaves_of, traceback_of

DETAILS_CHARACTERS = 20_000

LEFT = "left"


class Failure(msgspec.Struct, array_like=True, frozen=True, tag="failure"):
    """A node's failure. *kind* is "peer_lost", "failed", "start", "stopped", or LEFT.

    *rank* is the lost peer of "peer_lost". LEFT means that the node left on request. *details* has
    the traceback.
    """

    kind: str
    text: str
    rank: int = -1
    details: str = ""


def failure_of(error: BaseException, *, began: bool = True) -> Failure:
    """Return the failure that *error* represents; *began* says whether the algorithm had started."""
    first = first_of(error)
    details = traceback_of(error)[-DETAILS_CHARACTERS:]
    if isinstance(first, Left):
        return Failure(LEFT, str(first))
    if isinstance(first, PeerLost):
        return Failure("peer_lost", first.reason, first.rank, details)
    if not began and isinstance(first, SimclusterError):
        return Failure("start", str(first), details=details)
    return Failure("failed", f"{type(first).__name__}: {first}", details=details)


def first_of(error: BaseException) -> BaseException:
    """Return the first error in the group *error* that is not a PeerLost, else the first.

    Return *error* itself if it is not a group.
    """
    leaves = leaves_of(error)
    return next((leaf for leaf in leaves if not isinstance(leaf, PeerLost)), leaves[0])
