"""The protocol between a launcher and a machine that it reaches by ssh: lines of JSON over ssh's streams.

Other output on these streams, such as a shell's greeting, is passed on as text. Only a StartOrder holds secrets; it
goes from the launcher's memory to stdin on the machine.

A machine first sends its fingerprint: the versions and sources that must be the same on all machines of a run.
"""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata, util
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from simcluster import __version__
from simcluster_backends.sockets.launcher.fork_process import SignalName
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

OWN = ("simcluster", "simcluster_backends")
COMPARED = ("torch", "numpy")
"""Packages that affect the numbers."""

FILES_NAMED = 5


class Fingerprint(msgspec.Struct, frozen=True):
    """*versions* by name; *files* maps the path of each source file to its digest."""

    versions: dict[str, str]
    files: dict[str, str]


def fingerprint() -> Fingerprint:
    """Return this machine's fingerprint. Imports none of the packages, so it is fast."""
    major_and_minor = ".".join(platform.python_version_tuple()[:2])
    versions = {"simcluster": __version__, "protocol": str(PROTOCOL_VERSION), "python": major_and_minor}
    for package in COMPARED:
        try:
            versions[package] = metadata.version(package).partition("+")[0]  # without +cpu and the like
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    files = {}
    for package in OWN:
        spec = util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(folder).rglob("*.py")):
                name = f"{package}/{path.relative_to(folder).as_posix()}"
                if not name.startswith("simcluster/shipped/"):  # data in a wheel; elsewhere in a checkout
                    files[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return Fingerprint(versions, files)


def differences(here: Fingerprint, there: Fingerprint) -> list[str]:
    """Describe how *there* differs from *here*; empty if that machine may take part."""
    words = [
        f"{name} {there.versions.get(name, 'none')}, here {here.versions.get(name, 'none')}"
        for name in dict.fromkeys([*here.versions, *there.versions])
        if here.versions.get(name) != there.versions.get(name)
    ]
    differing = sorted(file for file in {**here.files, **there.files} if here.files.get(file) != there.files.get(file))
    if differing:
        more = f" and {len(differing) - FILES_NAMED} more" if len(differing) > FILES_NAMED else ""
        words.append(f"other code in {', '.join(differing[:FILES_NAMED])}{more}")
    return words


ORDER_LIMIT_BYTES = 64 * 1024**2
LINE_LIMIT_BYTES = 1024**2
MARK = b"simcluster "
"""Prefix of a protocol line."""


class MachineReport(msgspec.Struct, frozen=True, tag="report"):
    """Machine to launcher, first message: what is installed there."""

    fingerprint: Fingerprint


class OutputLine(msgspec.Struct, frozen=True, tag="said"):
    """Machine to launcher: *node* printed a line."""

    node: str
    line: str


class ProcessExit(msgspec.Struct, frozen=True, tag="exited"):
    """Machine to launcher: the process of *node* has ended; *code* is None if unknown."""

    node: str
    code: int | None


class NodeAddress(msgspec.Struct, frozen=True):
    """A node to start; its peers reach it at *listen*, or if "" at the address from which the launcher is reached."""

    name: str
    listen: str


class StartOrder(msgspec.Struct, frozen=True, tag="order"):
    """Launcher to machine: start *nodes*, which need modules *preloads*.

    *files* holds user code and *secrets* TLS files, by path.
    """

    rendezvous: str
    key: str
    nodes: list[NodeAddress]
    files: dict[str, bytes]
    secrets: dict[str, bytes]
    preloads: list[str] = []

    def __repr__(self) -> str:
        return f"Order({self.rendezvous!r}, {self.nodes!r})"


class SignalOrder(msgspec.Struct, frozen=True, tag="signal"):
    """Launcher to machine: end, stop or resume the process of *node*."""

    node: str
    name: SignalName


class ClockRequest(msgspec.Struct, frozen=True, tag="ask"):
    """Doctor to machine: send a ClockReading at once."""

    number: int


class ClockReading(msgspec.Struct, frozen=True, tag="clock"):
    """Machine to doctor: its time when it read the ClockRequest of that *number*."""

    number: int
    time_s: float


class ExamineOrder(msgspec.Struct, frozen=True, tag="examine"):
    """Doctor to machine: send MachineFacts. Nodes there are to listen at *own* addresses and to reach *peers*."""

    own: list[str]
    peers: list[str]


class MachineFacts(msgspec.Struct, frozen=True, tag="facts"):
    """Machine to doctor: *unusable* maps an own address to the reason, *sources* a peer's to the address that faces it.

    A source is "" without a route. *accelerator* is "cuda ...", "mps" or "none", or "" without torch; *accelerators*
    has the number of each kind.
    """

    free_memory_bytes: int
    accelerator: str
    unusable: dict[str, str]
    sources: dict[str, str]
    accelerators: dict[str, int] = {}


FromMachine: TypeAlias = MachineReport | OutputLine | ProcessExit | ClockReading | MachineFacts
ToMachine: TypeAlias = StartOrder | SignalOrder | ClockRequest | ExamineOrder

M = TypeVar("M")

_encoder = msgspec.json.Encoder()
_from_machine: msgspec.json.Decoder[FromMachine] = msgspec.json.Decoder(FromMachine)
_to_machine: msgspec.json.Decoder[ToMachine] = msgspec.json.Decoder(ToMachine)


def line_of(message: FromMachine | ToMachine) -> bytes:
    return MARK + _encoder.encode(message) + b"\n"


def read_from_machine(line: bytes) -> FromMachine | None:
    return _read(_from_machine, line)


def read_to_machine(line: bytes) -> ToMachine | None:
    return _read(_to_machine, line)


def _read(decoder: msgspec.json.Decoder[M], line: bytes) -> M | None:
    """Return the message in *line*; None if it is not a protocol line."""
    if not line.startswith(MARK):
        return None
    try:
        return decoder.decode(line[len(MARK) :])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
