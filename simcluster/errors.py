"""All errors that a user can meet, in two families: invalid requests, and runs that failed.

A bug of ours is an assert or a plain Python error, never one of these. Exit codes: 2 for an invalid request (nothing
was written), 1 for a run that failed.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_LINES = 12
"""Limit on the lines of an exception's message that an error repeats."""

MOST_PROBLEMS = 200
"""Readers of long lists stop after this number of problems."""

MOST_ALIKE = 10
"""Limit on the lines of an error for one slip, repeated."""

MOST_TEXT = 4_000
"""Limit on the characters of each part of a problem."""

MOST_COMPARED, MOST_CHARACTERS, MOST_LISTED = 5_000, 100, 50
"""Limits on suggestions: names compared, characters of a word, names listed."""


class SimclusterError(Exception):
    """The base of both families. The run fills in *seed* and *folder*, so that every failure reports them."""

    seed: int | None = None
    folder: str | None = None

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the message and the notes, which have the user's own lines, not ours."""
        places = [f"run folder: {self.folder}"] if self.folder is not None else []
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", []), *places]


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a request: its place, what was found there, and what was expected.

    *file*, *line* and *column* (both from 1) are None for values from a command line or a keyword argument.
    It reads "found A, expected B"; "unknown setting; did you mean 'y'?" if *found* begins with "unknown"; and *found*
    alone, as a whole sentence, if *expected* is empty.
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
    """Let problems name options as they are typed in a shell, `--set`, not as arguments of Python functions."""
    before = _typed.set(True)
    try:
        yield
    finally:
        _typed.reset(before)


def in_short(function: Callable[P, T]) -> Callable[P, T]:
    """Let *function*, which users call, raise our errors and Ctrl-C without the frames below: they are no news."""

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
_FLAG = re.compile(rf"--({'|'.join([*_ARGUMENTS, *_SAME])})\b(?![-_])")


def _spelt(text: str) -> str:
    """Return *text* with its options as arguments of Python functions, unless they were typed in a shell."""
    return text if _typed.get() else _FLAG.sub(lambda flag: _ARGUMENTS.get(flag[1], flag[1]), text)


def _short(text: str) -> str:
    """Return *text*, shortened in the middle if it is long: it may be a whole file on one line."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 4 :]}"


class UsageError(SimclusterError):
    """An invalid request; *problems* holds all its faults at once."""

    def __init__(self, problems: Problem | str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = [Problem("request", "", problems)]
            super().__init__(problems[0].expected)
        else:
            problems = [problems] if isinstance(problems, Problem) else list(problems)
            super().__init__("\n".join(listed(problems)))
        self.problems: list[Problem] = list(problems)


def raise_all(problems: Sequence[Problem]) -> None:
    """Raise UsageError with all *problems*, if there are any."""
    if problems:
        raise UsageError(problems)


class CheckpointError(UsageError):
    """A checkpoint that is missing, incomplete, of another run, or unfit for the requested resume."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        super().__init__(Problem(key, found, expected))


class CheckpointWarning(UserWarning):
    """A checkpoint was skipped, or could not be written; training continues."""


class NotReplayable(UsageError):
    """A run without a complete record of its order."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(Problem("run", found, expected))


class RunError(SimclusterError):
    """A run that started but failed."""


ENDED = "ended its algorithm"
"""The reason of a PeerLost for a peer that is not dead but has ended its algorithm, on every backend."""

ABSENT = "has not joined yet"
"""The reason of a loss that is none yet: a node that may still come."""

TIME_IS_UP = "the time of the run was up"
"""The reason of a PeerLost at a node that joined or rejoined after the end of the run."""


class PeerLost(RunError):
    """The node of *rank* was lost in its life *incarnation*, and a peer needed it."""

    def __init__(self, rank: int, name: str = "", reason: str = "", incarnation: int = 0) -> None:
        self.rank, self.name, self.reason, self.incarnation = rank, name, reason, incarnation
        label = f"rank {rank}" + (f" ({name})" if name else "")
        super().__init__(f"{label} is lost" + (f": {reason}" if reason else ""))


class Left(SimclusterError):
    """Not a failure: this node was asked to leave, and its algorithm ended after *step*: see `Progress.checkpoint`."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"left at step {step}")


class NobodyLeft(RunError):
    """All nodes left the run or were lost before their algorithm ended; *lost* has the reasons by name."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        words = "; ".join(f"{name} {reason}" for name, reason in lost.items())
        super().__init__(f"no node took part to the end: {words}")


class NodeFailed(RunError):
    """The algorithm itself raised on one node; *details* is that node's traceback."""

    def __init__(self, rank: int, name: str, details: str) -> None:
        self.rank, self.name, self.details = rank, name, details
        super().__init__(f"rank {rank} ({name}) failed: {last_words(details)}")


