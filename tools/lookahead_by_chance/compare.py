"""Comparison of a program with its schedules computed in different ways, or message by message."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.lookahead import ScheduleEntrants

from simcluster.errors import RunError
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import Declining, Never, Skipping
from tools.lookahead_by_chance.body import Acts
from tools.lookahead_by_chance.network import faults_of, topology_of
from tools.lookahead_by_chance.program import Program


class Outcome(NamedTuple):
    """The outcome of a program: each rank's log of acts or error, its traffic, and its spans.

    If the run has failed, *acts* has the lines of the error message.
    """

    acts: list[Any]
    traffic: list[Any]
    spans: list[Any]


class Compared(NamedTuple):
    """The result of a comparison.

    *differences* has "way: part of the outcome" -> description. *skipped* is the number of rounds
    with a computed schedule.
    """

    differences: dict[str, str]
    skipped: int


def compare(program: Program) -> Compared:
    """Run *program* message by message and in each way of computing schedules.

    Compare the outcomes.
    """
    simulated, _ = outcome(program, Never, shortcuts="exchange")
    differences: dict[str, str] = {}
    skipped = 0
    for way in (Never, Declining, Skipping):
        try:
            found, together = outcome(program, way)
        except Exception as error:
            differences[f"{way.__name__.lower()}: raised"] = f"{type(error).__name__}: {error}"
            continue
        skipped += sum(getattr(together, "left_out", ()))
        for part, one, other in zip(Outcome._fields, simulated, found, strict=True):
            if one != other:
                name, where = _first_difference(one, other)
                differences[f"{way.__name__.lower()}: {name}{part}"] = where
    return Compared(differences, skipped)


def outcome(
    program: Program, way: type[ScheduleEntrants], *, shortcuts: bool | str = True
) -> tuple[Outcome, ScheduleEntrants]:
    """Run *program*. *way* decides which schedules are computed."""

    async def body(node: Transport) -> object:
        return await Acts(program, node).run()

    cluster = SimCluster(
        topology_of(program),
        program.seed,
        inbox_bytes=program.inbox_bytes,
        model=program.model,
        threads=program.threads,
        faults=faults_of(program),
        shortcuts=shortcuts,
    )
    cluster.together = way(cluster.loop, cluster.members, cluster.streams, cluster.membership, cluster.routes)
    try:
        ends = cluster.run([body] * program.size)
        acts = [f"{type(end).__name__}: {end}" if isinstance(end, BaseException) else end for end in ends]
    except RunError as error:  # sorted, since waits may be listed in another order
        acts = [sorted(re.split(", |; | at | waits for ", line)) for line in str(error).splitlines()]
    records = [member.recorder.record for member in cluster.members]
    traffic = [(record.sent_to, record.bytes_received, record.finished_s) for record in records]
    return Outcome(acts, traffic, [record.spans for record in records]), cluster.together


def _first_difference(simulated: list[Any], found: list[Any]) -> tuple[str, str]:
    """Return ("order of " if only the order differs, otherwise "", description of the first
    difference).
    """
    if len(simulated) != len(found):  # one of the runs has failed
        return "", f"{found} instead of {simulated}"
    order = "order of " if all(map(_same_set, simulated, found)) else ""
    for rank, (one, other) in enumerate(zip(simulated, found, strict=True)):
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list):
            pairs = zip([*one, None], [*other, None], strict=False)
            one, other = next(pair for pair in pairs if pair[0] != pair[1])
        return order, f"rank {rank}: {other} instead of {one}"
    raise AssertionError("equal")


def _same_set(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return one == other
