"""Every error that a user can meet, in two families: the caller's fault and the world's fault.

A bug of ours is an assert or a plain Python error, never one of these. Exit codes: 2 for the caller's fault (nothing
was written), 1 for a run that failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

MAX_LINES = 12
"""So much of what an exception says is repeated in an error."""

MOST_PROBLEMS = 200
"""After which a reader of long lists stops looking for more."""

MOST_TEXT = 4_000
"""Characters of each part of a problem."""

MOST_COMPARED, MOST_CHARACTERS, MOST_LISTED = 5_000, 100, 50
"""Of the names that a wrong word may have meant."""


class SimclusterError(Exception):
    """The root of both families. *seed* and *folder* are filled in by the run, so that every failure ends with them."""

    seed: int | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a request: where it stands, what was found, what was expected.

    *file*, *line* and *column* (both from 1) are None for what came from a command line or a keyword argument.
    """

    key: str
    found: str
    expected: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        places = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        where = ":".join(places) + ": " if places else ""
        found = f"found {_short(self.found)}, " if self.found else ""
        return f"{_short(where)}{_short(self.key)}: {found}expected {_short(self.expected)}"


def _short(text: str) -> str:
    """Return *text*, or its beginning and end: what was found may be a whole file on one line."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 4 :]}"


class UsageError(SimclusterError):
    """The request was wrong; *problems* holds every reason at once."""

    def __init__(self, problems: Problem | str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = [Problem("request", "", problems)]
            super().__init__(problems[0].expected)
        else:
            problems = [problems] if isinstance(problems, Problem) else list(problems)
            super().__init__("\n".join(str(problem) for problem in problems))
        self.problems: list[Problem] = list(problems)


class CheckpointError(UsageError):
    """A checkpoint that is not there, not whole, of another run, or that cannot be gone on from as asked."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        super().__init__(Problem(key, found, expected))


class CheckpointWarning(UserWarning):
    """A checkpoint was passed over, or could not be written; training goes on."""


class NotReplayable(UsageError):
    """A run of which the order is not, or not wholly, known."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(Problem("run", found, expected))


class RunError(SimclusterError):
    """A run that started and could not end well."""


ENDED = "ended its algorithm"
"""The reason of a PeerLost whose peer is not dead but done, on every backend."""

ABSENT = "has not joined yet"
"""The reason of a loss that is none yet: a node that may still come."""

TIME_IS_UP = "the time of the run was up"
"""The reason of a PeerLost at a node that came, or came back, after the run's last moment."""


class PeerLost(RunError):
    """The node of *rank* is gone, in its life *incarnation*, and a peer needed it."""

    def __init__(self, rank: int, name: str = "", reason: str = "", incarnation: int = 0) -> None:
        self.rank, self.name, self.reason, self.incarnation = rank, name, reason, incarnation
        label = f"rank {rank}" + (f" ({name})" if name else "")
        super().__init__(f"{label} is lost" + (f": {reason}" if reason else ""))


class Left(SimclusterError):
    """No failure: this node was told to leave, and its algorithm ended where *step* did: see `Progress.checkpoint`."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"left at step {step}")


class NobodyLeft(RunError):
    """Every node left the run, or was lost, before its algorithm had ended; *lost* says why, by name."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        words = "; ".join(f"{name} {reason}" for name, reason in lost.items())
        super().__init__(f"nobody took part to the end: {words}")


class NodeFailed(RunError):
    """The algorithm itself raised on one node; *details* is that node's traceback."""

    def __init__(self, rank: int, name: str, details: str) -> None:
        self.rank, self.name, self.details = rank, name, details
        super().__init__(f"rank {rank} ({name}) failed: {last_words(details)}")


class NeedsValues(RunError):
    """A timing-only run came to a place where the algorithm's way depends on the value of a tensor."""

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"{where} asks for a value that numerics: none does not compute ({reason}); "
            "set numerics: real, or let steps, shapes or settings decide"
        )


class Stuck(RunError):
    """Base of the two ways not to end; *waits* says of every rank what it waits for."""

    def __init__(self, headline: str, waits: Iterable[str]) -> None:
        self.waits = list(waits)
        super().__init__("\n".join([headline, *(f"  {wait}" for wait in self.waits)]))


class Deadlock(Stuck):
    """Nothing is left that could happen, and somebody still waits."""


class NeverFinished(Stuck):
    """Things still happen, or may, but the run went past its limit."""


class ReplayDiverged(RunError):
    """The code of a node does not do what was recorded of it: *where* is the first event or step, *how* they part."""

    def __init__(self, rank: int, name: str, where: str, how: str) -> None:
        self.rank, self.name, self.where, self.how = rank, name, where, how
        super().__init__(f"replay and record part at rank {rank} ({name}), {where}: {how}")


class ProtocolError(RunError):
    """Bytes on a connection that no correct peer sends."""


class HandshakeRefused(RunError):
    """A peer that may not join: wrong key, other version, other run, or a name already taken."""


class LaunchFailed(RunError):
    """Nodes that could not be started where they are to run, or must not take part; *reasons* has one for each."""

    def __init__(self, headline: str, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__("\n".join([headline, *(f"  {reason}" for reason in self.reasons)]))


class WrittenElsewhere(SimclusterError):
    """No failure: this process ran *rank* of a run whose folder the process of rank 0 writes."""

    def __init__(self, rank: int, name: str) -> None:
        self.rank, self.name = rank, name
        super().__init__(f"rank {rank} ({name}) is done; rank 0 writes the run folder")


def last_words(details: str) -> str:
    """What the last exception in the traceback *details* says, all lines of it, those after the first indented."""
    lines = details.rstrip().splitlines() or ["no traceback"]
    begin = max((i for i, line in enumerate(lines) if line == "Traceback (most recent call last):"), default=len(lines))
    # Frames are indented, what is raised is not.
    said = lines[next((i for i in range(begin + 1, len(lines)) if lines[i][:1].strip()), len(lines) - 1) :]
    if len(said) > MAX_LINES:
        said = [*said[:MAX_LINES], f"and {len(said) - MAX_LINES} lines more"]
    return "\n  ".join(line.strip() for line in said)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """' Did you mean X?' for the candidate closest to *word*, else a list of them. Large clusters have many names."""
    options = sorted(islice(candidates, MOST_COMPARED))
    close = difflib.get_close_matches(word[:MOST_CHARACTERS], options, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    more = ", ..." if len(options) > MOST_LISTED else ""
    return "one of " + ", ".join(options[:MOST_LISTED]) + more if options else "nothing here"
