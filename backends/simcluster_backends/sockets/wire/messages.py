"""Messages between launcher and nodes on the control lane: typed MessagePack in the body of a CONTROL frame."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import msgspec

from simcluster.errors import ProtocolError, UsageError
from simcluster.runs.record import Metric, NodeRecord, Span
from simcluster_backends.common.failure import Failure
from simcluster_backends.sockets.wire.frame import CONTROL_LIMIT_BYTES, Frame, FrameKind, as_octets, decode
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

ROWS_A_FRAME = 5000
PIECE_BYTES = 256 * 1024
"""Small enough that even on a slow link the launcher hears from a node while its weights are in flight."""


class HoldOrder(msgspec.Struct, array_like=True, frozen=True):
    """An order for a node: during each of *spells*, (from, to) in seconds of the run, not to write to *peers* (if
    *sends*) and not to read from them (if *receives*).
    """

    peers: list[int]
    sends: bool
    receives: bool
    spells: list[tuple[float, float]]


class ResetOrder(msgspec.Struct, array_like=True, frozen=True):
    """An order for a node: to reset its connections to *peers* at each of *times_s*, in seconds of the run."""

    peers: list[int]
    times_s: list[float]


class Job(msgspec.Struct, array_like=True, frozen=True, tag="job"):
    """Launcher to node: its rank and work. *slow*, *holds* and *resets* are its part in the fault plan; *keeps*:
    checkpoints are wanted; *resumes*: its initial state follows; *order*: record the order of events; *late*: the run
    has already begun. *message_limits* has the most bytes that each rank accepts in one message. *title* is the job's
    in its logs, which the launcher configures. The steps *report_at* are to be reported at once. The other fields are
    ClusterJob's and its options.
    """

    rank: int
    names: list[str]
    seed: int
    config_json: str
    program: str
    run: bytes
    inbox_bytes: int
    body_limit_bytes: int
    heartbeat_s: float
    dead_s: float
    start_s: float
    uvloop: bool | None
    slow: list[tuple[tuple[float, float], float]]
    holds: list[HoldOrder]
    keeps: bool = False
    resumes: bool = False
    order: bool = True
    title: str = ""
    log_format: str = "text"
    log_level: str = "info"
    loki: str = ""
    late: bool = False
    portable: bool = False
    message_limits: list[int] = []
    resets: list[ResetOrder] = []
    report_at: list[int] = []

    @property
    def config(self) -> bytes:
        """The configuration's hash, on which all nodes of a run must agree."""
        parts = [*self.names, str(self.seed), self.program, self.config_json]
        return hashlib.sha256("\x00".join(parts).encode()).digest()


class ListenAddress(msgspec.Struct, array_like=True, frozen=True, tag="listening"):
    """Node to launcher: the address for its peers."""

    host: str
    port: int


class Addresses(msgspec.Struct, array_like=True, frozen=True, tag="addresses"):
    """Launcher to node: every node's address, by rank, except for the *gone*, with reasons.

    A node that begins with the run has *incarnation* 0; one that joins late or again has a higher one.
    """

    addresses: list[tuple[str, int]]
    gone: dict[int, str] = {}
    incarnation: int = 0


class ConnectionReport(msgspec.Struct, array_like=True, frozen=True, tag="connected"):
    """Node to launcher: it has a connection to every peer, and *held*, hashes of what all nodes hold alike."""

    held: list[str] = []


class GoOrder(msgspec.Struct, array_like=True, frozen=True, tag="go"):
    """Launcher to node: the run's clock reads *at_s* now."""

    at_s: float = 0.0


class Beat(msgspec.Struct, array_like=True, frozen=True, tag="beat"):
    """Launcher to node: the launcher is alive."""


class PeerGone(msgspec.Struct, array_like=True, frozen=True, tag="gone"):
    """Launcher to node: this *incarnation* of *rank* has died."""

    rank: int
    reason: str
    incarnation: int = 0


class LeaveOrder(msgspec.Struct, array_like=True, frozen=True, tag="leave"):
    """Launcher to node: leave after the current step, and in any case within *notice_s*, unless that is 0."""

    notice_s: float = 0.0


class CrashOrder(msgspec.Struct, array_like=True, frozen=True, tag="crash"):
    """Launcher to node: die now, without a goodbye, by the fault plan."""


