"""Reads one link of a topology document."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast, get_args

from simcluster.documents.fields import Fields
from simcluster.documents.yaml import Document
from simcluster.errors import Problem
from simcluster.topology.model.model import Duplex, Link
from simcluster.topology.model.spread import LINK_SPREAD_KEYS
from simcluster.topology.presets.links import LINKS
from simcluster.topology.read.conditions import read_background, read_jitter, read_rate_trace
from simcluster.topology.read.spread import read_spread
from simcluster.units import parse_bandwidth, parse_latency

LINK_KEYS = (
    "between",
    "type",
    "bandwidth",
    "latency",
    "duplex",
    "ack_share",
    "jitter",
    "loss",
    "trace",
    "background",
    "medium",
    "spread",
)

_MEDIUM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MEDIUM_EXPECTED = "a name of letters, digits, _ and -, at most 64: links of the same share the air"


class ReadLink(NamedTuple):
    """*ends* is None if they could not be read, *link* if anything could not."""

    link: Link | None
    ends: tuple[str, str] | None


def read_link(document: Document, index: int, problems: list[Problem]) -> ReadLink:
    """The link at *index* of the document's list."""
    before = len(problems)
    fields = Fields(document, ("links", index), LINK_KEYS, problems)
    if not fields.is_mapping:
        return ReadLink(None, None)
    ends = _read_ends(fields)
    type_name = fields.choice("type", LINKS)
    preset = LINKS[type_name] if type_name is not None else None
    bandwidth_Bps = fields.quantity("bandwidth", parse_bandwidth)
    latency_s = fields.quantity("latency", parse_latency)
    duplex = fields.choice("duplex", get_args(Duplex))
    source = "given in the topology"
    if preset is not None:
        given = [key for key in ("bandwidth", "latency", "duplex") if fields.has(key)]
        source = preset.source + (f"; {', '.join(given)} given in the topology" if given else "")
        bandwidth_Bps = preset.bandwidth_Bps if bandwidth_Bps is None else bandwidth_Bps
        latency_s = preset.latency_s if latency_s is None else latency_s
        duplex = duplex or preset.duplex
    elif not fields.has("type"):
        for key, what in (("bandwidth", "a bandwidth"), ("latency", "a latency")):
            if not fields.has(key):
                types = ", ".join(LINKS)
                fields.problem(key, expected=f"{what} with its unit, or a type (one of {types})")
    conditions = _read_conditions(fields, bandwidth_Bps)
    if conditions["medium"] is not None:
        duplex = "half"
    _check_together(fields, duplex)
    if ends is None or len(problems) > before:
        return ReadLink(None, ends)
    assert bandwidth_Bps is not None
    assert latency_s is not None
    kind = cast(Duplex, duplex or "full")
    return ReadLink(Link(*ends, bandwidth_Bps, latency_s, kind, type_name, source, **conditions), ends)


def _read_conditions(fields: Fields, bandwidth_Bps: float | None) -> dict[str, Any]:
    """What makes the link less than its numbers, by the fields of Link."""
    ack_share = fields.number("ack_share", lambda share: 0 <= share < 1, "a number from 0 to below 1")
    loss = fields.number("loss", lambda share: 0 <= share < 1, "a number from 0 to below 1, a share of packets")
    return {
        "ack_share": ack_share or 0.0,
        "loss": loss or 0.0,
        "jitter": read_jitter(fields) if fields.has("jitter") else None,
        "trace": read_rate_trace(fields, bandwidth_Bps) if fields.has("trace") else None,
        "background": read_background(fields) if fields.has("background") else None,
        "medium": fields.text("medium", _MEDIUM, _MEDIUM_EXPECTED),
        "spread": read_spread(fields, LINK_SPREAD_KEYS),
    }


def _check_together(fields: Fields, duplex: str | None) -> None:
    """Keys that would contradict each other."""
    if fields.has("medium"):
        if fields.has("duplex") and fields.get("duplex") != "half":
            fields.problem("duplex", expected="half, or none: both ways share the medium")
        if fields.has("trace"):
            fields.problem("trace", found="it with a medium", expected="one of both", at_key=True)
    if duplex == "free":
        for key in ("trace", "background"):
            if fields.has(key):
                fields.problem(key, found="it with duplex free", expected="none: flows share nothing", at_key=True)


def _read_ends(fields: Fields) -> tuple[str, str] | None:
    value = fields.get("between")
    # A node may be called 7, and 7 is a number to YAML.
    if isinstance(value, list) and len(value) == 2 and all(type(end) in (str, int) for end in value):
        return str(value[0]), str(value[1])
    fields.problem("between", expected="two names of nodes: [a, b]")
    return None
