"""Reads one node of a topology document."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Wrong, fault, read
from simcluster.documents.values import Bandwidth, Flag, Latency, Size, text, whole
from simcluster.documents.yaml import Document
from simcluster.errors import Problem
from simcluster.topology.model.model import Node
from simcluster.topology.model.spread import NONE
from simcluster.topology.read.devices import DeviceBlock
from simcluster.topology.read.launch import LaunchBlock
from simcluster.topology.read.spread import NodeSpread

MESSAGE_KEYS = ("send_overhead", "recv_overhead", "host_bandwidth", "send_buffer")

NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
NODE_NAME_EXPECTED = "letters, digits, _ and -, at most 64, and no - at the start"
# An argument of ssh must never look like one of its options.
_SSH = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_SITE = re.compile(r"[^\x00-\x1f]{1,64}")


def _address(value: object) -> str:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        # Four numbers with dots are a mistyped IP address, not a host name.
        if not isinstance(value, str) or re.fullmatch(r"[\d.]+", value) or not _HOST.fullmatch(value):
            raise Wrong("an IP address or a host's name") from None
    return str(value)


Site = Annotated[str, text(_SITE, "the name of a place")]


class NodeBlock(LaunchBlock, DeviceBlock):
    """A worker, by the fields of Node."""

    send_overhead_s: Latency = Field(0.0, alias="send_overhead")
    recv_overhead_s: Latency = Field(0.0, alias="recv_overhead")
    host_bandwidth_Bps: Bandwidth = Field(math.inf, alias="host_bandwidth")
    send_buffer_bytes: Size = Field(0, alias="send_buffer")
    address: Annotated[str, PlainValidator(_address)] | None = None
    port: Annotated[int, whole(1, 65535)] | None = None
    ssh: Annotated[str, text(_SSH, "[user@]host, as the ssh command takes it")] | None = None
    site: Site | None = None
    gateway: Flag = True
    spread: NodeSpread = NONE

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        yield from super().faults(given)
        port = given.get("port")
        if isinstance(port, int) and 0 < port < 65536 and "address" not in given:
            yield fault("port", found="a port without an address", expected="an address, too")

    def node(self, name: str) -> Node:
        """Return the worker called *name*."""
        return Node(
            name,
            self.made(),
            command=self.words,
            **{key: getattr(self, key) for key in self.model_fields_set & _OF_NODE},
        )


NODE_KEYS = NodeBlock.known.names
_OF_NODE = frozenset({"processes", *NodeBlock.__annotations__})


class SwitchBlock(Block):
    """A node that only forwards."""

    kind: str
    site: Site | None = None

    @classmethod
    def unknown(cls, key: str) -> InitErrorDetails:
        if key not in NODE_KEYS:
            return NodeBlock.unknown(key)
        return fault(key, found="it on a switch", expected="none: a switch only forwards", at_key=True)


class HostBlock(SwitchBlock):
    """An end of plain flows: nothing computes there, so it has no device and no rank."""

    gateway: Flag = True


def read_node(document: Document, name: str, problems: list[Problem]) -> Node | None:
    """Return the node called *name* in the document, or None if it is invalid."""
    path = ("nodes", name)
    before = len(problems)
    if not NODE_NAME.fullmatch(name):
        expected = f"a name of {NODE_NAME_EXPECTED}"
        problems.append(document.problem(path, found=repr(name), expected=expected, at_key=True))
    nodes = document.data["nodes"]
    if nodes[name] is None:
        nodes[name] = {}
    block = _block_of(nodes[name])
    made: Any = read(block.read, document, path, problems)
    if made is None or len(problems) > before:
        return None
    if isinstance(made, NodeBlock):
        return made.node(name)
    return Node(name, site=made.site, gateway=getattr(made, "gateway", True), is_host=made.kind == "host")


def _block_of(given: Any) -> type[Block]:
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind == "switch":
        return SwitchBlock
    is_bare = kind == "host" and not any(key not in HostBlock.known.names for key in given if key in NODE_KEYS)
    return HostBlock if is_bare else NodeBlock


class Part:
    """A node as seen by its links, as far as known even if the node is invalid."""

    def __init__(self, node: Node | None, given: Any) -> None:
        self.node = node
        block = _block_of(given)
        kind = given.get("kind") if isinstance(given, dict) else ""
        self.gateway = block is SwitchBlock or not isinstance(given, dict) or given.get("gateway") is not False
        self.may_be_worker = block is NodeBlock
        self.may_be_switch = block is not NodeBlock or not (kind is None or kind in ("worker", "host"))
