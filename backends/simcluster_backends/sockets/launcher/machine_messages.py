"""The protocol between a launcher and a machine that it reaches by ssh: lines of JSON over ssh's streams.

Other output on these streams, such as a shell's greeting, is passed on as text. Only a StartOrder
holds secrets. It goes from the launcher's memory to stdin on the machine.

A machine first sends its fingerprint: the versions and source files that must be the same on all
machines of a run.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import TypeVar

import msgspec

from simcluster import __version__
from simcluster_backends.sockets.launcher.fork_process import SignalName
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

OWN = ("simcluster", "simcluster_backends")
COMPARED = ("torch", "numpy")
"""The packages with versions that affect the results."""

FILES_NAMED = 5


class Fingerprint(msgspec.Struct, frozen=True):
    """The software of a machine: package -> version, and path of a source file -> digest."""

    versions: dict[str, str]
    files: dict[str, str]


def fingerprint() -> Fingerprint:
    """Return this machine's fingerprint. It imports none of the packages, so it is fast."""
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
    """Describe the differences of *there* from *here*; [] if that machine may take part."""
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
"""The prefix of a protocol line, as opposed to other output."""


class MachineReport(msgspec.Struct, frozen=True, tag="report"):
    """Machine to launcher, first message: the software that is installed there."""

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
    """A node to start, which its peers reach at *listen*.

    If *listen* is "", they reach it at the address from which its machine reaches the launcher.
    """

    name: str
    listen: str


class StartOrder(msgspec.Struct, frozen=True, tag="order"):
    """Launcher to machine: start *nodes*, after importing the modules *preloads*.

    *files* maps paths of user code to their contents, *secrets* names of TLS files to theirs.
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
    """Machine to doctor: its clock's time when it read the ClockRequest with this *number*."""

    number: int
    time_s: float


class ExamineOrder(msgspec.Struct, frozen=True, tag="examine"):
    """Doctor to machine: send MachineFacts about the machine's *own* addresses and its *peers*."""

    own: list[str]
    peers: list[str]


class MachineFacts(msgspec.Struct, frozen=True, tag="facts"):
    """Machine to doctor: the answer to an ExamineOrder.

    *unusable* maps each own address at which no node can listen to the reason. *sources* maps each
    peer to the local address from which packets to it leave, or "" if there is no route.
    *accelerator* is "cuda ...", "mps" or "none", or "" without torch. *accelerators* maps each kind
    of accelerator to the number of devices. *interfaces* maps local addresses to their interfaces.
    """

    free_memory_bytes: int
    accelerator: str
    unusable: dict[str, str]
    sources: dict[str, str]
    accelerators: dict[str, int] = {}
    interfaces: dict[str, str] = {}


FromMachine = MachineReport | OutputLine | ProcessExit | ClockReading | MachineFacts
ToMachine = StartOrder | SignalOrder | ClockRequest | ExamineOrder

M = TypeVar("M")

_encoder = msgspec.json.Encoder()


def line_of(message: FromMachine | ToMachine) -> bytes:
    return MARK + _encoder.encode(message) + b"\n"


def _read(decoder: msgspec.json.Decoder[M], line: bytes) -> M | None:
    """Return the message in *line*; None if it is not a protocol line."""
    if not line.startswith(MARK):
        return None
    try:
        return decoder.decode(line[len(MARK) :])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


read_from_machine: Callable[[bytes], FromMachine | None] = partial(_read, msgspec.json.Decoder(FromMachine))
read_to_machine: Callable[[bytes], ToMachine | None] = partial(_read, msgspec.json.Decoder(ToMachine))
