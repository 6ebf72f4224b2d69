"""The messages between launcher and nodes on the control lane: MessagePack in CONTROL frames."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from simcluster.errors import ProtocolError, UsageError
from simcluster.runs.answer_rows import AnswerRow
from simcluster.runs.record import Metric, NodeRecord, Span
from simcluster_backends.common.failure import Failure
from simcluster_backends.sockets.wire.frame import CONTROL_LIMIT_BYTES, Frame, FrameKind, as_octets, decode
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

ROWS_A_FRAME = 5000
PIECE_BYTES = 256 * 1024
"""The size of a piece, so small that heartbeats get through between pieces on a slow link."""
LAUNCHER_S = 5.0
"""The shortest limit on a launcher's silence, which a notebook or a test in its process can cause."""


class WireMessage(msgspec.Struct, array_like=True, frozen=True):
    """A message, or a part of one, as an array of its fields."""


class HoldOrder(WireMessage, frozen=True):
    """An order to a node to cut itself off from *peers* during *spells*.

    If *sends*, it does not write to the peers; if *receives*, it does not read from the peers. A
    spell is (start, end) by the run's clock.
    """

    peers: list[int]
    sends: bool
    receives: bool
    spells: list[tuple[float, float]]


class ResetOrder(WireMessage, frozen=True):
    """An order to a node to reset its connections to *peers* at *times_s* by the run's clock."""

    peers: list[int]
    times_s: list[float]


class Job(WireMessage, frozen=True, tag="job"):
    """Launcher to node: its rank and its work.

    *slow*, *holds* and *resets* are the node's part of the fault plan. *keeps* asks for
    checkpoints; *resumes* announces an initial shard; *order* asks for the order of events; *late*
    means that the run has already begun. *message_limits* has the most bytes that each rank accepts
    in one message. *title* names the job in the node's logs. The node reports each step in
    *report_at* at once. The other fields are those of ClusterJob and of its options.
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
    shortcuts: bool | str = True

    @property
    def config(self) -> bytes:
        """The hash of the configuration, which must be equal on all nodes of a run."""
        parts = [*self.names, str(self.seed), self.program, self.config_json]
        return hashlib.sha256("\x00".join(parts).encode()).digest()


class ListenAddress(WireMessage, frozen=True, tag="listening"):
    """Node to launcher: the address at which its peers can connect to it."""

    host: str
    port: int


class Addresses(WireMessage, frozen=True, tag="addresses"):
    """Launcher to node: every node's address, by rank; *gone* maps the absent ranks to reasons.

    A node that begins with the run has *incarnation* 0; a node that joins late or rejoins has a
    higher number.
    """

    addresses: list[tuple[str, int]]
    gone: dict[int, str] = {}
    incarnation: int = 0


class ConnectionReport(WireMessage, frozen=True, tag="connected"):
    """Node to launcher: it has a connection to every peer.

    *held* has hashes of the data that must be equal on all nodes.
    """

    held: list[str] = []


class GoOrder(WireMessage, frozen=True, tag="go"):
    """Launcher to node: run the program. The run's clock reads *at_s* now."""

    at_s: float = 0.0


class Beat(WireMessage, frozen=True, tag="beat"):
    """Launcher to node: the launcher is alive."""


class PeerGone(WireMessage, frozen=True, tag="gone"):
    """Launcher to node: this *incarnation* of *rank* is lost, or has failed or left."""

    rank: int
    reason: str
    incarnation: int = 0


class LeaveOrder(WireMessage, frozen=True, tag="leave"):
    """Launcher to node: leave after the current step, within *notice_s* unless that is 0."""

    notice_s: float = 0.0


class CrashOrder(WireMessage, frozen=True, tag="crash"):
    """Launcher to node: die now, without a goodbye, as the fault plan orders."""


class CutOrder(WireMessage, frozen=True, tag="cut"):
    """Launcher to node: carry out *holds*, which have no end yet, until a HealOrder of *number*.

    *reason* is that of the losses which a long cut brings about.
    """

    number: int
    holds: list[HoldOrder]
    reason: str


class HealOrder(WireMessage, frozen=True, tag="heal"):
    """Launcher to node: end the CutOrder of *number*."""

    number: int


class StopOrder(WireMessage, frozen=True, tag="stop"):
    """Launcher to node: stop, and hand in the results so far."""

    reason: str


class ExitOrder(WireMessage, frozen=True, tag="end"):
    """Launcher to node: exit, because nothing more is expected of the node."""


class NodeStatus(WireMessage, frozen=True, tag="status"):
    """Node to launcher: it is alive, and has made this progress.

    *moved* rises with any activity, *done* only with work and records. *ended* is whether the
    algorithm has ended. If *stalled_s* is above 0, the event loop has not turned for that time, and
    is at the location *place* in the code. *samples* has the ledger of the node's batches.
    *machine* is the last reading of its MachineMeter. *places* has the locations at which its tasks
    wait, *unread* the messages that no task has received.
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


class RecordRows(WireMessage, frozen=True, tag="rows"):
    """Node to launcher: the rows that its record has gained since the previous message.

    *evaluations* are rows that the final record will have among its metrics.
    """

    metrics: list[Metric]
    spans: list[Span]
    evaluations: list[Metric] = []
    answers: list[AnswerRow] = []


class OrderPiece(WireMessage, frozen=True, tag="ordered"):
    """Node to launcher: the next bytes of the order of its events, packed for lab.replays."""

    content: bytes


class WeightsPiece(WireMessage, frozen=True, tag="piece"):
    """Node to launcher: the next bytes of its final weights, which may exceed a frame."""

    content: bytes


class ShardPiece(WireMessage, frozen=True, tag="shard"):
    """Node to launcher: the next bytes of its shard of a checkpoint."""

    content: bytes
    last: bool


class ShardReply(WireMessage, frozen=True, tag="stored"):
    """Launcher to node: its shard of a checkpoint has been stored, or could not be."""


class CheckpointPiece(WireMessage, frozen=True, tag="begin"):
    """Launcher to node: the next bytes of its shard of the checkpoint with which it begins."""

    content: bytes
    last: bool


class NodeOutcome(WireMessage, frozen=True, tag="outcome"):
    """Node to launcher: it is done. The rows and weights of *record* were sent before."""

    record: NodeRecord
    failure: Failure | None


FromLauncher = (
    Job
    | Addresses
    | GoOrder
    | Beat
    | PeerGone
    | LeaveOrder
    | CrashOrder
    | CutOrder
    | HealOrder
    | StopOrder
    | ExitOrder
    | ShardReply
    | CheckpointPiece
)
FromNode = (
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
    """Yield *content* in pieces of PIECE_BYTES, each as (piece, whether it is the last)."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(content)


def _read(decoder: msgspec.msgpack.Decoder[Any], frame: Frame) -> Any:
    if frame.kind is not FrameKind.CONTROL:
        raise ProtocolError(f"a {frame.kind.name} frame on the control lane")
    return decode(decoder, frame.body, "a control message")


read_from_launcher: Callable[[Frame], FromLauncher] = partial(_read, msgspec.msgpack.Decoder(FromLauncher))
read_from_node: Callable[[Frame], FromNode] = partial(_read, msgspec.msgpack.Decoder(FromNode))
