"""Say by when the runs of most seeds end, for each combination of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pandas as pd

from simcluster.lab.reports.sweeps.lines import TARGET, combination
from simcluster.runs import words
from simcluster.runs.seed_quantiles import SAID, kept_by_most

MOST_LISTED = 6
_BEGINNINGS = {TARGET: "The target is reached by", "elapsed_s": "A run ends by"}


def likely(table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return a sentence per time with its quantile over seeds; [] if there are too few seeds.

    A run that failed, or missed the target, has not ended by any time.
    """
    found = []
    for measure in (name for name in _BEGINNINGS if name in table):
        times_s = table[measure].where(table["status"] == "done").fillna(inf)
        if (times_s == inf).all():
            continue
        groups = [((), times_s)] if not keys else times_s.groupby([table[key] for key in keys], sort=False)
        each = []
        for values, group in groups:
            by_s = kept_by_most(list(group))
            if by_s is None:
                continue
            several = values if isinstance(values, tuple) else (values,)
            told = words.listing([combination([key], [value]) for key, value in zip(keys, several, strict=True)])
            time = words.seconds(by_s) if by_s < inf else "no time"
            each.append(f"{time} with {told}" if told else time)
        if each:
            seeds = table["seed"].nunique()
            found.append(f"{_BEGINNINGS[measure]} {words.some(each, MOST_LISTED)}, {SAID} of {seeds} seeds.")
    return found
