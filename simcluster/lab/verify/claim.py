"""Claims about an algorithm, as data: `simcluster verify` runs the algorithm and checks them.

The module of a user's algorithm may have a `CLAIM`; without one, the laws for every algorithm are
checked.

Checks run on a star of equal devices that take 1 ms for any piece of work, with links of 1 Gbps and
50 us; on an uneven star the last node takes 4 ms. The default workload is `quadratic` of 84 float64
features, trained for 8 steps.
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
"""The weights of all ranks: by rank, then by parameter."""

Reference = Callable[[Workload, int, int, int, Settings], Weights]
"""A function that computes the final weights of rank 0, 1, ... in one process.

Its arguments are (workload, world size, seed, steps, settings). It is the naive version of the
algorithm: no messages, no overlap, the simplest loop with the same result. It may return the
weights of fewer ranks, if nothing is claimed about the others.
"""

Outcome = Literal["ends well", "goes on", "fails"]
"""The outcome of a run with a fault.

"ends well": all ranks finish. "goes on": the others finish without the rank that was hit. "fails":
the ranks that wait for a lost rank fail with PeerLost.
"""


@dataclass(frozen=True)
class Identity:
    """The claim that two algorithms end with the same weights on rank 0.

    One has *settings*; *other*, which has *other_settings*, is the name of an algorithm, or "one
    process" for training alone on the joined batches. *exact* says whether the weights are equal to
    the bit, not only up to rounding. *why* is a reason for the table. *sizes* limits the world
    sizes.
    """

    settings: Settings
    other: str
    other_settings: Settings = field(default_factory=dict)
    exact: bool = False
    why: str = ""
    sizes: Sequence[int] | None = None


@dataclass(frozen=True)
class Variant:
    """Another *value* of a setting, which must have an effect if the settings *given* are also set.

    *uneven* says whether one node of the cluster must be four times as slow as the others.
    """

    value: Any
    given: Settings = field(default_factory=dict)
    uneven: bool = False


@dataclass(frozen=True)
class Contributions:
    """The counts of a run's contributions: *pushed* = *applied* + *rejected* + *in_flight*."""

    pushed: int
    applied: int
    rejected: int
    in_flight: int = 0


@dataclass(frozen=True)
class Claim:
    """The claims about an algorithm. Omitted claims are not checked, and the table says so.

    - *paper*: author and year, section.
    - *settings*: the settings of all checks that differ from the defaults.
    - *order_free*: whether the result is independent of the order of arrival. If it is, simulator
      and sockets must give bitwise equal weights; otherwise both must keep the same invariants.
    - *reference*: a function that computes the weights with which N ranks must end, up to rounding
      (float64). It is checked with *settings*, and again with each of *reference_for* added.
    - *variants*: setting -> another value, or a `Variant`, which must change the trace of events or
      the final weights. For a setting without an entry, other values are guessed.
    - *identities*: pairs of algorithms or settings that must end with the same weights.
    - *payload_bytes*: (world size, bytes of one model's gradients, steps, settings) -> the exact
      tensor bytes that all ranks send in a run, if the world size divides the number of elements.
    - *contributions*: metrics of each rank (name -> list of (step, value) in the order recorded) ->
      the counts of contributions.
    - *staleness_bound*: (world size, settings) -> the largest staleness that may be recorded on
      equal nodes, where the first contribution must be fresh. It is checked with *settings*, and
      again with each of *staleness_for* added.
    - *mixing*: (world size, round, settings) -> the mixing matrix; row i has the weights that rank
      i uses. It must be doubly stochastic, or only column stochastic with *column_stochastic*.
    - *replicas_agree*: whether all ranks end with bitwise equal weights.
    - *outcomes*: fault -> outcome, for the faults of `simcluster.lab.verify.faults`.
    - *sizes*: the world sizes that the algorithm supports; None for any.
    - *workload*: the workload that the algorithm requires, if any.
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
