"""The outcome of a what-if: an answer, tables, the critical path and figures.

It is computed, or read from a folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

from simcluster.errors import UsageError
from simcluster.experiment.read.experiment import Experiment
from simcluster.lab.what_if.answer import bottleneck, less, sentences
from simcluster.lab.what_if.critical_path import CriticalPath, PathPart
from simcluster.lab.what_if.effects import Effect, by_price, ranked
from simcluster.lab.what_if.goal import Goal
from simcluster.lab.what_if.perturb import Change
from simcluster.paths.inside import read
from simcluster.runs.sweep.sweep_folder import ANSWER

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.lab.what_if.plots import WhatIfPlots

ANSWER_BYTES = 64 << 20
"""Limit on the size of a stored answer."""
TABLE, REPORT = "whatif.csv", "report.html"


class WhatIf:
    """The answer to a what-if.

    Examples: `print(found.answer)`, `found.table`, `found.path`, `found.plot.tornado()`.
    """

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
        doubts: Sequence[str] = (),
    ) -> None:
        """*base* maps each seed to the goal's baseline value; *staleness* is the baseline's mean.

        *exact* says whether several seeds gave identical results. *doubts* are the unchanged run's
        warnings.
        """
        self.folder = folder
        self.plan = plan
        self.goal = goal
        self.base = dict(base)
        self.path = path
        self.effects, self.purchases = ranked(effects), by_price(purchases)
        self.exact = exact
        steps = None if goal.learns else plan.planned_steps
        told = sentences(goal, base, staleness, effects, purchases, path, plan.topology, exact=exact, steps=steps)
        self.sentences = told + [f"Warning: {doubt}" for doubt in doubts]

    @property
    def answer(self) -> str:
        """The whole answer as text, one sentence per line."""
        return "\n".join(self.sentences)

    @property
    def bottleneck(self) -> Effect | None:
        """The effect of the change that gains most; None if no change gains a percent."""
        return bottleneck(self.effects, self.goal)

    @property
    def value(self) -> float:
        """The goal's baseline value, averaged over seeds, in seconds, joules or US dollars."""
        return fmean(self.base.values())

    @cached_property
    def table(self) -> pd.DataFrame:
        """A table with one row per change and purchase; changes are first, by the size of their
        effect.
        """
        import pandas as pd

        return pd.DataFrame([_row(found) for found in [*self.effects, *self.purchases]], columns=list(_COLUMNS))

    @property
    def plot(self) -> WhatIfPlots:
        """The Plotly figures `tornado` and `path`."""
        from simcluster.lab.what_if.plots import WhatIfPlots

        return WhatIfPlots(self.goal, self.base, self.effects, self.path.parts, self.path.end_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON-compatible values."""
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
            "path": [part.to_dict() for part in self.path.parts],
        }

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import card

        known = [found for found in self.effects if found.value is not None and found.relative is not None]
        rows = [[found.change.label, self.goal.value(found.value), less(found)] for found in known[:MOST_SHOWN]]
        first, *others = self.sentences
        return card(first, ["change", self.goal.phrase, "effect"], rows, [*others, f"folder {self.folder}"])

    def __repr__(self) -> str:
        return f"WhatIf({str(self.folder)!r}: {self.sentences[1]})"


MOST_SHOWN = 8
"""Limit on the number of changes that a notebook shows."""

_COLUMNS = (
    "kind", "part", "change", "value", "relative", "lowest", "highest", "price_usd", "gain_per_usd", "staleness",
    "error", "interval_low", "interval_high",
)  # fmt: skip


def _row(found: Effect) -> dict[str, Any]:
    change = found.change
    per_usd = found.per_usd if found.value is not None else None
    values = (
        change.kind, change.part, change.label, found.value, found.relative, found.lowest, found.highest,
        change.price_usd, per_usd, found.staleness, found.error, found.low, found.high,
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))


def is_whatif(folder: Path) -> bool:
    """Return whether *folder* contains the answer of a what-if."""
    return (folder / ANSWER).is_file()


def load_whatif(folder: Path) -> WhatIfPlots:
    """Return the figures of the answer in *folder*.

    Raise UsageError if the folder's file is not the answer of a what-if.
    """
    from simcluster.lab.what_if.plots import WhatIfPlots

    try:
        told = msgspec.json.decode(read(folder, ANSWER, most_bytes=ANSWER_BYTES))
        parts = [PathPart(part["kind"], part["where"], part["seconds"], part["share"], None) for part in told["path"]]
        goal = Goal(told["goal"], told["target"])
        base = {int(seed): value for seed, value in told["by_seed"].items()}
        effects = [
            Effect(
                Change(row["kind"], row["part"], row["change"], {}, row["price_usd"]),
                *(row[name] for name in ("value", "relative", "lowest", "highest", "staleness", "error")),
                # Older answers lack the interval.
                *(row.get(name) for name in ("interval_low", "interval_high")),
            )
            for row in told["changes"]
        ]
        return WhatIfPlots(goal, base, effects, parts, sum(part.seconds for part in parts))
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        expected = f"the answer of a what-if ({error})"
        raise UsageError(ANSWER, f"something else in {folder}", expected) from error
