"""The figures of a whole load: latencies, throughput, goodput, and failures by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simcluster.lm.load.answers import AnsweredRequest, Objectives


@dataclass(frozen=True)
class Distribution:
    """Mean, median, standard deviation and percentiles of a latency in seconds.

    Percentiles are interpolated linearly, as in numpy.
    """

    mean: float
    median: float
    std: float
    p90: float
    p99: float


def distribution(values: Iterable[float]) -> Distribution | None:
    """Return the distribution of *values*, or None if there are none."""
    found = np.fromiter(values, float)
    if not found.size:
        return None
    median, p90, p99 = (float(one) for one in np.percentile(found, (50, 90, 99)))
    return Distribution(float(found.mean()), median, float(found.std()), p90, p99)


@dataclass(frozen=True)
class LoadFigures:
    """The figures of a load. Latencies, tokens and rates cover completed requests only.

    *duration_s* is the time from the first arrival to the last end of any request, even a failed
    one. *mean_in_system* is the mean number of requests in that time that have arrived but not
    ended.
    """

    requests: int
    completed: int
    errors: dict[str, int]
    duration_s: float
    mean_in_system: float
    prompt_tokens: int
    output_tokens: int
    good: int | None
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2el_s: Distribution | None

    @property
    def failed(self) -> int:
        return self.requests - self.completed

    def per_s(self, count: float | None) -> float | None:
        """Return *count* per second of the duration; None without a count or a duration."""
        return count / self.duration_s if count is not None and self.duration_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-compatible values."""
        return {
            **asdict(self),
            "failed": self.failed,
            "requests_per_s": self.per_s(self.completed),
            "output_tokens_per_s": self.per_s(self.output_tokens),
            "total_tokens_per_s": self.per_s(self.prompt_tokens + self.output_tokens),
            "goodput_per_s": self.per_s(self.good),
        }


def figures(answers: Sequence[AnsweredRequest], objectives: Objectives | None = None) -> LoadFigures:
    """Return the figures of *answers*, with the goodput if *objectives* are given."""
    done = [one for one in answers if not one.error]
    duration_s = max((one.end_s for one in answers), default=0.0) - min((one.arrival_s for one in answers), default=0.0)
    waits_s = sum(one.e2el_s for one in answers)
    return LoadFigures(
        requests=len(answers),
        completed=len(done),
        errors=dict(sorted(Counter(one.error for one in answers if one.error).items())),
        duration_s=duration_s,
        mean_in_system=waits_s / duration_s if duration_s > 0 else 0.0,
        prompt_tokens=sum(one.prompt_tokens for one in done),
        output_tokens=sum(one.output_tokens for one in done),
        good=sum(map(objectives.met_by, done)) if objectives is not None else None,
        ttft_s=distribution(one.ttft_s for one in done),
        tpot_s=distribution(one.tpot_s for one in done if one.tpot_s is not None),
        itl_s=distribution(gap_s for one in done for gap_s in one.itl_s),
        e2el_s=distribution(one.e2el_s for one in done),
    )
