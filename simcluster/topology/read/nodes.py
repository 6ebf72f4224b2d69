"""Read the nodes of a topology document."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Faults, Given, WrongValue, fault
from simcluster.documents.reading import DocumentReading
from simcluster.documents.recognise import IPV6
from simcluster.documents.values import Bandwidth, Flag, Latency, Schema, Size, ValueValidator, schema_of, text, whole
from simcluster.topology.model.compute import ACCELERATORS, AUTO, CPU, wrong_compute
from simcluster.topology.model.model import Node
from simcluster.topology.model.spread import NONE
from simcluster.topology.read.devices import DeviceBlock
from simcluster.topology.read.spread import NodeSpread

MOST_PROCESSES, MOST_THREADS = 256, 1024

NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
NODE_NAME_EXPECTED = "letters, digits, _ and -, at most 64, and no - at the start"
# An argument of ssh must never look like one of its options.
_SSH = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?([A-Za-z0-9_][A-Za-z0-9_.-]*|{IPV6})")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_SITE = re.compile(r"[^\x00-\x1f]{1,64}")
# The command must never look like an option of the program that starts it.
_WORD = re.compile(r"[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,1023}")
_ARGUMENT = re.compile(r"[^\x00-\x1f\x7f]{0,1024}")
_PYTHON = "a Python there, by name or path, in which simcluster is installed"


def _address(value: object) -> str:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        # Treat a string of digits and dots as a mistyped IP address, not as a host name.
        if not isinstance(value, str) or re.fullmatch(r"[\d.]+", value) or not _HOST.fullmatch(value):
            raise WrongValue("an IP address or a host's name") from None
    return str(value)


def _words(words: object) -> tuple[str, ...]:
    if isinstance(words, Sequence) and not isinstance(words, str) and words:
        fits = all(isinstance(word, str) and _ARGUMENT.fullmatch(word) for word in words)
        if fits and _WORD.fullmatch(words[0]):
            return tuple(words)
    raise WrongValue("a list of words that start simcluster there: [uv, run, simcluster]")


def _compute(value: object) -> str:
    if wrong := wrong_compute(value):
        raise WrongValue(wrong)
    return str(value)


_ADDRESS: Schema = {"type": "string", "description": "An IP address or a host's name."}
_COMMAND: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_COMPUTE: Schema = {"anyOf": [{"enum": [CPU, AUTO, *ACCELERATORS]}, {"type": "string", "pattern": "^cuda:[0-9]+$"}]}
_ONE_COMMAND: Schema = {"not": {"required": ["python", "command"]}}


class LaunchBlock(Block):
    """How the processes of a node are started, or the default for all nodes."""

    rules: ClassVar[Schema] = _ONE_COMMAND
    python: Annotated[str, text(_WORD, _PYTHON)] | None = None
    command: Annotated[tuple[str, ...], ValueValidator(_words, _COMMAND)] = ()
    processes: Annotated[int, whole(1, MOST_PROCESSES)] | None = Field(None, alias="nproc_per_node")

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command that starts simcluster on the node; empty for the default."""
        return (self.python, "-m", "simcluster") if self.python is not None else self.command

    @classmethod
    def faults(cls, given: Given) -> Faults:
        yield from super().faults(given)
        if "python" in given and "command" in given:
            yield fault("python", expected="python or command, not both: a command names its Python")


LAUNCH_KEYS = LaunchBlock.known.names
Site = Annotated[str, text(_SITE, "the name of a place")]