class ProgramFailed(Exception):
    """A program that a node runs in another process failed; *details* is its traceback there."""

    def __init__(self, details: str) -> None:
        self.details = details
        super().__init__(last_words(details))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of *error* as text: that of the program that failed, where it is one's."""
    if isinstance(error, ProgramFailed):
        return error.details
    return "".join(traceback.format_exception(error))


class NeedsValues(RunError):
    """A timing-only run reached a point where the algorithm depends on the value of a tensor."""

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"{where} asks for a value that numerics: none does not compute ({reason}); "
            "set numerics: real, or let steps, shapes or settings decide"
        )


class Stuck(RunError):
    """Base of the errors for runs that do not end; *waits* says what each rank waits for."""

    def __init__(self, headline: str, waits: Iterable[str]) -> None:
        self.waits = list(waits)
        super().__init__("\n".join([headline, *(f"  {wait}" for wait in self.waits)]))


class Deadlock(Stuck):
    """No event is left that could happen, and at least one rank still waits."""


class NeverFinished(Stuck):
    """Events still happen, or may, but the run exceeded its limit."""


class ReplayDiverged(RunError):
    """A node's code does not repeat its record: *where* is the first differing event or step, *how* it differs."""

    def __init__(self, rank: int, name: str, where: str, how: str) -> None:
        self.rank, self.name, self.where, self.how = rank, name, where, how
        super().__init__(f"replay and record differ at rank {rank} ({name}), {where}: {how}")


class ProtocolError(RunError):
    """Bytes on a connection that no correct peer sends."""


class HandshakeRefused(RunError):
    """A peer was refused: wrong key, other version, other run, or a name already taken."""


class LaunchFailed(RunError):
    """Nodes could not be started, or were refused; *reasons* has one line for each."""

    def __init__(self, headline: str, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__("\n".join([headline, *(f"  {reason}" for reason in self.reasons)]))


class WrittenElsewhere(SimclusterError):
    """Not a failure: this process ran *rank*; the process of rank 0 writes the run's folder."""

    def __init__(self, rank: int, name: str) -> None:
        self.rank, self.name = rank, name
        super().__init__(f"rank {rank} ({name}) is done; rank 0 writes the run folder")


def listed(problems: Sequence[Problem]) -> list[str]:
    """Return a line for each of *problems*; of the same slip, repeated, for the first MOST_ALIKE and the rest."""
    leaves = Counter(_leaf(problem) for problem in problems)
    slips = []
    for problem in problems:
        text = re.sub(r"\d+", "", problem.expected) or re.sub(r"'[^']*'|\d+", "", problem.found)
        # The name of a node is a leaf, too, and says nothing of the slip.
        slips.append((text, _leaf(problem) if leaves[_leaf(problem)] > 1 else ""))
    lines: list[str] = []
    times, seen = Counter(slips), Counter[tuple[str, str]]()
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
    """Return the message of the last exception in the traceback *details*; its lines after the first are indented."""
    lines = details.rstrip().splitlines() or ["no traceback"]
    begin = max((i for i, line in enumerate(lines) if line == "Traceback (most recent call last):"), default=len(lines))
    # Frames are indented, the exception is not.
    said = lines[next((i for i in range(begin + 1, len(lines)) if lines[i][:1].strip()), len(lines) - 1) :]
    if len(said) > MAX_LINES:
        said = [*said[:MAX_LINES], f"and {len(said) - MAX_LINES} lines more"]
    return "\n  ".join(line.strip() for line in said)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return "did you mean 'X'?" for the candidate closest to *word*, else a list of candidates."""
    options = sorted(islice(candidates, MOST_COMPARED))
    if (meant := closest(word, options)) is not None:
        return f"did you mean {meant!r}?"
    more = ", ..." if len(options) > MOST_LISTED else ""
    return "one of " + ", ".join(options[:MOST_LISTED]) + more if options else "nothing here"


def closest(word: str, candidates: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the candidate that *word* is probably a misspelling of, if there is one at least *cutoff* similar."""
    word = word[:MOST_CHARACTERS]
    options = [name for name in islice(candidates, MOST_COMPARED) if 2 * len(name) >= len(word)]
    return next(iter(difflib.get_close_matches(word, options, n=1, cutoff=cutoff)), None)
