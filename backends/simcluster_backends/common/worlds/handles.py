"""The handles of one world: each act is a fault, begun and ended like those of a fault plan."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from simcluster.documents.values import LOST, MOST_LOST
from simcluster.errors import ENDED, UsageError
from simcluster.fault_plans import kinds
from simcluster.rng import numpy_stream
from simcluster.spelling import nearest
from simcluster.topology.model.parallel import LinkNames
from simcluster_backends.common.worlds.acts import WorldActs, number

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Link


class LinkControl:
    """See `simcluster.worlds.LinkHandle`."""

    __slots__ = ("_acts", "_ends", "_fields", "_link", "_spec", "_towards", "name")

    def __init__(self, acts: WorldActs, link: Link, towards: str | None) -> None:
        self.name = link.name
        self._acts = acts
        self._link = link
        self._towards = towards
        self._ends = (link.b, link.a) if towards is None else (towards,)
        self._spec = {"link": link.name, **({} if towards is None else {"towards": towards})}
        self._fields = {"link": link.name, "towards": towards}

    def _own(self, kind: type[kinds.LinkCondition], planned: float) -> float:
        """Return the number that this world has set, or else *planned*, the topology's.

        A handle of both directions returns the number towards the second end.
        """
        value, _ = self._acts.conditions.get((kind, self.name, self._ends[0]), (planned, 0.0))
        return value

    def _set(self, kind: type[kinds.LinkCondition], value: float, *, changes: bool, **field: float) -> None:
        """Set *value* in the directions of this handle: the faults that bring it about have *field*."""
        acts = self._acts
        (of_fault,) = field.values()
        before = self._wanted(kind)
        for end in self._ends:
            acts.conditions.pop((kind, self.name, end), None)
            if changes:
                acts.conditions[kind, self.name, end] = (value, of_fault)
        wanted = self._wanted(kind)
        for towards in before:
            if before[towards] != wanted.get(towards):
                acts.end((kind, self.name, towards))
        for towards in wanted:
            if before.get(towards) != wanted[towards]:
                handle = LinkControl(acts, self._link, towards)
                fields = dict.fromkeys(field, wanted[towards])
                spec = {"kind": kind.__name__.lower(), **handle._spec, **fields}
                acts.begin((kind, self.name, towards), kind, spec, **handle._fields, **fields)

    def _wanted(self, kind: type[kinds.LinkCondition]) -> dict[str | None, float]:
        """Return the number of this world's fault towards each end, or of the one in both directions."""
        found = self._acts.conditions
        ends: dict[str | None, float] = {
            end: found[kind, self.name, end][1]
            for end in (self._link.a, self._link.b)
            if (kind, self.name, end) in found
        }
        alike = len(ends) == 2 and len({*ends.values()}) == 1
        return {None: ends[self._link.a]} if alike else ends

    @property
    def bandwidth_Bps(self) -> float:
        return self._own(kinds.Bandwidth, self._link.bandwidth_Bps)

    @bandwidth_Bps.setter
    def bandwidth_Bps(self, value: float) -> None:
        rate_Bps = number(f"bandwidth_Bps of {self.name}", value, "a number above 0", lambda x: 0.0 < x < inf)
        if self._towards is not None and self._link.duplex == "half":
            raise UsageError("towards", f"one way of {self.name}", "both: half duplex is one medium")
        factor = rate_Bps / self._link.bandwidth_Bps
        self._set(kinds.Bandwidth, rate_Bps, factor=factor, changes=factor != 1.0)

    @property
    def latency_s(self) -> float:
        return self._own(kinds.Latency, self._link.latency_s)

    @latency_s.setter
    def latency_s(self, value: float) -> None:
        latency_s = number(f"latency_s of {self.name}", value, "a number of at least 0", lambda x: 0.0 <= x < inf)
        extra_s = latency_s - self._link.latency_s
        self._set(kinds.Latency, latency_s, extra_s=extra_s, changes=extra_s != 0.0)

    @property
    def loss(self) -> float:
        return self._own(kinds.Loss, self._link.loss)

    @loss.setter
    def loss(self, value: float) -> None:
        least = self._link.loss
        expected = f"a number from {least:g}, the topology's, to {LOST}"
        loss = number(f"loss of {self.name}", value, expected, lambda x: least <= x <= MOST_LOST)
        added = 1.0 - (1.0 - loss) / (1.0 - least) if least else loss
        self._set(kinds.Loss, loss, probability=added, changes=loss != least)

    @property
    def bytes_sent(self) -> int:
        stage = self._acts.stage
        return sum(
            part_bytes
            for sender, receiver, size_bytes, by_route in stage.sent()
            for hop, part_bytes in stage.topology.carried(sender, receiver, size_bytes, by_route)
            if hop.link.name == self.name and self._towards in (None, hop.target)
        )

    def cut(self) -> None:
        if self._key in self._acts:
            raise UsageError("cut", f"{self.name}, which this world has cut", "heal() first")
        self._acts.begin(self._key, kinds.Cut, {"kind": "cut", **self._spec}, **self._fields)

    def heal(self) -> None:
        if self._key not in self._acts:
            raise UsageError("heal", f"{self.name}, which this world has not cut", "cut() first")
        self._acts.end(self._key)

    @property
    def _key(self) -> Hashable:
        return (kinds.Cut, self.name, self._towards)


