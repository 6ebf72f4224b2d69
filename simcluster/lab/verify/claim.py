"""The claims about an algorithm, as data: `simcluster verify` runs the algorithm and checks them.

A user's algorithm may have a `CLAIM` in its module; without one, the laws for every algorithm are checked.

Checks run on a star of equal devices that take 1 ms for any piece of work, with links of 1 Gbps and 50 us; on an uneven
star the last node takes 4 ms. The default workload is `quadratic` of 84 float64 features, trained for 8 steps.
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

Weights = Sequence[Sequence[Tensor]]
"""By rank, then by parameter."""

Reference = Callable[[Workload, int, int, int, Settings], Weights]
"""(workload, world size, seed, steps, settings) -> the final weights of rank 0, 1, ... as one process computes them.

The naive version of the algorithm: no messages, no overlap, the simplest loop that gives the same numbers. It may
return fewer ranks than there are, if nothing is claimed of the others.
"""

Outcome = Literal["ends well", "goes on", "fails"]
"""All ranks finish; the others finish without the rank that was hit; ranks that wait for it fail with a PeerLost."""


@dataclass(frozen=True)
class Identity:
    """With *settings* the algorithm does what *other* does with *other_settings*: equal final weights on rank 0.

    *other* is the name of an algorithm, or "one process" for training alone on the joined batches. *exact*: to the bit,
    else up to rounding. *why* is the sentence in the table. *sizes*: only for these world sizes.
    """

    settings: Settings
    other: str
    other_settings: Settings = field(default_factory=dict)
    exact: bool = False
    why: str = ""
    sizes: Sequence[int] | None = None


@dataclass(frozen=True)
class Variant:
    """Another *value* of a setting, which has an effect if the other settings are *given* and, if *uneven*, one node is
    four times as slow as the others.
    """

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
    """The claims about an algorithm. Omitted claims are not checked, and the table says so.

    - *paper*: author and year, section.
    - *settings*: the base settings of all checks, if the defaults do not fit.
    - *order_free*: the result does not depend on the order of arrival. Then simulator and sockets must give bitwise
      equal weights; else both must keep the same invariants.
    - *reference*: N ranks against one process, up to rounding (float64); with the claimed settings, and with those of
      *reference_for* added.
    - *variants*: setting -> another value, or a `Variant`, which must change the trace of events or the final weights.
      A setting without an entry fails the check.
    - *identities*: pairs of settings that must agree.
    - *payload_bytes*: (world size, bytes of one model's gradients, steps, settings) -> tensor bytes that all ranks send
      in a run, exactly; the world size must divide the number of elements.
    - *contributions*: (metrics of each rank, name -> list of (step, value) in the order recorded) -> where they went.
    - *staleness_bound*: (world size, settings) -> on equal nodes no recorded staleness is larger, with the claimed
      settings and with those of *staleness_for* added; and the first contribution is fresh.
    - *mixing*: (world size, round, settings) -> the matrix of the averaging; row i has the weights that rank i uses.
      Doubly stochastic, unless *column_stochastic*.
    - *replicas_agree*: at the end every rank has bitwise equal weights.
    - *outcomes*: fault -> outcome, for the faults of `simcluster.lab.verify.faults`.
    - *sizes*: the world sizes that it supports; None for any.
    - *workload*: the workload that it requires, if any.
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
