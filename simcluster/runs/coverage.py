"""The shares of time that spans cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from simcluster.runs.spans import Rest, Span

FloatArray: TypeAlias = npt.NDArray[np.float64]


def busy_shares(spans: Sequence[Span], edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* covered by one node's compute spans."""
    return covered_by([span for span in spans if span.kind == "compute"], edges_s)


def covered_by(spans: Sequence[Span], edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* that *spans* cover, however they overlap."""
    times_s = np.array(sorted((span.start_s, span.end_s) for span in spans)).reshape(-1, 2)
    return covered(times_s[:, 0], times_s[:, 1], edges_s)


def covered(starts_s: FloatArray, ends_s: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* that spans cover, however they overlap.

    *starts_s* rise.
    """
    if not len(starts_s) or edges_s[-1] <= edges_s[0]:
        return np.zeros(len(edges_s) - 1)
    until_s = np.maximum.accumulate(ends_s)
    begin_s = np.maximum(starts_s, np.concatenate([[-np.inf], until_s[:-1]]))
    begin_s = np.minimum(begin_s, until_s)
    times_s = np.column_stack([begin_s, until_s]).ravel()
    worked_s = np.repeat(np.cumsum(until_s - begin_s), 2)
    worked_s[::2] = np.concatenate([[0.0], worked_s[1:-1:2]])
    return np.asarray(np.diff(np.interp(edges_s, times_s, worked_s)) / np.diff(edges_s))


def rest_shares(rest: Rest | None, edges_s: FloatArray) -> FloatArray:
    """The same for the spans that are summed up, with work spread evenly over each part."""
    if rest is None or edges_s[-1] <= edges_s[0]:
        return np.zeros(len(edges_s) - 1)
    worked_s = np.concatenate([[0.0], np.cumsum(rest.busy_s)])
    times_s = np.arange(len(worked_s)) * rest.width_s
    return np.asarray(np.diff(np.interp(edges_s, times_s, worked_s)) / np.diff(edges_s), dtype=np.float64)
