"""The record that a rank hands in at its end, and the run's record, which rank 0 assembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from simcluster.errors import NeverFinished, RunError
from simcluster.paths.spool import Spool
from simcluster.runs.record import NodeRecord, RunRecord, hand_in, put_back, told
from simcluster_backends.common.failure import Failure
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.torch.group import RankStatus


class RankOutcome(msgspec.Struct, array_like=True, frozen=True):
    """A rank's record and failure; *content* has the record's weights and other bulk data."""

    record: NodeRecord
    failure: Failure | None
    content: bytes


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(RankOutcome)


def encode(record: NodeRecord, failure: Failure | None) -> bytes:
    rest = replace(record, weights=None, copies=told(record.copies))
    return _encoder.encode(RankOutcome(rest, failure, b"".join(hand_in(record))))


def run_error(failure: Failure, rank: int, names: Sequence[str]) -> RunError | None:
    """Return the error with which the process of *rank* ends; None if it left on request."""
    if failure.kind == "stopped":
        headline, *waits = failure.text.splitlines()
        return NeverFinished(headline, [wait.strip() for wait in waits])
    verdict = Verdict(list(names))
    verdict.failed(rank, failure)
    return verdict.error


def conclude(
    names: Sequence[str],
    outcomes: Mapping[int, bytes],
    lost: Mapping[int, str],
    statuses: Sequence[RankStatus],
    wall_s: float,
) -> RunRecord:
    """Return the run's record, from the encoded *outcomes* by rank.

    Its error is the first of these that exists: a stop of the run, a rank's own failure, a death, a
    lost peer.
    """
    verdict, nodes = Verdict(list(names)), []
    deaths: dict[int, str] = {}
    for rank, name in enumerate(names):
        if rank in outcomes:
            outcome = _decoder.decode(outcomes[rank])
            nodes.append(put_back(outcome.record, Spool(outcome.content)))
            if outcome.failure is None:
                verdict.ended_well()
            else:
                verdict.failed(rank, outcome.failure, outcome.record.finished_s or 0.0)
                if outcome.failure.kind == "stopped":
                    verdict.own = verdict.own or run_error(outcome.failure, rank, names)
        else:
            deaths[rank] = lost.get(rank, "its process is gone")
            nodes.append(NodeRecord(rank, name, steps=statuses[rank].steps if statuses else 0))
    for rank, reason in deaths.items():
        verdict.died(rank, reason)
    elapsed_s = max((node.finished_s or 0.0 for node in nodes), default=0.0)
    return RunRecord(nodes, elapsed_s, wall_s, verdict.error, {"lost": verdict.lost})
