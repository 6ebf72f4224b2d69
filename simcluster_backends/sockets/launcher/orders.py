"""What a launcher and a machine that it reaches by ssh say to each other, as lines of JSON over ssh's own streams.

Whatever else appears on these streams, such as the greeting of a shell, is no line of this kind and is passed on as
text. Secrets are in an Order only, which goes from the launcher's memory to standard input over there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from simcluster_backends.sockets.launcher.fingerprint import Fingerprint

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