class StopOrder(msgspec.Struct, array_like=True, frozen=True, tag="stop"):
    """Launcher to node: stop, and hand in the results so far."""

    reason: str


class ExitOrder(msgspec.Struct, array_like=True, frozen=True, tag="end"):
    """Launcher to node: every node is done; exit."""


class NodeStatus(msgspec.Struct, array_like=True, frozen=True, tag="status"):
    """Node to launcher: it is alive, and its progress.

    *moved* rises with any activity, *done* only with work and records; *ended*: its algorithm has; its event loop has
    not turned for *stalled_s* and is at *place*. *samples* says what has become of its batches so far,
    *machine* is its last reading of process and machine. *places* are where its tasks wait, *unread* what they could
    have received meanwhile.
    """

    moved: int
    done: int
    computing: int
    waits: list[str]
    steps: int
    sent_to: dict[int, list[int]]
    bytes_received: int
    ended: bool
    stalled_s: float
    place: str
    samples: dict[str, Any] | None = None
    machine: dict[str, float] = {}
    places: list[str] = []
    unread: list[str] = []


class RecordRows(msgspec.Struct, array_like=True, frozen=True, tag="rows"):
    """Node to launcher: its records since the last rows, and the *evaluations* that will be among them at the end."""

    metrics: list[Metric]
    spans: list[Span]
    evaluations: list[Metric] = []


class OrderPiece(msgspec.Struct, array_like=True, frozen=True, tag="ordered"):
    """Node to launcher: the next part of the order of its events, packed by simcluster.lab.replays."""

    content: bytes


class WeightsPiece(msgspec.Struct, array_like=True, frozen=True, tag="piece"):
    """Node to launcher: the next bytes of its final weights, which may exceed a frame."""

    content: bytes


class ShardPiece(msgspec.Struct, array_like=True, frozen=True, tag="shard"):
    """Node to launcher: the next bytes of its part of a checkpoint."""

    content: bytes
    last: bool


class ShardReply(msgspec.Struct, array_like=True, frozen=True, tag="stored"):
    """Launcher to node: its part of a checkpoint has been handled."""


class CheckpointPiece(msgspec.Struct, array_like=True, frozen=True, tag="begin"):
    """Launcher to node: the next bytes of its part of the checkpoint that the run resumes from."""

    content: bytes
    last: bool


class NodeOutcome(msgspec.Struct, array_like=True, frozen=True, tag="outcome"):
    """Node to launcher: it is done. The *record*'s metrics and spans came before as rows, its weights as pieces."""

    record: NodeRecord
    failure: Failure | None


FromLauncher: TypeAlias = (
    Job
    | Addresses
    | GoOrder
    | Beat
    | PeerGone
    | LeaveOrder
    | CrashOrder
    | StopOrder
    | ExitOrder
    | ShardReply
    | CheckpointPiece
)
FromNode: TypeAlias = (
    ListenAddress | ConnectionReport | NodeStatus | RecordRows | OrderPiece | WeightsPiece | ShardPiece | NodeOutcome
)

_encoder = msgspec.msgpack.Encoder()


def control_frame(message: FromLauncher | FromNode) -> OutgoingFrame:
    """Return the frame that carries *message*. Raise UsageError if it is too long."""
    body = _encoder.encode(message)
    if len(body) > CONTROL_LIMIT_BYTES:
        what = type(message).__struct_config__.tag
        raise UsageError(f"a {what} message of at most {CONTROL_LIMIT_BYTES} bytes, not {len(body)}")
    return OutgoingFrame(FrameKind.CONTROL, b"", [as_octets(body)])


def in_pieces(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield (piece, is last) of *content*, in pieces small enough for urgent messages to come in between."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(content)


def _read(decoder: msgspec.msgpack.Decoder[Any], frame: Frame) -> Any:
    if frame.kind is not FrameKind.CONTROL:
        raise ProtocolError(f"a {frame.kind.name} frame on the control lane")
    return decode(decoder, frame.body, "a control message")


read_from_launcher: Callable[[Frame], FromLauncher] = partial(_read, msgspec.msgpack.Decoder(FromLauncher))
read_from_node: Callable[[Frame], FromNode] = partial(_read, msgspec.msgpack.Decoder(FromNode))
