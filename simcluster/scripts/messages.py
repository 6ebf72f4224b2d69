"""The messages between a rank's process, which runs the script, and its node program, which acts on
the cluster.

A rank *issues* calls without waiting. It waits for an answer only where the script also waits: for
the end of a call, for the time, or for the end of a sleep. Every message reports the work that the
script has done since the previous message. Tensors are not sent, since both sides share the memory
that holds them (see `arena`). A process is started with a `RankStart`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from simcluster.runs.spans import SpanKind
from simcluster.topology.read.rank_places import RankPlace


@dataclass(frozen=True)
class ScriptRun:
    """The settings that all ranks of a script's run share.

    *is_simulated*: the script sees the cluster's clocks, and its work is counted. *is_gloo*: gloo
    makes the calls. *steps*: the script ends after this number of steps, or has no limit if it is
    0. *computes*: tensors have values. *places*: the place of each rank among the machines.
    *devices*: for each rank, the name of its device in `torch.cuda`, and the device's memory in
    bytes if the topology states it.
    """

    is_simulated: bool
    is_gloo: bool
    steps: int
    computes: bool
    places: tuple[RankPlace, ...]
    devices: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class RankStart:
    """The arguments of the process of *rank*, one of *size* ranks, at *place* in *run*.

    *script* is the program's file. If *module* is not empty, the program is this module instead,
    and is found from *root*. *folder* is the directory that the run was started in, and
    *environment* has its environment variables. Files that the script writes to relative paths go
    to the directory *files*, if that is set and its parent directory exists on this machine.
    *output* receives what the script prints. *cost* and *loader* say how the simulator times work
    and data loading: see work_meter and loader_time. *restarts* is (number of restarts so far,
    limit). *meeting* is the (host, port) at which gloo's processes meet.
    """

    run: ScriptRun
    rank: int
    size: int
    place: RankPlace
    script: str
    module: str
    root: Path
    args: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    files: Path | None
    output: Connection
    seed: int | None
    restarts: tuple[int, int]
    cost: str
    loader: str
    meeting: tuple[str, int] | None = None


class ScriptWork(msgspec.Struct, array_like=True, frozen=True):
    """The work of a script since its previous message: floating-point operations, bytes of memory
    traffic, and operators.

    *peak_bytes* is the peak memory of the script's tensors so far. *kind* is the kind of work if a
    device may have a measured time for it.
    """

    flops: float = 0.0
    memory_bytes: float = 0.0
    operators: int = 0
    peak_bytes: int = 0
    kind: str = ""


class ArenaPlace(msgspec.Struct, array_like=True, frozen=True):
    """The place of a tensor in the rank's arena: a *segment*, and an *offset* in it in bytes."""

    segment: int
    offset: int
    dtype: str
    shape: tuple[int, ...]


class RankMessage(msgspec.Struct, tag_field="kind", kw_only=True):
    """The fields of every message of a rank: the work *spent* since the previous message, and the
    *line* of the script that is running.
    """

    spent: ScriptWork = ScriptWork()
    line: str = ""


class GroupMade(RankMessage, tag="group"):
    """The script has made process group *number* from world *ranks*, in the order of the group."""

    number: int
    ranks: tuple[int, ...]


class CallIssued(RankMessage, tag="issue"):
    """The script has issued call *number* in *group*: *operation* reads *inputs* and writes
    *outputs*.

    *root* is a rank in the group. *peer* is the other world rank of a send or recv, or -1 for any.
    """

    number: int
    group: int
    operation: str
    inputs: list[ArenaPlace] = []
    outputs: list[ArenaPlace] = []
    reduction: str = "sum"
    root: int = 0
    peer: int = -1
    label: int = 0


class CallAwaited(RankMessage, tag="wait"):
    """The script waits for the end of call *number*, for at most *timeout_s*."""

    number: int
    timeout_s: float | None = None


class TimeAsked(RankMessage, tag="now"):
    """The script asks for the time; if *sleep_s* is above 0, it first sleeps for that long."""

    sleep_s: float = 0.0


class TracedSpan(msgspec.Struct, array_like=True, frozen=True):
    """The span of a call that gloo made in *group*, or of a wait for such a call.

    The times are from `time.perf_counter`.
    """

    kind: SpanKind
    group: int
    operation: str
    size_bytes: int
    start_s: float
    end_s: float


class CallsTraced(RankMessage, tag="traced"):
    """The script computes or, if *waits* is true, waits for a call that gloo makes.

    *spans* are those that have ended since the previous message.
    """

    waits: bool
    spans: list[TracedSpan] = []


class MetricsLogged(RankMessage, tag="log"):
    """The script has logged *metrics* for *step* or, if *ends* is true, has ended the step."""

    step: int
    ends: bool = False
    metrics: dict[str, float] = {}


class ScriptEnded(RankMessage, tag="end"):
    """The script has ended with exit code *code*.

    *error* is the traceback if an exception ended it.
    """

    code: int = 0
    error: str = ""


FromRank = GroupMade | CallIssued | CallAwaited | TimeAsked | MetricsLogged | CallsTraced | ScriptEnded


class ClusterAnswer(msgspec.Struct):
    """The answer to a rank's question: the cluster's time *now_s*, and the state of a call if the
    rank asked about one.

    *error* says why the call failed or did not end in time. *source* is the group rank that sent
    the received message.
    """

    now_s: float
    is_over: bool = True
    error: str = ""
    source: int = -1
