"""The options of a backend: fields of a dataclass, validated like the keys of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from simcluster.documents.models import Block, block_of, tried
from simcluster.documents.values import Flag, ValueValidator, number, whole
from simcluster.documents.yaml import describe
from simcluster.errors import Problem, raise_all
from simcluster.fault_plans.kinds import DEAD_S, LIMITS_S
from simcluster.spelling import closest, nearest
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.common.shortcuts import ShortcutChoice

T = TypeVar("T")

GRACE_S = 30.0
"""The time that an algorithm has to end after `stop.time`: clocks differ, and it may clean up."""


def seconds(most: float = LIMITS_S[1]) -> ValueValidator:
    """Return a validator for a duration of at most *most* seconds."""
    least = LIMITS_S[0]
    expected = f"a number of seconds from {least:g} to {most:.15g}"
    return number(lambda value: least <= value <= most, expected, minimum=least, maximum=most)


Seconds = Annotated[float, seconds()]
RestartCount = Annotated[int, whole(0, 1_000_000)]


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options of a run on processes.

    A node is dead after *dead_s* without a heartbeat. A run ends in NeverFinished in five cases:
    its start takes longer than *start_s*; for *stuck_s*, every node waits and nothing moves; for
    *idle_s*, no work is done and nothing is recorded; a node's event loop does not turn for
    *loop_s*; or an algorithm has not ended after *limit_s*. The default of *limit_s* is GRACE_S
    after the experiment's `stop.time`, or no limit.

    A node holds at most *inbox_bytes* of unread messages from one peer. With *portable*,
    kernels use only instructions that every x86-64 machine has. *shortcuts* is explained in
    shortcuts.py.
    """

    heartbeat_s: Seconds = 0.5
    dead_s: Seconds = DEAD_S
    start_s: Seconds = 60.0
    stuck_s: Seconds = 30.0
    idle_s: Seconds = 1800.0
    loop_s: Seconds = 300.0
    limit_s: Annotated[float | None, seconds()] = None
    inbox_bytes: Annotated[int, whole(1, 2**50)] = INBOX_BYTES
    portable: Flag = False
    shortcuts: ShortcutChoice = True

    def until(self, time_s: float | None) -> Self:
        """Return these options, with a limit for an experiment that stops after *time_s*."""
        return self if self.limit_s is not None or time_s is None else replace(self, limit_s=time_s + GRACE_S)


def check(kind: type, given: Mapping[str, Any], backend: str) -> None:
    """Raise UsageError with all options in *given* that *backend* rejects, whatever the job."""
    problems: list[Problem] = []
    options_of(kind, given, backend, problems)
    raise_all(problems)


def options_of(kind: type[T], given: Mapping[str, Any], backend: str, problems: list[Problem]) -> T:
    """Return *given* as options of class *kind*; invalid ones keep their defaults.

    Add the problems of invalid options to *problems*. *kind* may have *read_elsewhere*, valid names
    that are not fields, and *hint*, a string to add for names that resemble no option.
    """
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    made: Any = kind
    names = [*(field.name for field in fields(made)), *getattr(kind, "read_elsewhere", ())]
    for name in [name for name in plain if name not in names]:
        del plain[name]
        expected = nearest(name, names) + ("" if closest(name, names) else getattr(kind, "hint", ""))
        problems.append(Problem(name, f"unknown option of the {backend}", expected))
    faults: list[Any] = []
    tried(faults, _block(made).read, plain)
    for fault in faults:
        name = fault["loc"][0]
        problems.append(Problem(name, describe(plain.pop(name)), fault["ctx"]["error"].expected))
    options = kind(**{name: value for name, value in plain.items() if value is not None})
    if isinstance(options, NodeOptions) and options.dead_s < (least_s := 2 * options.heartbeat_s):
        problems.append(Problem("dead_s", f"{options.dead_s:g}", f"at least two heartbeats, {least_s:g}"))
    return options


@cache
def _block(kind: type) -> type[Block]:
    return block_of(kind)
