"""Reads the faults of an experiment: targets, kinds and times. Reports all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from simcluster.documents import values
from simcluster.documents.fields import Fields
from simcluster.documents.reading import Reading
from simcluster.documents.yaml import MISSING
from simcluster.errors import MOST_PROBLEMS, nearest
from simcluster.fault_plans import kinds as kinds
from simcluster.fault_plans.kinds import NOTICE_S, Fault, Spell, united
from simcluster.rng import numpy_stream
from simcluster.topology import Topology
from simcluster.units import parse_latency

SPELLS_LIMIT = 10_000
"""Limit on the spells of one fault: a flap of an hour with periods of a third of a second."""

FAULTS_LIMIT = 100_000
SPELLS_IN_ALL_LIMIT = 1_000_000

_REPEATED = ("every", "mean_every", "times")


def read_faults(reading: Reading, cluster: Topology | None, seed: int) -> tuple[Fault, ...]:
    """Return the faults of the document, in its order; without a *cluster*, nodes and links are not checked."""
    faults = reading.document.data.get("faults") or []
    if not isinstance(faults, list):
        reading.bad(("faults",), "a list of faults, each like {kind: crash, node: NAME, at: TIME}")
        return ()
    if len(faults) > FAULTS_LIMIT:
        reading.bad(("faults",), f"at most {FAULTS_LIMIT} faults: one with `every` and `times` stands for many")
        return ()
    found: list[Fault] = []
    joins: set[int] = set()
    names = None if cluster is None else _Names(cluster)
    spells = 0
    for number, spec in enumerate(faults):
        if len(reading.problems) > MOST_PROBLEMS:
            break
        fault = _Reader(reading, names, seed, number, spec).read()
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


class _Names:
    """The workers of a cluster by name, and its links by either spelling: looked up once for all faults."""

    def __init__(self, cluster: Topology) -> None:
        self.ranks = {name: rank for rank, name in enumerate(cluster.workers)}
        self.links = {either: link for link in cluster.links for either in (link.name, f"{link.b}-{link.a}")}


class _Reader:
    """Reads one fault. Missing or invalid values are reported, and read as None."""

    def __init__(self, reading: Reading, names: _Names | None, seed: int, number: int, spec: Any) -> None:
        self.reading, self.names, self.seed, self.number, self.spec = reading, names, seed, number, spec
        self.path = ("faults", number)
        self.period_s: float | None = None  # of a flap, and the share of it that is cut
        self.down = 0.5

    def read(self) -> Fault | None:
        kind = self.spec.get("kind") if isinstance(self.spec, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            at = (*self.path, "kind") if isinstance(self.spec, dict) else self.path
            self.reading.bad(at, f"a kind of fault: {nearest(str(kind), KINDS)}")
            return None
        before = len(self.reading.problems)
        known = KINDS[kind]
        self.fields = Fields(self.reading.document, self.path, ("kind", "at", *known.keys), self.reading.problems)
        self.known = known
        settings = known.read(self)
        spells = self.spells()
        if len(self.reading.problems) > before or spells is None:
            return None
        return known.make(spells=spells, spec=dict(self.spec), **settings)

    # when

    def spells(self) -> tuple[Spell, ...] | None:
        at_s = self.fields.quantity("at", parse_latency)
        self.needs("at", "the time of the first one, like 1.5 s")
        lasts_s = self.duration()
        starts = self.starts(at_s)
        if lasts_s is None or starts is None:
            return None
        return united([spell for start_s in starts for spell in self.known.spells(self, start_s, lasts_s)])

    def duration(self) -> float | None:
        """Return the duration of each spell: inf if the file does not say."""
        key = next((key for key in ("after", "notice") if key in self.known.keys), "for")
        if key not in self.known.keys:
            return inf
        if key in self.known.required:
            self.needs(key, "a time, like 500 ms")
        elif not self.fields.has(key):
            if any(self.fields.has(other) for other in _REPEATED):
                self.fields.problem(key, expected="the duration of each of them, since there are several")
            return NOTICE_S if key == "notice" else inf
        return self.fields.quantity(key, values.positive_time)

    def starts(self, at_s: float | None) -> list[float] | None:
        """Return the start of each spell."""
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
        gap_s = self.fields.quantity(given[0], values.positive_time)
        times = self.fields.value("times", values.whole(1, SPELLS_LIMIT))
        if at_s is None or gap_s is None or times is None:
            return None
        if given == ["every"]:
            return [at_s + number * gap_s for number in range(times)]
        gaps = numpy_stream(self.seed, "faults", str(self.number)).exponential(gap_s, times - 1)
        return [at_s, *(at_s + gaps.cumsum()).tolist()]

    # what

    def needs(self, key: str, expected: str) -> None:
        if not self.fields.has(key):
            self.fields.problem(key, expected=expected)

    def number_of(self, key: str, fits: Callable[[float], bool], expected: str) -> float | None:
        self.needs(key, expected)
        return self.fields.number(key, fits, expected)

    def rank(self, key: str = "node") -> int | None:
        self.needs(key, "the name of a worker")
        name = self.fields.get(key)
        if name is MISSING or self.names is None:
            return None
        return self.rank_of(name, key)

    def rank_of(self, name: Any, *key: Any) -> int | None:
        assert self.names is not None
        rank = self.names.ranks.get(name) if isinstance(name, str) else None
        if rank is None:
            self.reading.bad((*self.path, *key), f"a worker: {nearest(str(name), self.names.ranks)}")
        return rank

    def link(self) -> dict[str, Any]:
        """Return the link's name in the topology, and the end that a one-way fault is towards."""
        self.needs("link", "the name of a link, like pi5-mini1")
        name, towards = self.fields.get("link"), self.fields.get("towards")
        if name is MISSING or self.names is None:
            return {"link": "", "towards": None}
        links = self.names.links
        found = links.get(name) if isinstance(name, str) else None
        if found is None:
            self.fields.problem("link", expected=f"a link: {nearest(str(name), (n.name for n in links.values()))}")
            return {"link": "", "towards": None}
        if towards is MISSING:
            return {"link": found.name, "towards": None}
        if towards not in (found.a, found.b):
            self.fields.problem("towards", expected=f"an end of that link: {found.a} or {found.b}")
        elif found.duplex == "half" and self.spec["kind"] == "bandwidth":
            self.fields.problem("towards", found=f"one way of {found.name}", expected="both: half duplex is one medium")
        return {"link": found.name, "towards": towards}

    def groups(self) -> tuple[tuple[int, ...], ...]:
        groups, expected = self.fields.get("groups"), "two lists of workers or more, like [[a, b], [c]]"
        right = isinstance(groups, list) and len(groups) > 1 and all(isinstance(g, list) and g for g in groups)
        if not right:
            self.fields.problem("groups", expected=expected)
        if not right or self.names is None:
            return ()
        seen: set[Any] = set()
        ranks = []
        for i, group in enumerate(groups):
            for j, name in enumerate(group):
                if str(name) in seen:
                    self.reading.bad((*self.path, "groups", i, j), "every node in one group at most")
                seen.add(str(name))
            ranks.append([self.rank_of(name, "groups", i, j) for j, name in enumerate(group)])
        return tuple(tuple(rank for rank in group if rank is not None) for group in ranks)


