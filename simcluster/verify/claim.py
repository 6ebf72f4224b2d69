"""What is claimed of an algorithm, as data: `simcluster verify` runs the algorithm and holds it to this.

A user's own algorithm may have a `CLAIM` in its module; without one it is held to what every algorithm promises.

What is checked runs on a star of equal devices that take 1 ms for any piece of work, and whose links have 1 Gbps and
50 us each; on an uneven one the last node takes 4 ms. The workload, if none is claimed, is `quadratic` of 84 float64
features; it is trained for 8 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from simcluster.workloads import Workload

Settings = Mapping[str, Any]
"""An algorithm's settings, completed by their defaults."""

Reference = Callable[[Workload, int, int, int, Settings], Sequence[Sequence[Tensor]]]
"""(workload, world size, seed, steps, settings) -> the final weights of rank 0, 1, ... as one process computes them.

The naive version of the algorithm: no messages, no overlap, the simplest loop that gives the same numbers. It may
return fewer ranks than there are, when nothing is claimed of the others.
"""

Outcome = Literal["ends well", "goes on", "fails"]
"""Everybody ends well; the run is done without whoever was hit; whoever waits fails with a PeerLost."""


@dataclass(frozen=True)
class Identity:
    """With *settings* the algorithm does what *other* does with *other_settings*: the same final weights on rank 0.

    *other* is the name of an algorithm, or "one process" for training alone on the joined batches. *exact*: to the
    bit, else to rounding. *why* is the sentence that the table shows. *sizes*: only for these world sizes.
    """

    settings: Settings
    other: str
    other_settings: Settings = field(default_factory=dict)
    exact: bool = False
    why: str = ""
    sizes: Sequence[int] | None = None


@dataclass(frozen=True)
class Variant:
    """Another *value* of a setting, that matters when the other settings are *given* and, if *uneven*, when one node is
    four times as slow as the others."""

    value: Any
    given: Settings = field(default_factory=dict)
    uneven: bool = False


@dataclass(frozen=True)
class Contributions:
    """Where the contributions of a run went: *pushed* = *applied* + *rejected* + *in_flight*."""

    pushed: int
    applied: int
    rejected: int
    in_flight: int = 0


@dataclass(frozen=True)
class Claim:
    """What holds of an algorithm. What is left out is not checked, and the table says that nothing is claimed.

    - *paper*: author and year, section.
    - *settings*: those that all checks start from, where the defaults will not do.
    - *order_free*: the result does not depend on which message arrives first. Then simulator and sockets must give the
      same weights to the bit; else both must keep the same invariants.
    - *reference*: N ranks against one process, to rounding (float64); with the claimed settings, and with those of
      *reference_for* on top.
    - *variants*: setting -> another value, or a `Variant`, with which the trace of events or the final weights must
      differ. A setting without an entry fails the check.
    - *identities*: pairs of settings that must agree.
    - *payload_bytes*: (world size, bytes of one model's gradients, steps, settings) -> bytes of all tensors that all
      ranks send in a run, exactly; of a run whose parameters have as many elements as the world size divides.
    - *contributions*: (metrics of each rank, name -> list of (step, value) in the order recorded) -> where they went.
    - *staleness_bound*: (world size, settings) -> on equal nodes nothing is recorded to be staler than this, with the
      claimed settings and with those of *staleness_for* on top; and the first contribution is fresh.
    - *mixing*: (world size, round, settings) -> the matrix that averaging multiplies by, row i is what rank i takes.
      Doubly stochastic, unless *column_stochastic*.
    - *replicas_agree*: at the end every rank has the same weights, to the bit.
    - *outcomes*: fault -> outcome; the faults are those of `simcluster.verify.faults`.
    - *sizes*: the world sizes that it can run on; None for any.
    - *workload*: the workload that it needs, if not any will do.
    """

    paper: str
    settings: Settings = field(default_factory=dict)
    order_free: bool = True
    reference: Reference | None = None
    reference_for: Sequence[Settings] = ()
    variants: Mapping[str, Any] = field(default_factory=dict)
    identities: Sequence[Identity] = ()
    payload_bytes: Callable[[int, int, int, Settings], int] | None = None
    contributions: Callable[[Sequence[Mapping[str, Sequence[tuple[int, float]]]]], Contributions] | None = None
    staleness_bound: Callable[[int, Settings], float] | None = None
    staleness_for: Sequence[Settings] = ()
    mixing: Callable[[int, int, Settings], npt.NDArray[np.float64]] | None = None
    column_stochastic: bool = False
    replicas_agree: bool = False
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    sizes: Sequence[int] | None = None
    workload: str | None = None
