"""What a launcher and a machine that it reaches by ssh say to each other, as lines of JSON over ssh's own streams.

Whatever else appears on these streams, such as the greeting of a shell, is no line of this kind and is passed on as
text. Secrets are in an Order only, which goes from the launcher's memory to standard input over there.

A machine first sends its fingerprint: what must be the same on all machines of a run.
"""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata, util
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from simcluster import __version__
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

OWN = ("simcluster", "simcluster_backends")
COMPARED = ("torch", "numpy")
"""What numbers depend on."""

FILES_NAMED = 5


class Fingerprint(msgspec.Struct, frozen=True):
    """*versions* by name; *files* has a digest of each source of ours by its path."""

    versions: dict[str, str]
    files: dict[str, str]


def fingerprint() -> Fingerprint:
    """Of this machine. Nothing is imported for it, so that it is there at once."""
    major_and_minor = ".".join(platform.python_version_tuple()[:2])
    versions = {"simcluster": __version__, "protocol": str(PROTOCOL_VERSION), "python": major_and_minor}
    for package in COMPARED:
        try:
            versions[package] = metadata.version(package).partition("+")[0]  # without +cpu and the like
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    return Fingerprint(versions, dict(_sources()))


def differences(here: Fingerprint, there: Fingerprint) -> list[str]:
    """In words, what of *there* is not as it is *here*; no word if it may take part."""
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


def _sources() -> list[tuple[str, str]]:
    found = []
    for package in OWN:
        spec = util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(folder).rglob("*.py")):
                name = f"{package}/{path.relative_to(folder).as_posix()}"
                if not name.startswith("simcluster/shipped/"):  # data of a wheel, that a checkout has elsewhere
                    found.append((name, hashlib.sha256(path.read_bytes()).hexdigest()[:16]))
    return found


ORDER_LIMIT_BYTES = 64 * 1024**2
LINE_LIMIT_BYTES = 1024**2
MARK = b"simcluster "
"""How a line of this kind begins."""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Machine to launcher, first of all: what is installed there."""

    fingerprint: Fingerprint


class Said(msgspec.Struct, frozen=True, tag="said"):
    """Machine to launcher: *node* printed a line."""

    node: str
    line: str


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """Machine to launcher: the process of *node* has ended; *code* is None if nobody knows how."""

    node: str
    code: int | None


class Place(msgspec.Struct, frozen=True):
    """A node to start: *listen* is where its peers reach it, "" for wherever the launcher is reached from."""

    name: str
    listen: str


class Order(msgspec.Struct, frozen=True, tag="order"):
    """Launcher to machine: start these. *files* has the contents of own code, *secrets* those of TLS, by path."""

    rendezvous: str
    key: str
    nodes: list[Place]
    files: dict[str, bytes]
    secrets: dict[str, bytes]

    def __repr__(self) -> str:
        return f"Order({self.rendezvous!r}, {self.nodes!r})"


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """Launcher to machine: end *node* at once."""

    node: str


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Launcher to machine: stop the process of *node*, or let it go on."""

    node: str
    paused: bool


FromMachine: TypeAlias = Report | Said | Exited
ToMachine: TypeAlias = Order | Kill | Pause

_encoder = msgspec.json.Encoder()
_from_machine: msgspec.json.Decoder[FromMachine] = msgspec.json.Decoder(FromMachine)
_to_machine: msgspec.json.Decoder[ToMachine] = msgspec.json.Decoder(ToMachine)


def line_of(message: FromMachine | ToMachine) -> bytes:
    return MARK + _encoder.encode(message) + b"\n"


def read_from_machine(line: bytes) -> FromMachine | None:
    """What the machine says in *line*; None for what is no line of this kind."""
    message: FromMachine | None = _read(_from_machine, line)
    return message


def read_to_machine(line: bytes) -> ToMachine | None:
    """What the launcher says in *line*; None for what is no line of this kind."""
    message: ToMachine | None = _read(_to_machine, line)
    return message


def _read(decoder: msgspec.json.Decoder[Any], line: bytes) -> Any:
    if not line.startswith(MARK):
        return None
    try:
        return decoder.decode(line[len(MARK) :])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
