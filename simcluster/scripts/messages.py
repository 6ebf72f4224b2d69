"""The messages between the process of a rank, which runs the script, and its node program, which acts for it.

A rank *issues* calls without waiting; it asks for answers only where the script would wait too: for the end of a
call, for the time, for a sleep. Every message says what the script has computed since the one before. Tensors do not
travel: both sides see the memory that they are in (see `arena`). Before all of them a process gets a `RankStart`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import msgspec

from simcluster.runs.spans import SpanKind
from simcluster.topology.read.rank_places import RankPlace


@dataclass(frozen=True)
class ScriptRun:
    """How a run runs its script.

    *is_simulated*: clocks are the cluster's, and work is counted. *is_gloo*: calls are gloo's. *steps*: the script is
    ended after that many; 0 for no limit. *computes*: tensors have values. *places* are those of the ranks, *devices*
    what `torch.cuda` tells a script of each one's device: its name and its memory in bytes, if the topology states it.
    """

    is_simulated: bool
    is_gloo: bool
    steps: int
    computes: bool
    places: tuple[RankPlace, ...]
    devices: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class RankStart:
    """The arguments of the process of number *rank* of *size*, at *place*, in *run*.

    *script* is a file; if *module* is given, it is that module's, which is found from *root*. *folder* is where it was
    started, with the variables of *environment*; relative files that it writes go to *files*, if that is given and the
    directory around it is on this machine. *output* gets what it prints. *cost* and *loader*, in the simulator: what
    its work takes, see work_meter and loader_time. *restarts*: those so far, and the most. *meeting*: where the
    processes of gloo meet, a host and a port.
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
    """The work of a script since its last message: floating-point operations, bytes of memory, operators.

    *peak_bytes*: the most memory that its tensors have taken so far. *kind*: of work that a device has measured.
    """

    flops: float = 0.0
    memory_bytes: float = 0.0
    operators: int = 0
    peak_bytes: int = 0
    kind: str = ""


class ArenaPlace(msgspec.Struct, array_like=True, frozen=True):
    """Where the values of a tensor are: *segment* and *offset* in bytes of the rank's arena."""

    segment: int
    offset: int
    dtype: str
    shape: tuple[int, ...]


class RankMessage(msgspec.Struct, tag_field="kind", kw_only=True):
    """The parts of every message of a rank: *spent*, and the line of the script that it comes from."""

    spent: ScriptWork = ScriptWork()
    line: str = ""


class GroupMade(RankMessage, tag="group"):
    """A process group *number* of the given world *ranks*, in the order of their ranks in the group."""

    number: int
    ranks: tuple[int, ...]


class CallIssued(RankMessage, tag="issue"):
    """Call *number* in *group*: *operation* on *inputs*, its results to be left in *outputs*.

    *root* is a rank of the group; *peer*, of a message, is one of the world, or -1 for any.
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
    """The script asks for the time, after it has slept for *sleep_s*."""

    sleep_s: float = 0.0


class TracedSpan(msgspec.Struct, array_like=True, frozen=True):
    """A call in *group* that gloo made, or a wait for one, by *kind*: "call" or "wait". Times are of perf_counter."""

    kind: SpanKind
    group: int
    operation: str
    size_bytes: int
    start_s: float
    end_s: float


class CallsTraced(RankMessage, tag="traced"):
    """The script computes (again), or waits for a call of gloo's if *waits*. *spans* have ended since the last time."""

    waits: bool
    spans: list[TracedSpan] = []


class MetricsLogged(RankMessage, tag="log"):
    """The script has ended *step*, if it *ends* with this message, or has logged *metrics* for it."""

    step: int
    ends: bool = False
    metrics: dict[str, float] = {}


class ScriptEnded(RankMessage, tag="end"):
    """The script has ended with exit code *code*; *error* is its traceback, if an exception ended it."""

    code: int = 0
    error: str = ""


FromRank: TypeAlias = GroupMade | CallIssued | CallAwaited | TimeAsked | MetricsLogged | CallsTraced | ScriptEnded


class ClusterAnswer(msgspec.Struct):
    """The answer to a question: the cluster's time *now_s*, whether the call has ended, and why it failed.

    A call that has not ended in time has an *error*, too. *source*: the rank of its group that a message came from.
    """

    now_s: float
    is_over: bool = True
    error: str = ""
    source: int = -1