class NodeBlock(LaunchBlock, DeviceBlock):
    """A worker in a topology document, with the fields of Node."""

    rules: ClassVar[Schema] = {
        **_ONE_COMMAND,
        "anyOf": [{"required": ["device"]}, {"required": ["flops"]}],
        "dependencies": {"port": ["address"]},
    }
    send_overhead_s: Latency = Field(0.0, alias="send_overhead")
    recv_overhead_s: Latency = Field(0.0, alias="recv_overhead")
    host_bandwidth_Bps: Bandwidth = Field(math.inf, alias="host_bandwidth")
    send_buffer_bytes: Size = Field(0, alias="send_buffer")
    address: Annotated[str, ValueValidator(_address, _ADDRESS)] | None = None
    port: Annotated[int, whole(1, 65535)] | None = None
    ssh: Annotated[str, text(_SSH, "[user@]host, as the ssh command takes it")] | None = None
    site: Site | None = None
    gateway: Flag = True
    machine: Annotated[str, text(NODE_NAME, NODE_NAME_EXPECTED)] | None = None
    spread: NodeSpread = NONE
    compute: Annotated[str, ValueValidator(_compute, _COMPUTE)] = CPU
    threads: Annotated[int, whole(1, MOST_THREADS)] | None = None

    @classmethod
    def faults(cls, given: Given) -> Faults:
        yield from super().faults(given)
        port = given.get("port")
        if isinstance(port, int) and 0 < port < 65536 and "address" not in given:
            yield fault("port", found="a port without an address", expected="an address, too")

    def node(self, name: str) -> Node:
        own = {key: getattr(self, key) for key in self.model_fields_set & _OF_NODE}
        device = self.made().on(self.compute)
        if self.threads is not None:
            device = device.on_threads(self.threads)
        return Node(name, device, command=self.words, **own)


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

    def node(self, name: str) -> Node:
        return Node(name, site=self.site)


class HostBlock(SwitchBlock):
    """A bare host, which only sends and receives plain flows: it has no device and no rank."""

    gateway: Flag = True

    def node(self, name: str) -> Node:
        return Node(name, site=self.site, gateway=self.gateway, is_host=True)


_OF_WORKER = frozenset(NODE_KEYS).difference(HostBlock.known.names)


def node_schema() -> Schema:
    """Return the JSON schema of a node: a worker, a switch or a host."""
    worker = schema_of(NodeBlock)
    switch = schema_of(SwitchBlock)
    host = schema_of(HostBlock)

    def kind(name: str) -> Schema:
        return {"properties": {"kind": {"const": name}}, "required": ["kind"]}

    others = {"if": kind("host"), "then": {"anyOf": [host, worker]}, "else": worker}
    return {"if": kind("switch"), "then": switch, "else": others}


class LinkEnd(NamedTuple):
    """The properties of a node that its links depend on.

    If the node is invalid, *node* is None, and the other fields hold as far as they are known.
    """

    node: Node | None
    gateway: bool
    may_be_worker: bool
    is_worker: bool


def read_node(reading: DocumentReading, name: str) -> LinkEnd:
    """Return the node called *name* in the document, as its links need it; report its problems."""
    path, before = ("nodes", name), len(reading.problems)
    if not NODE_NAME.fullmatch(name):
        reading.bad(path, f"a name of {NODE_NAME_EXPECTED}", repr(name), at_key=True)
    nodes = reading.document.data["nodes"]
    if nodes[name] is None:
        nodes[name] = {}
    given = nodes[name] if isinstance(nodes[name], dict) else {"kind": ""}
    kind = given.get("kind")
    block: type[NodeBlock | SwitchBlock] = NodeBlock
    if kind == "switch" or (kind == "host" and _OF_WORKER.isdisjoint(given)):
        block = SwitchBlock if kind == "switch" else HostBlock
    made: Any = reading.read(block.read, path)
    node = made.node(name) if made is not None and len(reading.problems) == before else None
    gateway = block is SwitchBlock or given.get("gateway") is not False
    is_worker = block is NodeBlock and (kind is None or kind in ("worker", "host"))
    return LinkEnd(node, gateway, block is NodeBlock, is_worker)


def read_nodes(reading: DocumentReading) -> dict[str, LinkEnd]:
    """Return name -> node for the nodes of the document; report their problems."""
    given = reading.document.data.get("nodes")
    if not isinstance(given, dict) or not given:
        return {}
    nodes = {name: read_node(reading, name) for name in given}
    if not any(part.may_be_worker or (part.node is not None and part.node.is_host) for part in nodes.values()):
        reading.bad(("nodes",), "at least one worker: a node with a device", "switches only", at_key=True)
    return nodes
