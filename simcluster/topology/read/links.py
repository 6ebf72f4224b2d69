"""Read the links of a topology document."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any, ClassVar, get_args

from pydantic import Field

from simcluster.documents.models import Block, Faults, Given, WrongValue, fault, tried
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import (
    LOST,
    MOST_LOST,
    Bandwidth,
    Latency,
    Schema,
    ValueValidator,
    number,
    one_of,
    text,
)
from simcluster.errors import MOST_PROBLEMS
from simcluster.spelling import nearest
from simcluster.topology.model.link import Duplex, Link
from simcluster.topology.model.parallel import MOST_PARALLEL, numbers_of
from simcluster.topology.model.spread import NONE
from simcluster.topology.presets.links import LINKS
from simcluster.topology.read.conditions import BackgroundOf, JitterOf, LatencyTraceOf, RateTraceOf
from simcluster.topology.read.spread import LinkSpread

_MEDIUM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MEDIUM_EXPECTED = "a name of letters, digits, _ and -, at most 64: links of one medium share the air"


Ends = tuple[str, str]


def _read_ends(value: object) -> Ends:
    # YAML reads the name of a node called 7 as a number.
    if isinstance(value, list) and len(value) == 2 and all(type(end) in (str, int) for end in value):
        return str(value[0]), str(value[1])
    raise WrongValue("two names of nodes: [a, b]")


def _read_subnet(value: object) -> str:
    try:
        return str(ipaddress.ip_network(value if isinstance(value, str) else ""))
    except ValueError:
        raise WrongValue("a network of addresses, such as 10.0.0.0/24") from None


_SUBNET: Schema = {"type": "string", "description": "The addresses that the link carries, such as 10.0.0.0/24."}
_ENDS: Schema = {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2}
_share = number(lambda x: 0 <= x < 1, "a number from 0 to below 1", minimum=0, exclusiveMaximum=1)
_lost = number(lambda x: 0 <= x <= MOST_LOST, f"a share of packets from 0 to {LOST}", minimum=0, maximum=MOST_LOST)


class LinkBlock(Block):
    """A link in a topology document, with the fields of Link."""

    rules: ClassVar[Schema] = {"anyOf": [{"required": ["type"]}, {"required": ["bandwidth", "latency"]}]}
    between: Annotated[Ends, ValueValidator(_read_ends, _ENDS)]
    type: Annotated[str, one_of(LINKS)] | None = None
    bandwidth_Bps: Bandwidth | None = Field(None, alias="bandwidth")
    latency_s: Latency | None = Field(None, alias="latency")
    duplex: Annotated[Duplex, one_of(get_args(Duplex))] | None = None
    ack_share: Annotated[float, _share] = 0.0
    jitter: JitterOf | None = None
    loss: Annotated[float, _lost] = 0.0
    trace: RateTraceOf | None = None
    latency_trace: LatencyTraceOf | None = None
    background: BackgroundOf | None = None
    medium: Annotated[str, text(_MEDIUM, _MEDIUM_EXPECTED)] | None = None
    spread: LinkSpread = NONE
    subnet: Annotated[str, ValueValidator(_read_subnet, _SUBNET)] | None = None

    @classmethod
    def faults(cls, given: Given) -> Faults:
        for key in ("bandwidth", "latency"):
            if key not in given and "type" not in given:
                yield fault(key, expected=f"a {key} with its unit, or a type (one of {', '.join(LINKS)})")
        kind, duplex = given.get("type"), given.get("duplex")
        if duplex is None and isinstance(kind, str) and kind in LINKS:
            duplex = LINKS[kind].duplex
        if "medium" in given:
            if given.get("duplex", "half") != "half":
                yield fault("duplex", expected="half, or none: both ways share the medium")
            if "trace" in given:
                yield fault("trace", found="it with a medium", expected="one of the two", at_key=True)
        elif duplex == "free":
            for key in ("trace", "background"):
                if key in given:
                    yield fault(key, found="it with duplex free", expected="none: flows share nothing", at_key=True)

    def link(self) -> Link:
        """Return the link; its type provides the numbers that are missing."""
        given: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(self, name)) is not None}
        source = "given in the topology"
        if self.type is not None:
            preset = LINKS[self.type]
            keys = ", ".join(name.partition("_")[0] for name in given)
            source = preset.source + (f"; {keys} {source}" if keys else "")
            given = {name: getattr(preset, name) for name in _NUMBERS} | given
        if self.medium is not None:
            given["duplex"] = "half"
        if self.trace is not None:
            given["trace"] = self.trace.trace(given["bandwidth_Bps"])
        if self.latency_trace is not None:
            given["latency_trace"] = self.latency_trace.trace(given["latency_s"])
        own = {name: getattr(self, name) for name in self.model_fields_set & _SAME}
        a, b = self.between
        return Link(a, b, source=source, **given, **own)


_NUMBERS = ("bandwidth_Bps", "latency_s", "duplex")
_SAME = frozenset({"type", "ack_share", "jitter", "loss", "background", "medium", "spread", "subnet"})
LINK_KEYS = LinkBlock.known.names


def read_links(reading: DocumentReading, nodes: Collection[str]) -> tuple[list[Link | None], list[Ends | None]]:
    """Return (all links, both ends of each), with None for a link or ends that cannot be read.

    Report ends that are not in *nodes*, links from a node to itself, and duplicate links.
    """
    given = reading.document.data.get("links")
    given = given if isinstance(given, list) else []
    blocks = [reading.read(LinkBlock.read, ("links", index)) for index in range(len(given))]
    between = (reading.document.get(("links", index, "between")) for index in range(len(given)))
    ends = [tried([], _read_ends, pair) for pair in between]
    first: dict[str, tuple[int, frozenset[str]]] = {}
    for index, pair in enumerate(ends):
        if len(reading.problems) > MOST_PROBLEMS:
            break
        if pair is not None:
            _check_ends(reading, index, pair, nodes, first)
    for both, times in Counter(frozenset(pair) for pair in ends if pair is not None).items():
        if times > MOST_PARALLEL:
            found = f"{times} links between {' and '.join(sorted(both))}"
            reading.bad(("links",), f"at most {MOST_PARALLEL} between the same two nodes", found)
    links = [
        None if block is None else replace(block.link(), number=number)
        for block, number in zip(blocks, numbers_of(ends), strict=True)
    ]
    return links, ends


def _check_ends(
    reading: DocumentReading,
    index: int,
    ends: Ends,
    nodes: Collection[str],
    first: dict[str, tuple[int, frozenset[str]]],
) -> None:
    """Report ends that are unknown or equal, and links with the name of an earlier one elsewhere.

    *first* maps the name of each link to its index and ends. The links from a-b to c and from a to
    b-c would have the same name.
    """
    (a, b), path = ends, ("links", index, "between")
    for position, end in enumerate(ends):
        if end not in nodes and nodes:
            reading.bad((*path, position), nearest(end, nodes), f"unknown node {end!r}")
    if a == b:
        reading.bad(path, "two nodes", f"a link from {a} to itself")
    elif a in nodes and b in nodes:
        earlier, others = first.setdefault(f"{a}-{b}", (index, frozenset(ends)))
        if others != frozenset(ends):
            line = reading.document.mark(("links", earlier))
            place = f"line {line[0]}" if line else f"links[{earlier}]"
            reading.bad(path, f"one (the first is {place})", f"a second link called {a}-{b}")
