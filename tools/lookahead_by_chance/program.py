"""A program of ranks, as drawn by a seed: a network, and phases with a collective and other acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Extras: TypeAlias = dict[str, float]
"""Rare properties of a network, by name: see network.py."""


@dataclass(frozen=True)
class Operation:
    """A collective of tensors of *length* numbers; if *is_uneven*, ranks' lengths differ where they may."""

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
    """An act of a rank alongside a collective, after *pause_s*; if it sends, to the rank *shift* places after it."""

    kind: Literal["send", "burst", "compute", "sleep", "recv", "timeout"]
    pause_s: float
    shift: int


@dataclass(frozen=True)
class Phase:
    """A phase of all ranks: pauses *how*, by rank, then operations in *groups*, and acts *after* that.

    *second*: another operation of all ranks at once. *asides*: by rank. *timeout*: of one rank, in seconds.
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
    """A fault of *rank* from *at_s* on."""

    kind: Literal["crash", "restart", "hang", "slow"]
    rank: int
    at_s: float
    lasts_s: float


@dataclass(frozen=True)
class Program:
    """The draw of *seed*. *links*: bytes per second and latency of each link, more than any shape needs."""

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
