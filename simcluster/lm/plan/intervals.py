"""Intervals of predicted token rates and first tokens, from the errors of predictions for published rows.

The numbers are those of `python -m tools.published_rows`; a test compares them with its output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from simcluster.lm.plan.engines import EngineTerms

Distance: TypeAlias = Literal["near", "beyond", "unmeasured"]
"""How far a prediction is from the published rows.

"near": rows cover its engine and its number of nodes. "beyond": no row has that many nodes.
"unmeasured": no row has its engine, several requests at once, or tensor parallelism inside a
pipeline.
"""

FACTORS: Final[Mapping[str, Mapping[Distance, tuple[float, float]]]] = {
    "alone": {"near": (0.86, 1.18), "beyond": (0.86, 1.18), "unmeasured": (0.51, 1.18)},
    "pipeline": {"near": (0.88, 1.22), "beyond": (0.76, 1.22), "unmeasured": (0.40, 1.22)},
    "tensor": {"near": (0.82, 1.23), "beyond": (0.55, 1.23), "unmeasured": (0.30, 1.23)},
}
"""Kind of placement -> distance -> factors that bound 80 % of measured / predicted rates."""

MOST_NODES: Final[Mapping[str, int]] = {"alone": 1, "pipeline": 4, "tensor": 8}
"""Kind of placement -> the largest number of nodes in a row."""

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "replicas": ("alone",), "pipelines": ("pipeline",), "hybrid": ("pipeline", "tensor"),
}  # fmt: skip
"""Kind of placement without rows -> the kinds that it consists of."""

SOURCE: Final = "80 % intervals of tokens/s: from 90 published rows, each predicted without it"


@dataclass(frozen=True)
class RateInterval:
    """The factors *low* and *high* that turn a predicted rate into an interval.

    Rows have at most *most* nodes. *is_beyond* means that the placement has more nodes than that.
    """

    low: float
    high: float
    most: int
    is_beyond: bool

    def around(self, rate: float) -> tuple[float, float]:
        return self.low * rate, self.high * rate


def rate_interval(kind: str, nodes: int, requests: int, engine: EngineTerms) -> RateInterval:
    """Return the interval of the rate of a placement of *kind* for *requests* at once.

    *nodes* is the number of nodes that work on one request.
    """
    kinds = KINDS.get(kind, (kind,))
    most = min(MOST_NODES[one] for one in kinds)
    distance: Distance = "beyond" if nodes > most else "near"
    if not engine.memory or requests > 1 or len(kinds) > 1:
        distance = "unmeasured"
    low, high = zip(*(FACTORS[one][distance] for one in kinds), strict=True)
    return RateInterval(min(low), max(high), most, nodes > most)


def ttft_factors(kind: str) -> tuple[float, float]:
    """Return the factors of the range of the time to the first token, with a placement of *kind*.

    No row has a prompt of more than a few tokens, and no fit has an engine's arithmetic. The factors
    are therefore those of rates that are predicted from devices and links alone.
    """
    low, high = zip(*(FACTORS[one]["unmeasured"] for one in KINDS.get(kind, (kind,))), strict=True)
    return 1 / max(high), 1 / min(low)


def source_of(intervals: Iterable[tuple[str, RateInterval]], requests: int, engine: EngineTerms) -> str:
    """Return a sentence on the rows that give *intervals*, and on what no row covers.

    *intervals* has pairs of a kind of placement and its interval, at least one.
    """
    intervals = list(intervals)
    low, high = zip(*(ttft_factors(kind) for kind, _ in intervals), strict=True)
    found = [SOURCE, f"none has a TTFT, which is {min(low):.2g} to {max(high):.2g} times these by device and links"]
    found += [] if engine.memory else ["none of this engine"]
    found += ["one request each"] if requests > 1 else []
    beyond = dict.fromkeys(f"{kind} not measured beyond {one.most} nodes" for kind, one in intervals if one.is_beyond)
    return "; ".join((*found, *beyond))
