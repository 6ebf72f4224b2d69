"""A random program for all ranks: a network, and phases with collectives and other acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Extras: TypeAlias = dict[str, float]
"""Name of a rare property of a network -> its value: see network.py."""


@dataclass(frozen=True)
class Operation:
    """A collective on tensors of *length* numbers.

    If it *is_uneven*, lengths differ between ranks, provided that the operation allows it.
    """

    name: str
    schedule: str
    settings: dict[str, Any]
    length: int
    has_values: bool
    root: int
    is_uneven: bool
    dtype: str


@dataclass(frozen=True)
class Aside:
    """An act of one rank during a collective. It begins after *pause_s*.

    A send goes from rank r to rank r + *shift*, modulo the number of ranks.
    """

    kind: Literal["send", "burst", "compute", "sleep", "recv", "timeout"]
    pause_s: float
    shift: int


@dataclass(frozen=True)
class Phase:
    """A phase of a program, in which all ranks take part.

    Each rank first pauses for its entry of *pauses_s*, in the way that its entry of *how* names.
    Then it takes part in the operations of its *groups*, and at last in the acts that *after*
    names. *second* is another operation of all ranks, concurrent with the groups. *asides* has rank
    -> its act during the operations. *timeout* is (rank, seconds): a limit on the groups'
    operations of one rank.
    """

    pauses_s: list[float]
    how: list[str]
    groups: list[tuple[list[int], Operation]]
    is_named: bool
    second: Operation | None
    asides: dict[int, Aside]
    after: Literal["none", "compute", "shift", "serve"]
    shift: int
    timeout: tuple[int, float] | None


@dataclass(frozen=True)
class Fault:
    """A fault of *rank* that begins at *at_s* and lasts *lasts_s*."""

    kind: Literal["crash", "restart", "hang", "slow"]
    rank: int
    at_s: float
    lasts_s: float


@dataclass(frozen=True)
class Program:
    """The program that *seed* draws.

    *links* has (bytes per second, latency) for each link. Some shapes use only the first ones.
    """

    seed: int
    size: int
    shape: Literal["star", "free", "ring", "complete", "two", "chain"]
    links: list[tuple[float, float]]
    duplex: Literal["full", "half"]
    model: str
    inbox_bytes: int
    threads: int
    phases: list[Phase]
    extras: Extras = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
