"""Reads one node of a topology document."""

from __future__ import annotations

import ipaddress
import math
import re
from typing import NamedTuple

from simcluster.documents.fields import Fields
from simcluster.documents.yaml import Document, KeyPath
from simcluster.errors import Problem
from simcluster.topology.model.model import Node
from simcluster.topology.model.spread import NODE_SPREAD_KEYS
from simcluster.topology.read.devices import DEVICE_KEYS, read_device
from simcluster.topology.read.launch import LAUNCH_KEYS, read_launch
from simcluster.topology.read.spread import read_spread
from simcluster.units import parse_bandwidth, parse_latency, parse_size

MESSAGE_KEYS = ("send_overhead", "recv_overhead", "host_bandwidth", "send_buffer")
NODE_KEYS = ("kind", *DEVICE_KEYS, *MESSAGE_KEYS, "address", "port", "ssh", *LAUNCH_KEYS, "site", "gateway", "spread")
SWITCH_KEYS = ("kind", "site")
HOST_KEYS = ("kind", "site", "gateway")

NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
NODE_NAME_EXPECTED = "letters, digits, _ and -, at most 64, and no - at the start"
# What goes to the ssh command must never look like one of its options.
_SSH = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_SITE = re.compile(r"[^\x00-\x1f]{1,64}")


class ReadNode(NamedTuple):
    """*node* is None if something in it is wrong; the rest is known as far as it could be read."""

    node: Node | None
    gateway: bool
    may_be_worker: bool
    may_be_switch: bool


def read_node(document: Document, name: str, problems: list[Problem]) -> ReadNode:
    """The node called *name* of the document."""
    path: KeyPath = ("nodes", name)
    before = len(problems)
    if document.get(path) is None:
        document.data["nodes"][name] = {}
    fields = Fields(document, path, NODE_KEYS, problems)
    if not NODE_NAME.fullmatch(name):
        fields.problem(found=repr(name), expected=f"a name of {NODE_NAME_EXPECTED}", at_key=True)
    if not fields.is_mapping:
        return ReadNode(None, True, True, True)
    kind = fields.choice("kind", ("worker", "host", "switch"))
    if kind == "switch":
        for key in fields.data:
            if key in NODE_KEYS and key not in SWITCH_KEYS:
                fields.problem(key, found="it on a switch", expected="none: a switch only forwards", at_key=True)
        site = fields.text("site", _SITE, "the name of a place")
        node = Node(name, site=site) if len(problems) == before else None
        return ReadNode(node, True, False, True)
    gateway = fields.flag("gateway") is not False
    if kind == "host" and not any(key in fields.data for key in NODE_KEYS if key not in HOST_KEYS):
        # An end of plain flows: nothing computes there, so it has no device and no rank.
        site = fields.text("site", _SITE, "the name of a place")
        node = Node(name, site=site, gateway=gateway, is_host=True) if len(problems) == before else None
        return ReadNode(node, gateway, False, True)
    node = _read_worker(fields, name, gateway)
    kind_unknown = kind is None and fields.has("kind")
    return ReadNode(node if len(problems) == before else None, gateway, True, kind_unknown)


def _read_worker(fields: Fields, name: str, gateway: bool) -> Node | None:
    device = read_device(fields)
    port = fields.whole("port", 1, 65535)
    address = _read_address(fields)
    if port is not None and not fields.has("address"):
        fields.problem("port", found="a port without an address", expected="an address beside it")
    ssh = fields.text("ssh", _SSH, "[user@]host, as the ssh command takes it")
    site = fields.text("site", _SITE, "the name of a place")
    send_s, recv_s = (fields.quantity(key, parse_latency) or 0.0 for key in ("send_overhead", "recv_overhead"))
    host_Bps = fields.quantity("host_bandwidth", parse_bandwidth) or math.inf
    buffer_bytes = fields.quantity("send_buffer", parse_size) or 0
    launch = read_launch(fields)
    spread = read_spread(fields, NODE_SPREAD_KEYS)
    if device is None:
        return None
    overheads = (send_s, recv_s, host_Bps, buffer_bytes)
    return Node(name, device, address, port, ssh, site, gateway, False, *overheads, *launch, spread)


def _read_address(fields: Fields) -> str | None:
    value = fields.get("address")
    if isinstance(value, str):
        try:
            ipaddress.ip_address(value)
            return value
        except ValueError:
            # Four numbers with dots are an IP address with a mistake, not a host's name.
            if re.fullmatch(r"[\d.]+", value):
                fields.problem("address", expected="an IP address or a host's name")
                return None
    return fields.text("address", _HOST, "an IP address or a host's name")
