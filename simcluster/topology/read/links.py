"""Reads one link of a topology document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, PlainValidator
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Wrong, fault
from simcluster.documents.values import Bandwidth, Latency, number, one_of, text
from simcluster.topology.model.model import Duplex, Link
from simcluster.topology.model.spread import NONE
from simcluster.topology.presets.links import LINKS
from simcluster.topology.read.conditions import BackgroundOf, JitterOf, RateTraceOf
from simcluster.topology.read.spread import LinkSpread

_MEDIUM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MEDIUM_EXPECTED = "a name of letters, digits, _ and -, at most 64: links of one medium share the air"


def read_ends(value: object) -> tuple[str, str]:
    """Return the two node names in *value*."""
    # A node may be called 7, and 7 is a number to YAML.
    if isinstance(value, list) and len(value) == 2 and all(type(end) in (str, int) for end in value):
        return str(value[0]), str(value[1])
    raise Wrong("two names of nodes: [a, b]")


class LinkBlock(Block):
    """A link, by the fields of Link."""

    between: Annotated[tuple[str, str], PlainValidator(read_ends)]
    type: Annotated[str, one_of(LINKS)] | None = None
    bandwidth_Bps: Bandwidth | None = Field(None, alias="bandwidth")
    latency_s: Latency | None = Field(None, alias="latency")
    duplex: Annotated[Duplex, one_of(get_args(Duplex))] | None = None
    ack_share: Annotated[float, number(lambda share: 0 <= share < 1, "a number from 0 to below 1")] = 0.0
    jitter: JitterOf | None = None
    loss: Annotated[float, number(lambda x: 0 <= x < 1, "a number from 0 to below 1, a share of packets")] = 0.0
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
        a, b = self.between
        return Link(
            a, b, source=source, **given, **{name: getattr(self, name) for name in self.model_fields_set & _SAME}
        )


_NUMBERS = ("bandwidth_Bps", "latency_s", "duplex")
_SAME = frozenset({"type", "ack_share", "jitter", "loss", "background", "medium", "spread"})
LINK_KEYS = LinkBlock.known.names
