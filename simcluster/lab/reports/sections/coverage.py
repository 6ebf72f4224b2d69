"""Compute the shares of time that spans cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simcluster.runs.spans import Rest, Span

FloatArray = npt.NDArray[np.float64]


def busy_shares(spans: Sequence[Span], edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* that compute *spans* cover.

    All spans must belong to one node.
    """
    return covered_by([span for span in spans if span.kind == "compute"], edges_s)


def covered_by(spans: Sequence[Span], edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* that *spans* cover."""
    times_s = np.array(sorted((span.start_s, span.end_s) for span in spans)).reshape(-1, 2)
    return covered(times_s[:, 0], times_s[:, 1], edges_s)


def covered(starts_s: FloatArray, ends_s: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval between *edges_s* that a union of spans covers.

    Spans may overlap; *starts_s* must be in rising order.
    """
    if not len(starts_s) or edges_s[-1] <= edges_s[0]:
        return np.zeros(len(edges_s) - 1)
    # Cut off the part of each span that earlier spans cover, so that the lengths add up.
    until_s = np.maximum.accumulate(ends_s)
    begin_s = np.maximum(starts_s, np.concatenate([[-np.inf], until_s[:-1]]))
    begin_s = np.minimum(begin_s, until_s)
    times_s = np.column_stack([begin_s, until_s]).ravel()
    worked_s = np.repeat(np.cumsum(until_s - begin_s), 2)
    worked_s[::2] = np.concatenate([[0.0], worked_s[1:-1:2]])
    return np.asarray(np.diff(np.interp(edges_s, times_s, worked_s)) / np.diff(edges_s))


def rest_shares(rest: Rest | None, edges_s: FloatArray) -> FloatArray:
    """Return the share, 0 to 1, of each interval that the compute spans summed up in *rest* cover.

    Their time is assumed to be spread evenly over each part of the run.
    """
    if rest is None or edges_s[-1] <= edges_s[0]:
        return np.zeros(len(edges_s) - 1)
    worked_s = np.concatenate([[0.0], np.cumsum(rest.busy_s)])
    times_s = np.arange(len(worked_s)) * rest.width_s
    return np.asarray(np.diff(np.interp(edges_s, times_s, worked_s)) / np.diff(edges_s), dtype=np.float64)