class WorkerControl:
    """See `simcluster.worlds.WorkerHandle`."""

    __slots__ = ("_acts", "_rank", "_stage", "name")

    def __init__(self, acts: WorldActs, rank: int) -> None:
        self.name = acts.stage.topology.workers[rank]
        self._rank = rank
        self._acts = acts
        self._stage = acts.stage

    @property
    def alive(self) -> bool:
        return self._stage.lives(self._rank)

    @property
    def ended(self) -> bool:
        return self._stage.gone(self._rank) == ENDED

    @property
    def step(self) -> int:
        return self._stage.steps(self._rank)

    @property
    def speed(self) -> float:
        return self._acts.speeds.get(self._rank, 1.0)

    @speed.setter
    def speed(self, value: float) -> None:
        speed = number(f"speed of {self.name}", value, "a number above 0; freeze() stops a node", lambda x: 0 < x < inf)
        key = (kinds.Slow, self._rank)
        if key in self._acts:
            self._acts.end(key)
        self._acts.speeds[self._rank] = speed
        if speed != 1.0:
            factor = 1.0 / speed
            self._acts.begin(key, kinds.Slow, self._spec("slow", factor=factor), rank=self._rank, factor=factor)

    def crash(self, *, returns: bool = False) -> None:
        if self.ended:
            return
        down, gone = ("down", self._rank), ("gone", self._rank)
        if self._acts.has_begun(down) or self._acts.has_begun(gone):
            raise UsageError(
                "crash", f"{self.name}, which is down already: {self._stage.gone(self._rank)}", "a node that is alive"
            )
        if not self.alive:  # something else took it down
            if returns:
                self._acts.begin_nothing(down)
        elif returns:
            self._acts.begin(down, kinds.Restart, self._spec("restart"), rank=self._rank)
        else:
            self._acts.begin(gone, kinds.Crash, self._spec("crash"), rank=self._rank)

    def restart(self) -> None:
        if ("down", self._rank) in self._acts:
            self._acts.restarts += self._acts.has_begun(("down", self._rank))
            self._acts.end(("down", self._rank))
        elif not self.ended:
            raise UsageError("restart", self.name, "a node that this world has crashed by crash(returns=True)")

    def freeze(self) -> None:
        if ("frozen", self._rank) in self._acts:
            raise UsageError("freeze", f"{self.name}, which this world has frozen", "thaw() first")
        if self.alive:
            self._acts.begin(("frozen", self._rank), kinds.Hang, self._spec("hang"), rank=self._rank)
        else:
            self._acts.begin_nothing(("frozen", self._rank))

    def thaw(self) -> None:
        if ("frozen", self._rank) in self._acts:
            self._acts.end(("frozen", self._rank))
        elif self.alive:
            raise UsageError("thaw", f"{self.name}, which this world has not frozen", "freeze() first")

    def _spec(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "node": self.name, **more}


class TrafficControl:
    """See `simcluster.worlds.TrafficHandle`."""

    __slots__ = ("_acts",)

    def __init__(self, acts: WorldActs) -> None:
        self._acts = acts

    def stop(self) -> None:
        if self in self._acts:
            self._acts.end(self)


class ClusterControl:
    """See `simcluster.worlds.ClusterHandle`. *streams* has the random streams of the run by name."""

    __slots__ = ("_acts", "_links", "_names", "_nodes", "_streams")

    def __init__(self, acts: WorldActs, streams: dict[str, np.random.Generator]) -> None:
        topology = acts.stage.topology
        self._acts = acts
        self._streams = streams
        self._nodes = {name: WorkerControl(acts, rank) for rank, name in enumerate(topology.workers)}
        self._names = LinkNames([(link.a, link.b) for link in topology.links])
        self._links: dict[tuple[str, str | None], LinkControl] = {}

    @property
    def nodes(self) -> Sequence[WorkerControl]:
        return tuple(self._nodes.values())

    @property
    def links(self) -> Sequence[LinkControl]:
        return tuple(self._handle(link, None) for link in self._acts.stage.topology.links)

    def node(self, name: str) -> WorkerControl:
        if name not in self._nodes:
            raise UsageError("node", f"unknown node {name!r}", nearest(str(name), self._nodes))
        return self._nodes[name]

    def link(self, name: str, towards: str | None = None) -> LinkControl:
        index = self._names.index(name)
        if index is None:
            raise UsageError("link", f"unknown link {name!r}", self._names.expected(name))
        link = self._acts.stage.topology.links[index]
        if towards not in (None, link.a, link.b):
            raise UsageError("towards", repr(towards), f"an end of that link: {link.a} or {link.b}")
        return self._handle(link, towards)

    def _handle(self, link: Link, towards: str | None) -> LinkControl:
        key = (link.name, towards)
        if key not in self._links:
            self._links[key] = LinkControl(self._acts, link, towards)
        return self._links[key]

    def traffic(self, source: str, target: str, rate_Bps: float = inf) -> TrafficControl:
        ends = [self._known(end) for end in (source, target)]
        if source == target:
            raise UsageError("traffic", f"from {source} to itself", "two nodes")
        rate_Bps = number("rate_Bps", rate_Bps, "a number above 0", lambda x: x > 0.0)
        spec = {"kind": "traffic", "source": source, "to": target, "rate_Bps": None if rate_Bps == inf else rate_Bps}
        handle = TrafficControl(self._acts)
        self._acts.begin(handle, kinds.Traffic, spec, source=ends[0], to=ends[1], rate_Bps=rate_Bps)
        return handle

    def _known(self, name: str) -> str:
        nodes = self._acts.stage.topology.nodes
        if name not in nodes:
            raise UsageError("node", f"unknown node {name!r}", nearest(str(name), nodes))
        return name

    def rng(self, name: str) -> np.random.Generator:
        if name not in self._streams:
            self._streams[name] = numpy_stream(self._acts.stage.seed, "world", str(name))
        return self._streams[name]
