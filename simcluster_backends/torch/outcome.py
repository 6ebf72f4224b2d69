"""The outcome that a rank hands in when its part is over, and the run's record, which rank 0 makes of them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from simcluster.errors import NeverFinished, NodeFailed, PeerLost, RunError
from simcluster.runs.copies import hand_in, put_back, told
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster_backends.torch.board import Status

DETAILS_CHARACTERS = 20_000


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """How a part failed. *kind* is "peer_lost" (of *rank*), "failed" or "stopped"."""

    kind: str
    text: str
    rank: int = -1
    details: str = ""

    def error(self, rank: int, names: Sequence[str]) -> RunError:
        """What the process of *rank* ends with."""
        if self.kind == "peer_lost":
            return PeerLost(self.rank, names[self.rank] if 0 <= self.rank < len(names) else "", self.text)
        if self.kind == "stopped":
            headline, *waits = self.text.splitlines()
            return NeverFinished(headline, [wait.strip() for wait in waits])
        return NodeFailed(rank, names[rank], self.details or self.text)


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """All that a rank noted; what is large apart, in *content*."""

    record: NodeRecord
    failure: Failure | None
    content: bytes


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Outcome)


def failure_of(error: BaseException, stopped: str) -> Failure:
    """What to say of *error*. A group is a lost peer only if nothing else is in it."""
    details = "".join(traceback.format_exception(error))[-DETAILS_CHARACTERS:]
    if stopped:
        return Failure("stopped", stopped)
    leaves = _leaves(error)
    first = next((leaf for leaf in leaves if not isinstance(leaf, PeerLost)), leaves[0])
    if isinstance(first, PeerLost):
        return Failure("peer_lost", first.reason, first.rank, details)
    return Failure("failed", f"{type(first).__name__}: {first}", details=details)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def encode(record: NodeRecord, failure: Failure | None) -> bytes:
    rest = replace(record, weights=None, copies=told(record.copies))
    return _encoder.encode(Outcome(rest, failure, b"".join(hand_in(record))))


def conclude(
    names: Sequence[str],
    outcomes: Mapping[int, bytes],
    lost: Mapping[int, str],
    statuses: Sequence[Status],
    wall_s: float,
) -> RunRecord:
    """The run's record. A node's own failure is the run's error, else a death, else what a survivor could not bear."""
    nodes: list[NodeRecord] = []
    failures: dict[int, Failure] = {}
    deaths: dict[int, str] = {}
    for rank, name in enumerate(names):
        if rank in outcomes:
            outcome = _decoder.decode(outcomes[rank])
            nodes.append(put_back(outcome.record, outcome.content))
            if outcome.failure is not None:
                failures[rank] = outcome.failure
        else:
            deaths[rank] = lost.get(rank, "its process is gone")
            nodes.append(NodeRecord(rank, name, steps=statuses[rank].steps if statuses else 0))
    elapsed_s = max((node.finished_s or 0.0 for node in nodes), default=0.0)
    extra = {"lost": {names[rank]: reason for rank, reason in deaths.items()}}
    return RunRecord(nodes, elapsed_s, wall_s, _error(names, failures, deaths), extra)


def _error(names: Sequence[str], failures: Mapping[int, Failure], deaths: Mapping[int, str]) -> RunError | None:
    for kind in ("stopped", "failed"):
        for rank, failure in failures.items():
            if failure.kind == kind:
                return failure.error(rank, names)
    for rank, reason in deaths.items():
        return PeerLost(rank, names[rank], reason)
    for rank, failure in failures.items():
        return failure.error(rank, names)
    return None