@dataclass(frozen=True)
class _Kind:
    """*make* takes what *read* returns, and the spells, which *spells* makes from one start.

    *required* are the mandatory keys of time besides `at`.
    """

    make: Callable[..., Fault]
    read: Callable[[_Reader], dict[str, Any]]
    keys: tuple[str, ...]
    required: tuple[str, ...] = ()
    spells: Callable[[_Reader, float, float], Iterable[Spell]] = lambda _, start_s, lasts_s: [
        (start_s, start_s + lasts_s)
    ]


def _node(reader: _Reader) -> dict[str, Any]:
    return {"rank": reader.rank()}


def _slow(reader: _Reader) -> dict[str, Any]:
    return _node(reader) | {"factor": reader.number_of("factor", lambda x: x > 1, "a number above 1: times as slow")}


def _bandwidth(reader: _Reader) -> dict[str, Any]:
    expected = "a number above 0 and below 1: what is left of the bandwidth"
    return reader.link() | {"factor": reader.number_of("factor", lambda x: 0 < x < 1, expected)}


def _latency(reader: _Reader) -> dict[str, Any]:
    reader.needs("add", "the time that every message takes longer, like 20 ms")
    return reader.link() | {"extra_s": reader.fields.quantity("add", values.positive_time)}


def _loss(reader: _Reader) -> dict[str, Any]:
    expected = "a number above 0 and below 1: the share of packets lost"
    return reader.link() | {"probability": reader.number_of("probability", lambda x: 0 < x < 1, expected)}


def _flap(reader: _Reader) -> dict[str, Any]:
    reader.needs("period", "a time, like 500 ms")
    reader.period_s = reader.fields.quantity("period", values.positive_time)
    share = reader.fields.number(
        "down", lambda x: 0 < x < 1, "a number above 0 and below 1: the share of each period that is cut"
    )
    reader.down = 0.5 if share is None else share
    return reader.link()


def _flaps(reader: _Reader, start_s: float, lasts_s: float) -> Iterable[Spell]:
    if reader.period_s is None:
        return
    end_s, number = start_s + lasts_s, 0
    while (from_s := start_s + number * reader.period_s) < end_s:
        if number == SPELLS_LIMIT:
            reader.fields.problem("period", expected=f"a longer one: at most {SPELLS_LIMIT} of them")
            return
        yield from_s, min(from_s + reader.down * reader.period_s, end_s)
        number += 1


_LINK = ("link", "towards", "for", *_REPEATED)

KINDS = {
    "crash": _Kind(kinds.Crash, _node, ("node",)),
    "restart": _Kind(kinds.Restart, _node, ("node", "after", *_REPEATED), ("after",)),
    "join": _Kind(kinds.Join, _node, ("node",), spells=lambda _, start_s, lasts_s: [(0.0, start_s)]),
    "leave": _Kind(kinds.Leave, _node, ("node", "notice")),
    "hang": _Kind(kinds.Hang, _node, ("node", "for", *_REPEATED)),
    "slow": _Kind(kinds.Slow, _slow, ("node", "factor", "for", *_REPEATED)),
    "cut": _Kind(kinds.Cut, _Reader.link, _LINK),
    "flap": _Kind(kinds.Flap, _flap, ("link", "towards", "for", "period", "down"), ("for",), _flaps),
    "partition": _Kind(kinds.Partition, lambda reader: {"groups": reader.groups()}, ("groups", "for", *_REPEATED)),
    "latency": _Kind(kinds.Latency, _latency, (*_LINK, "add")),
    "bandwidth": _Kind(kinds.Bandwidth, _bandwidth, (*_LINK, "factor")),
    "loss": _Kind(kinds.Loss, _loss, (*_LINK, "probability")),
}
"""By name: the keys of each besides `kind` and `at`."""
