"""Read the faults of an experiment: their targets, kinds and times.

All problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from simcluster.documents import values
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import DocumentReading, Fields
from simcluster.documents.yaml import MISSING
from simcluster.errors import MOST_PROBLEMS
from simcluster.fault_plans import kinds
from simcluster.fault_plans.keys import AT_STEP, KINDS, REPEATED, SHARE_DOWN
from simcluster.fault_plans.kinds import NOTICE_S, Fault, Spell, united
from simcluster.rng import numpy_stream
from simcluster.spelling import nearest
from simcluster.topology import Link, Topology
from simcluster.topology.model.parallel import LinkNames
from simcluster.units import TIMES, parse_latency

SPELLS_LIMIT = 10_000
"""Limit on the spells of one fault. A flap of an hour reaches it with periods of a third of a
second.
"""

FAULTS_LIMIT = 10_000
SPELLS_IN_ALL_LIMIT = 1_000_000


def read_faults(reading: DocumentReading, cluster: Topology | None, seed: int) -> tuple[Fault, ...]:
    """Return the faults in the document, in the same order. Without a *cluster*, the names of nodes
    and links are not checked.
    """
    faults = reading.document.data.get("faults") or []
    if not isinstance(faults, list):
        reading.bad(("faults",), "a list of faults, each like {kind: crash, node: NAME, at: TIME}")
        return ()
    if len(faults) > FAULTS_LIMIT:
        reading.bad(("faults",), f"at most {FAULTS_LIMIT} faults: one with `every` and `times` stands for many")
        return ()
    found: list[Fault] = []
    joins: set[int] = set()
    # Build these tables once for all faults.
    ranks = links = None
    if cluster is not None and faults:
        ranks = {name: rank for rank, name in enumerate(cluster.workers)}
        links = cluster.links, LinkNames([(link.a, link.b) for link in cluster.links])
    spells = 0
    for number, spec in enumerate(faults):
        if len(reading.problems) > MOST_PROBLEMS:
            break
        fault = _FaultReader(reading, ranks, links, seed, number, spec).read()
        if fault is None:
            continue
        spells += len(fault.spells)
        if spells > SPELLS_IN_ALL_LIMIT:
            reading.bad(("faults",), f"faults that happen at most {SPELLS_IN_ALL_LIMIT} times in all")
            return ()
        found.append(fault)
        if isinstance(fault, kinds.Join) and fault.rank is not None:
            if fault.rank in joins:
                reading.bad(("faults", number, "node"), "a node that joins once: use a restart for a node that rejoins")
            joins.add(fault.rank)
    return tuple(found)


@dataclass
class _FaultReader:
    """A reader of one fault. A missing or invalid value is reported, and read as None.

    *ranks* and *links* map names to values; without a cluster, both are None.
    """

    reading: DocumentReading
    ranks: Mapping[str, int] | None
    links: tuple[Sequence[Link], LinkNames] | None
    seed: int
    number: int
    spec: Any
    period_s: float | None = None  # a flap's period; the link is cut for the fraction *down* of each
    down: float = 0.5

    def makes(self, of_kind: type[Fault]) -> bool:
        return issubclass(self.kind.make, of_kind)

    @property
    def path(self) -> tuple[Any, ...]:
        return ("faults", self.number)

    def read(self) -> Fault | None:
        if not isinstance(self.spec, dict):
            self.reading.bad(self.path, "a fault like {kind: crash, node: NAME, at: TIME}")
            return None
        kind = self.spec.get("kind", "")
        if not isinstance(kind, str) or kind not in KINDS:
            self.reading.bad((*self.path, "kind"), f"a kind of fault: {nearest(str(kind), KINDS)}")
            return None
        before = len(self.reading.problems)
        self.kind = KINDS[kind]
        self.keys = self.kind.keys
        known = ("kind", "at", *self.keys)
        self.fields = Fields(self.reading.document, self.path, known, self.reading.problems)
        settings, spells = self.settings(), self.spells()
        if len(self.reading.problems) > before or spells is None:
            return None
        step = self.spec.get(AT_STEP)
        return self.kind.make(spells=spells, step=step, spec=dict(self.spec), **settings)

    # The times of the fault.

    def spells(self) -> tuple[Spell, ...] | None:
        at_s = self.at_s()
        lasts_s = self.duration()
        starts = self.starts(at_s)
        if lasts_s is None or starts is None:
            return None
        return united([spell for start_s in starts for spell in self.spells_from(start_s, lasts_s)])

    def at_s(self) -> float | None:
        """Return the start of the first spell, in seconds of the run or, with `at_step`, after that
        step.
        """
        if not self.fields.has(AT_STEP):
            self.needs("at", "the time of the first one, like 1.5 s" + (", or at_step" if AT_STEP in self.keys else ""))
            return self.fields.value("at", values.quantity(parse_latency, TIMES))
        for other in ("at", *REPEATED):
            if self.fields.has(other):
                self.fields.problem(other, expected="none with at_step, a moment after which it begins once")
        return None if self.fields.value(AT_STEP, values.whole(1, MOST_STEPS)) is None else 0.0

    def spells_from(self, start_s: float, lasts_s: float) -> Iterator[Spell]:
        """Yield the spells that one start leads to.

        A flap has one spell per period, and the spell of a join is the time before the start.
        """
        if not self.makes(kinds.Flap):
            yield (0.0, start_s) if self.makes(kinds.Join) else (start_s, start_s + lasts_s)
            return
        if self.period_s is None:
            return
        end_s, number = start_s + lasts_s, 0
        while (from_s := start_s + number * self.period_s) < end_s:
            if number == SPELLS_LIMIT:
                self.fields.problem("period", expected=f"a longer one: at most {SPELLS_LIMIT} of them")
                return
            yield from_s, min(from_s + self.down * self.period_s, end_s)
            number += 1

    def duration(self) -> float | None:
        """Return the duration of each spell in seconds.

        It is infinite if the file states none, and 0 for a reset.
        """
        if self.makes(kinds.Reset):
            return 0.0
        key = next((key for key in ("after", "notice") if key in self.keys), "for")
        if key not in self.keys:
            return inf
        if key in self.kind.required:
            self.needs(key, "a time, like 500 ms")
        elif not self.fields.has(key):
            if any(self.fields.has(other) for other in REPEATED):
                self.fields.problem(key, expected="the duration of each of them, since there are several")
            return NOTICE_S if key == "notice" else inf
        return self.fields.value(key, values.time)

    def starts(self, at_s: float | None) -> list[float] | None:
        """Return the start of each spell in seconds; None if a value is missing or invalid."""
        given = [key for key in ("every", "mean_every") if self.fields.has(key)]
        if not given and not self.fields.has("times"):
            return None if at_s is None else [at_s]
        if len(given) != 1:
            self.fields.problem(
                "times" if not given else "mean_every",
                expected="every or mean_every, one of them: the time from one start to the next",
            )
            return None
        self.needs("times", "how many there are, like 5")
        gap_s = self.fields.value(given[0], values.time)
        times = self.fields.value("times", values.whole(1, SPELLS_LIMIT))
        if at_s is None or gap_s is None or times is None:
            return None
        if given == ["every"]:
            return [at_s + number * gap_s for number in range(times)]
        gaps = numpy_stream(self.seed, "faults", str(self.number)).exponential(gap_s, times - 1)
        return [at_s, *(at_s + gaps.cumsum()).tolist()]

    # The target of the fault.

    def needs(self, key: str, expected: str) -> None:
        if not self.fields.has(key):
            self.fields.problem(key, expected=expected)

    def settings(self) -> dict[str, Any]:
        """Return the fields of the fault's class, apart from those that all faults have."""
        if self.makes(kinds.Flap):
            self.needs("period", "a time, like 500 ms")
            self.period_s = self.fields.value("period", values.time)
            self.down = self.fields.value("down", SHARE_DOWN.value) or self.down
        found: dict[str, Any] = {"groups": self.groups()} if "groups" in self.keys else self.rank_or_link()
        for key, own in self.kind.own.items():
            self.needs(key, own.expected)
            found[own.field] = self.fields.value(key, own.value)
        return found

    def rank_or_link(self) -> dict[str, Any]:
        return {"rank": self.rank()} if "node" in self.keys else self.link()

    def rank(self) -> int | None:
        self.needs("node", "the name of a worker")
        name = self.fields.get("node")
        return None if name is MISSING or self.ranks is None else self.rank_of(name, self.ranks, "node")

    def rank_of(self, name: Any, ranks: Mapping[str, int], *key: Any) -> int | None:
        rank = ranks.get(name) if isinstance(name, str) else None
        if rank is None:
            self.reading.bad((*self.path, *key), f"a worker: {nearest(str(name), ranks)}")
        return rank

    def link(self) -> dict[str, Any]:
        """Return the fields *link*, the link's name in the topology, and *towards*, None for both
        directions.
        """
        self.needs("link", "the name of a link, like pi5-mini1")
        name, towards = self.fields.get("link"), self.fields.get("towards")
        links, names = self.links or ((), LinkNames(()))
        index = names.index(name)
        if index is None:
            if name is not MISSING and self.links is not None:
                self.fields.problem("link", expected=f"a link: {names.expected(name)}")
            return {"link": "", "towards": None}
        found = links[index]
        if towards is MISSING:
            return {"link": found.name, "towards": None}
        if towards not in (found.a, found.b):
            self.fields.problem("towards", expected=f"an end of that link: {found.a} or {found.b}")
        elif found.duplex == "half" and self.makes(kinds.Bandwidth):
            self.fields.problem("towards", found=f"one way of {found.name}", expected="both: half duplex is one medium")
        return {"link": found.name, "towards": towards}

    def groups(self) -> tuple[tuple[int, ...], ...]:
        groups = self.fields.get("groups")
        if not (isinstance(groups, list) and len(groups) > 1 and all(isinstance(g, list) and g for g in groups)):
            self.fields.problem("groups", expected="two lists of workers or more, like [[a, b], [c]]")
            return ()
        if self.ranks is None:
            return ()
        seen: set[str] = set()
        found = []
        for i, group in enumerate(groups):
            for j, name in enumerate(group):
                if str(name) in seen:
                    self.reading.bad((*self.path, "groups", i, j), "every node in one group at most")
                seen.add(str(name))
            ranks = [self.rank_of(name, self.ranks, "groups", i, j) for j, name in enumerate(group)]
            found.append(tuple(rank for rank in ranks if rank is not None))
        return tuple(found)
