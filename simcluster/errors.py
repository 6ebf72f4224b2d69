"""All errors that a user can meet: invalid requests, and runs that failed.

An error in simcluster itself is an assertion or a plain Python exception, never one of these. The
exit code is 2 for an invalid request, after which nothing was written, and 1 for a run that failed.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_LINES = 12
"""Limit on the lines that an error repeats from the message of another exception."""

MOST_PROBLEMS = 200
"""Number of problems after which reading of a long list stops."""

MOST_ALIKE = 10
"""Limit on the lines that report the same mistake at different places."""

MOST_TEXT = 4_000
"""Limit on the characters of each part of a problem's text."""


class SimclusterError(Exception):
    """The base class of all errors in this module.

    The run sets *seed* and *folder*, so that every failure reports them.
    """

    seed: int | None = None
    folder: str | None = None

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows instead of a traceback.

        IPython calls this method. The error's notes already contain the frames of the user's code.
        """
        places = [f"run folder: {self.folder}"] if self.folder is not None else []
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", []), *places]


@dataclass(frozen=True)
class Problem:
    """One problem of a request: its place, what was found there, and what was expected.

    *file*, *line* and *column* are None for a value from a command line or a keyword argument.
    Lines and columns count from 1.

    As a string, a problem reads "found A, expected B". If *found* begins with "unknown", the string
    is "unknown setting; did you mean 'y'?". If *expected* is empty, the string is *found*.
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
        return f"{_short(where)}{_short(_spelt(self.key))}: {self._sentence()}"

    def _sentence(self) -> str:
        found, expected = _short(self.found), _short(_spelt(self.expected))
        if not expected:
            return found
        hint = expected if expected.startswith("did you mean") else f"expected {expected}"
        if not found:
            return hint
        if found.startswith("unknown "):
            return f"{found}; {hint}"
        return f"found {found}{', ' if hint != expected else '; '}{hint}"


@contextmanager
def on_command_line() -> Iterator[None]:
    """Within the block, problems name options as in a shell (`--set`), not as in Python
    (`overrides`).
    """
    before = _typed.set(True)
    try:
        yield
    finally:
        _typed.reset(before)


def in_short(function: Callable[P, T]) -> Callable[P, T]:
    """Return *function*, decorated so that simcluster's errors and a Ctrl-C show no frames of the
    library.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SimclusterError as error:
            raise error.with_traceback(None)  # noqa: B904
        except KeyboardInterrupt as end:
            raise end.with_traceback(None) from None

    return call


_typed: ContextVar[bool] = ContextVar("typed", default=False)
_ARGUMENTS = {"set": "overrides", "pair": "pairs", "option": "options", "engine": "engine_name"}
_SAME = ("topology", "algorithm", "workload", "backend", "seed", "seeds", "compute", "jobs", "target", "out", "goal")
_DEFAULTS = ("device", "bandwidth", "latency")
_FLAG = re.compile(rf"--({'|'.join([*_ARGUMENTS, *_SAME, *_DEFAULTS])})\b(?![-_])")


def _spelt(text: str) -> str:
    """Return *text* with command-line options replaced by Python arguments, unless in
    `on_command_line`.
    """
    return text if _typed.get() else _FLAG.sub(lambda flag: _ARGUMENTS.get(flag[1], flag[1]), text)


def _short(text: str) -> str:
    """Return *text*, with its middle left out if it is long: a value may be a whole file on one
    line.
    """
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 4 :]}"


class UsageError(SimclusterError):
    """An invalid request, with all its *problems*.

    For a single problem, its fields can be passed instead of a Problem.
    """

    def __init__(
        self,
        problems: Problem | str | Sequence[Problem],
        found: str | None = None,
        expected: str = "",
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        if isinstance(problems, str) and found is not None:
            problems = Problem(problems, found, expected, file, line, column)
        if isinstance(problems, str):
            problems = [Problem("request", "", problems)]
            super().__init__(problems[0].expected)
        else:
            problems = [problems] if isinstance(problems, Problem) else list(problems)
            super().__init__("\n".join(listed(problems)))
        self.problems: list[Problem] = list(problems)


def raise_all(problems: Sequence[Problem]) -> None:
    """Raise a UsageError with *problems*, unless there are none."""
    if problems:
        raise UsageError(problems)


class CheckpointError(UsageError):
    """A checkpoint that is missing or incomplete, belongs to another run, or cannot be resumed from
    as requested.
    """

    def __init__(self, key: str, found: str, expected: str) -> None:
        super().__init__(key, found, expected)


class CheckpointWarning(UserWarning):
    """A warning that a checkpoint was skipped or could not be written; training continues."""


class NotReplayable(UsageError):
    """A run that cannot be replayed, since its folder has no complete record of the order of
    events.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__("run", found, expected)


class RunError(SimclusterError):
    """A run that started but failed."""


ENDED = "ended its algorithm"
"""The reason of a PeerLost for a peer that has ended its algorithm instead of dying, on every
backend.
"""

ABSENT = "has not joined yet"
"""The reason of a PeerLost for a node that has not joined yet, but still may."""

TIME_IS_UP = "the time of the run was up"
"""The reason of a PeerLost at a node that joined or rejoined after the time of the run had
ended.
"""


class PeerLost(RunError):
    """The node of *rank* was lost while a peer needed it.

    *incarnation* is the number of the node's restarts before the loss.
    """

    def __init__(self, rank: int, name: str = "", reason: str = "", incarnation: int = 0) -> None:
        self.rank = rank
        self.name = name
        self.reason = reason
        self.incarnation = incarnation
        label = f"rank {rank}" + (f" ({name})" if name else "")
        super().__init__(f"{label} is lost" + (f": {reason}" if reason else ""))


