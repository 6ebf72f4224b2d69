"""Read the links of a topology document."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias, get_args

from pydantic import Field
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, WrongValue, fault, tried
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import Bandwidth, Latency, Schema, ValueValidator, number, one_of, text
from simcluster.errors import MOST_PROBLEMS, nearest
from simcluster.topology.model.model import Duplex, Link
from simcluster.topology.model.spread import NONE
from simcluster.topology.presets.links import LINKS
from simcluster.topology.read.conditions import BackgroundOf, JitterOf, RateTraceOf
from simcluster.topology.read.spread import LinkSpread

_MEDIUM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MEDIUM_EXPECTED = "a name of letters, digits, _ and -, at most 64: links of one medium share the air"


Ends: TypeAlias = tuple[str, str]


def _read_ends(value: object) -> Ends:
    # A node may be called 7, and 7 is a number to YAML.
    if isinstance(value, list) and len(value) == 2 and all(type(end) in (str, int) for end in value):
        return str(value[0]), str(value[1])
    raise WrongValue("two names of nodes: [a, b]")


_ENDS: Schema = {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2}
_share = number(lambda x: 0 <= x < 1, "a number from 0 to below 1", minimum=0, exclusiveMaximum=1)
_lost = number(lambda x: 0 <= x < 1, "a number from 0 to below 1, a share of packets", minimum=0, exclusiveMaximum=1)


class LinkBlock(Block):
    """A link, by the fields of Link."""

    rules: ClassVar[dict[str, Any]] = {"anyOf": [{"required": ["type"]}, {"required": ["bandwidth", "latency"]}]}
    between: Annotated[Ends, ValueValidator(_read_ends, _ENDS)]
    type: Annotated[str, one_of(LINKS)] | None = None
    bandwidth_Bps: Bandwidth | None = Field(None, alias="bandwidth")
    latency_s: Latency | None = Field(None, alias="latency")
    duplex: Annotated[Duplex, one_of(get_args(Duplex))] | None = None
    ack_share: Annotated[float, _share] = 0.0
    jitter: JitterOf | None = None
    loss: Annotated[float, _lost] = 0.0
    trace: RateTraceOf | None = None
    background: BackgroundOf | None = None
    medium: Annotated[str, text(_MEDIUM, _MEDIUM_EXPECTED)] | None = None
    spread: LinkSpread = NONE

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
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
        """Return the link, with its type's numbers as defaults."""
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
        own = {name: getattr(self, name) for name in self.model_fields_set & _SAME}
        a, b = self.between
        return Link(a, b, source=source, **given, **own)


_NUMBERS = ("bandwidth_Bps", "latency_s", "duplex")
_SAME = frozenset({"type", "ack_share", "jitter", "loss", "background", "medium", "spread"})
LINK_KEYS = LinkBlock.known.names


def read_links(reading: DocumentReading, nodes: Collection[str]) -> tuple[list[Link | None], list[Ends | None]]:
    """Return (links between *nodes*, their ends), None for what could not be read."""
    given = reading.document.data.get("links")
    given = given if isinstance(given, list) else []
    blocks = [reading.read(LinkBlock.read, ("links", index)) for index in range(len(given))]
    between = (reading.document.get(("links", index, "between")) for index in range(len(given)))
    ends = [tried([], _read_ends, pair) for pair in between]
    first: dict[frozenset[str] | str, int] = {}
    for index, pair in enumerate(ends):
        if len(reading.problems) > MOST_PROBLEMS:
            break
        if pair is not None:
            _check_ends(reading, index, pair, nodes, first)
    return [None if block is None else block.link() for block in blocks], ends


def _check_ends(
    reading: DocumentReading, index: int, ends: Ends, nodes: Collection[str], first: dict[frozenset[str] | str, int]
) -> None:
    """Report unknown nodes, and links that are not the *first* between two nodes or of a name (a-b to c, a to b-c)."""
    (a, b), path = ends, ("links", index, "between")
    for position, end in enumerate(ends):
        if end not in nodes and nodes:
            reading.bad((*path, position), nearest(end, nodes), f"unknown node {end!r}")
    if a == b:
        reading.bad(path, "two nodes", f"a link from {a} to itself")
    elif a in nodes and b in nodes:
        same, called = first.setdefault(frozenset(ends), index), first.setdefault(f"{a}-{b}", index)
        if same == called == index:
            return
        earlier, found = (same, f"between {a} and {b}") if same != index else (called, f"called {a}-{b}")
        line = reading.document.mark(("links", earlier))
        place = f"line {line[0]}" if line else f"links[{earlier}]"
        reading.bad(path, f"one (the first is {place})", f"a second link {found}")
