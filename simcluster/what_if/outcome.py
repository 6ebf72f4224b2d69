"""The outcome of a what-if: the answer, its tables, the critical path, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simcluster.experiment.read import Experiment
from simcluster.what_if.answer import bottleneck, sentences
from simcluster.what_if.critical_path import CriticalPath
from simcluster.what_if.effects import Effect, by_price, ranked
from simcluster.what_if.goal import Goal

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.what_if.plots import WhatIfPlots

ANSWER, TABLE, REPORT = "whatif.json", "whatif.csv", "report.html"


class WhatIf:
    """An answered question: `print(found.answer)`, `found.table`, `found.path`, `found.plot.tornado()`."""

    def __init__(
        self,
        folder: Path,
        plan: Experiment,
        goal: Goal,
        base: Mapping[int, float],
        staleness: float | None,
        effects: Sequence[Effect],
        purchases: Sequence[Effect],
        path: CriticalPath,
        *,
        exact: bool = False,
    ) -> None:
        """*base* is the baseline goal by seed, *staleness* its mean. *exact*: several seeds gave identical results."""
        self.folder, self.plan, self.goal, self.base, self.path = folder, plan, goal, dict(base), path
        self.effects, self.purchases = ranked(effects), by_price(purchases)
        self.exact = exact
        self.sentences = sentences(goal, base, staleness, effects, purchases, path, plan.topology, exact=exact)

    @property
    def answer(self) -> str:
        """The whole answer in plain sentences, one per line."""
        return "\n".join(self.sentences)

    @property
    def bottleneck(self) -> Effect | None:
        """The change that gains most, if any gains a percent."""
        return bottleneck(self.effects, self.goal)

    @property
    def value(self) -> float:
        """The baseline goal, in seconds, joules or US dollars, averaged over seeds."""
        return fmean(self.base.values())

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per change and purchase, the greatest effect first."""
        import pandas as pd

        return pd.DataFrame([_row(found) for found in [*self.effects, *self.purchases]], columns=list(_COLUMNS))

    @cached_property
    def plot(self) -> WhatIfPlots:
        """The Plotly figures: tornado, path."""
        from simcluster.what_if.plots import WhatIfPlots

        return WhatIfPlots(self.goal, self.base, self.effects, self.path.parts, self.path.end_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, for machines."""
        best = self.bottleneck
        return {
            "experiment": self.plan.name,
            "goal": self.goal.name,
            "target": self.goal.target,
            "value": self.value,
            "by_seed": {str(seed): value for seed, value in self.base.items()},
            "seeds_do_not_matter": self.exact,
            "numerics": self.plan.numerics,
            "answer": self.sentences,
            "bottleneck": _row(best) if best is not None else None,
            "changes": [_row(found) for found in self.effects],
            "purchases": [_row(found) for found in self.purchases],
            "path": [
                {"kind": part.kind, "where": part.where, "seconds": part.seconds, "share": part.share}
                for part in self.path.parts
            ],
        }

    def __repr__(self) -> str:
        return f"WhatIf({str(self.folder)!r}: {self.sentences[1]})"


_COLUMNS = (
    *("kind", "part", "change", "value", "relative", "lowest", "highest", "price_usd", "gain_per_usd"),
    *("staleness", "error", "interval_low", "interval_high"),
)


def _row(found: Effect) -> dict[str, Any]:
    change = found.change
    values = (
        *(change.kind, change.part, change.label, found.value, found.relative, found.lowest, found.highest),
        *(change.price_usd, found.per_usd if found.value is not None else None, found.staleness, found.error),
        *(found.low, found.high),
    )
    return dict(zip(_COLUMNS, values, strict=True))