class Left(SimclusterError):
    """The end of a node's algorithm after *step*, since the node was asked to leave: not a failure.

    See `Progress.checkpoint`.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"left at step {step}")


class NobodyLeft(RunError):
    """All nodes left the run or were lost before their algorithm had ended.

    *lost* maps the name of each node to the reason.
    """

    def __init__(self, lost: Mapping[str, str]) -> None:
        words = "; ".join(f"{name} {reason}" for name, reason in lost.items())
        super().__init__(f"no node took part to the end: {words}")


class NodeFailed(RunError):
    """The algorithm raised an exception on one node; *details* is the traceback from that node."""

    def __init__(self, rank: int, name: str, details: str) -> None:
        self.rank = rank
        self.name = name
        self.details = details
        super().__init__(f"rank {rank} ({name}) failed: {last_words(details)}")


class WorldFailed(RunError):
    """A world raised an exception at *place*; *details* is the traceback with its own lines."""

    def __init__(self, place: str, details: str) -> None:
        self.details = details
        super().__init__(f"the world failed at {place}: {last_words(details)}")


class ProgramFailed(Exception):
    """A program that a node runs in another process failed; *details* is the program's
    traceback.
    """

    def __init__(self, details: str) -> None:
        self.details = details
        super().__init__(last_words(details))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of *error* as a string.

    For a ProgramFailed, it is the traceback from the program's process.
    """
    if isinstance(error, ProgramFailed):
        return error.details
    return "".join(traceback.format_exception(error))


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors in the exception group *error*, including those in nested groups.

    If *error* is not a group, return only *error*.
    """
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves_of(part)]
    return [error]


class NeedsValues(RunError):
    """A timing-only run, in which the algorithm needed the value of a tensor to decide how to
    continue.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"{where} asks for a value that numerics: none does not compute ({reason}); "
            "set numerics: real, or let steps, shapes or settings decide"
        )


class Stuck(RunError):
    """The base class of errors for runs that do not end; *waits* has a line for each waiting rank.

    The error's text shows ten of these lines.
    """

    def __init__(self, headline: str, waits: Iterable[str]) -> None:
        self.waits = list(waits)
        shown = [f"  {wait}" for wait in self.waits[:10]]
        more = len(self.waits) - len(shown)
        super().__init__("\n".join([headline, *shown, *([f"  and {more} more"] if more else [])]))


class Deadlock(Stuck):
    """No event is pending, but at least one rank is still waiting."""


class NeverFinished(Stuck):
    """The run exceeded a limit while events were still happening or possible."""


class ReplayDiverged(RunError):
    """A replay in which a node's code does not repeat the recorded run.

    *where* is the first event or step that differs, and *how* is the difference.
    """

    def __init__(self, rank: int, name: str, where: str, how: str) -> None:
        self.rank = rank
        self.name = name
        self.where = where
        self.how = how
        super().__init__(f"replay and record differ at rank {rank} ({name}), {where}: {how}")


class ProtocolError(RunError):
    """A connection received bytes that no correct peer sends."""


class HandshakeRefused(RunError):
    """A peer was refused: its key is wrong, its version or run differs, or its name is already
    taken.
    """


class LaunchFailed(RunError):
    """Nodes could not be started or were refused; *reasons* has one line for each of them."""

    def __init__(self, headline: str, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__("\n".join([headline, *(f"  {reason}" for reason in self.reasons)]))


class WrittenElsewhere(SimclusterError):
    """The end of *rank* in a process that does not write the run's folder: not a failure.

    The process of rank 0 writes the folder.
    """

    def __init__(self, rank: int, name: str) -> None:
        self.rank, self.name = rank, name
        super().__init__(f"rank {rank} ({name}) is done; rank 0 writes the run folder")


def listed(problems: Sequence[Problem]) -> list[str]:
    """Return a line for each of *problems*.

    If the same mistake occurs at many places, only the first MOST_ALIKE are listed, and one more
    line counts the others. Two problems are the same mistake if their texts are equal except for
    numbers and the last parts of their keys are equal.
    """
    leaves = Counter(_leaf(problem) for problem in problems)
    slips = []
    for problem in problems:
        text = re.sub(r"\d+", "", problem.expected) or re.sub(r"'[^']*'|\d+", "", problem.found)
        # If the last part of a key occurs only once, it is the name of a node, which does not
        # identify a mistake.
        slips.append((text, _leaf(problem) if leaves[_leaf(problem)] > 1 else ""))
    lines: list[str] = []
    times = Counter(slips)
    seen = Counter[tuple[str, str]]()
    for problem, slip in zip(problems, slips, strict=True):
        seen[slip] += 1
        if seen[slip] <= MOST_ALIKE:
            lines.append(str(problem))
        elif seen[slip] == MOST_ALIKE + 1:
            lines.append(f"and {times[slip] - MOST_ALIKE:,} more like it")
    return lines


def _leaf(problem: Problem) -> str:
    return problem.key.rpartition(".")[2]


def last_words(details: str) -> str:
    """Return the message of the last exception in the traceback *details*.

    Lines after the first are indented.
    """
    lines = details.rstrip().splitlines() or ["no traceback"]
    begin = max((i for i, line in enumerate(lines) if line == "Traceback (most recent call last):"), default=len(lines))
    # The frames of a traceback are indented, and the first line of the exception is not.
    said = lines[next((i for i in range(begin + 1, len(lines)) if lines[i][:1].strip()), len(lines) - 1) :]
    if len(said) > MAX_LINES:
        said = [*said[:MAX_LINES], f"and {len(said) - MAX_LINES} lines more"]
    return "\n  ".join(line.strip() for line in said)
